/*
 * test_comm.c - calls with tensors, as strategies make them: ranks are threads, each with its own
 * context; the same on a device whose memory the host must not touch, and on an axis of one rank.
 */
#include "support/backend.h"
#include "mesh/internal.h"
#include "support/local_ranks.h"
#include "tensor/internal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define WANT(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x)) return nrl_fail(NRL_ERR_BUG, "line %d: %s", __LINE__, #x);                                           \
    } while (0)

typedef struct {
    bool device_memory; /* claims that the host cannot read it */
    nrl_status (*body)(nrl_mesh *m, nrl_ctx *ctx);
} plan;

static nrl_tensor *vector(nrl_ctx *ctx, int64_t n, const float *values)
{
    nrl_tensor *t;
    return nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, values, &t) ? NULL : t;
}

static nrl_status expect(nrl_ctx *ctx, const nrl_tensor *t, int64_t n, const float *want)
{
    double got[64];
    NRL_TRY(nrl_tensor_fetch(ctx, t, got, n));
    for (int64_t i = 0; i < n; i++)
        if (got[i] != (double)want[i])
            return nrl_fail(NRL_ERR_BUG, "element %d is %g, want %g", (int)i, got[i], (double)want[i]);
    return NRL_OK;
}

static nrl_status run_body(nrl_mesh *m, int32_t rank, void *user)
{
    const plan *p = user;
    device d;
    nrl_ctx *ctx;
    (void)rank;
    WANT(test_device_open(&d));
    if (p->device_memory) d.info.host_memory = false;
    NRL_TRY(ctx_create(&d, &ctx));
    ctx_scope_begin(ctx);
    nrl_status st = p->body(m, ctx);
    ctx_scope_end(ctx);
    ctx_destroy(ctx);
    device_close(&d);
    return st;
}

static void run_plan(int32_t world, bool device_memory, nrl_status (*body)(nrl_mesh *m, nrl_ctx *ctx))
{
    plan p = {device_memory, body};
    nrl_status st = local_ranks_run(world, run_body, &p);
    if (st) fail_msg("%s", nrl_error_text());
}

/* ---- two ranks and all operations ---- */

static nrl_status two_ranks(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    int32_t rank = nrl_mesh_rank(m);
    float base = (float)(10 * rank);
    nrl_work *w = NULL, *v = NULL;
    nrl_tensor *a = vector(ctx, 4, (float[]){base + 1, base + 2, base + 3, base + 4});
    nrl_tensor *b = vector(ctx, 4, (float[]){0, 0, 0, 0}), *e = vector(ctx, 8, (float[8]){0});
    nrl_tensor *half = vector(ctx, 2, (float[]){0, 0});

    nrl_comm_call sum = {.size = sizeof sum, .reduce = NRL_REDUCE_OP_SUM, .send = a, .receive = b, .what = "b"};
    NRL_TRY(nrl_comm_all_reduce(c, ctx, &sum, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    WANT(w == NULL);
    NRL_TRY(expect(ctx, b, 4, (float[]){12, 14, 16, 18}));

    nrl_comm_call gather = {.size = sizeof gather, .send = a, .receive = e};
    NRL_TRY(nrl_comm_all_gather(c, ctx, &gather, &w));
    nrl_comm_call scatter = {.size = sizeof scatter, .reduce = NRL_REDUCE_OP_AVERAGE, .send = b, .receive = half};
    NRL_TRY(nrl_comm_reduce_scatter(c, ctx, &scatter, &v)); /* two under way */
    NRL_TRY(nrl_work_wait(&w, ctx));
    NRL_TRY(nrl_work_wait(&v, ctx));
    NRL_TRY(expect(ctx, e, 8, (float[]){1, 2, 3, 4, 11, 12, 13, 14}));
    NRL_TRY(expect(ctx, half, 2, rank ? (float[]){16, 18} : (float[]){12, 14}));

    nrl_comm_call root = {.size = sizeof root, .peer = 1, .receive = a};
    NRL_TRY(nrl_comm_broadcast(c, ctx, &root, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    NRL_TRY(expect(ctx, a, 4, (float[]){11, 12, 13, 14}));

    nrl_comm_call pair = {.size = sizeof pair, .peer = 1 - rank, .tag = 3};
    if (rank)
        pair.receive = half;
    else
        pair.send = vector(ctx, 2, (float[]){5, 6});
    NRL_TRY(rank ? nrl_comm_recv(c, ctx, &pair, &w) : nrl_comm_send(c, ctx, &pair, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    if (rank) NRL_TRY(expect(ctx, half, 2, (float[]){5, 6}));

    nrl_comm_call all = {.size = sizeof all, .send = vector(ctx, 2, (float[]){base, base + 1}), .receive = half};
    NRL_TRY(nrl_comm_all_to_all(c, ctx, &all, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    NRL_TRY(expect(ctx, half, 2, rank ? (float[]){1, 11} : (float[]){0, 10}));
    return nrl_comm_barrier(c, "end");
}

static void tensors_are_exchanged(void **state)
{
    (void)state;
    run_plan(2, false, two_ranks);
}

static void tensors_of_a_device_go_through_host_memory(void **state)
{
    (void)state;
    run_plan(2, true, two_ranks);
}

/* ---- uneven shares, in place ---- */

static nrl_status uneven(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    int32_t rank = nrl_mesh_rank(m);
    static const int64_t counts[] = {1, 0, 3}, offsets[] = {0, 1, 1};
    float all[4] = {0};
    nrl_tensor *e, *own, *sums = vector(ctx, 4, (float[]){1, 2, 3, 4});
    nrl_work *w;
    for (int64_t i = 0; i < counts[rank]; i++)
        all[offsets[rank] + i] = (float)(rank + 1);
    e = vector(ctx, 4, all);
    nrl_comm_call gather = {.size = sizeof gather, .receive = e, .counts = counts, .offsets = offsets};
    NRL_TRY(nrl_comm_all_gather(c, ctx, &gather, &w)); /* from its own place */
    NRL_TRY(nrl_work_wait(&w, ctx));
    NRL_TRY(expect(ctx, e, 4, (float[]){1, 3, 3, 3}));
    if (counts[rank] == 0)
        NRL_TRY(nrl_tensor_slice(ctx, sums, 1, 0, &own));
    else
        own = vector(ctx, counts[rank], (float[3]){0});
    nrl_comm_call scatter = {
        .size = sizeof scatter, .reduce = NRL_REDUCE_OP_SUM, .send = sums, .receive = own, .counts = counts};
    NRL_TRY(nrl_comm_reduce_scatter(c, ctx, &scatter, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    if (rank == 0) NRL_TRY(expect(ctx, own, 1, (float[]){3}));
    if (rank == 2) NRL_TRY(expect(ctx, own, 3, (float[]){6, 9, 12}));
    if (counts[rank] == 0) nrl_tensor_free(ctx, own);
    return NRL_OK;
}

static void shares_may_be_uneven_and_empty(void **state)
{
    (void)state;
    run_plan(3, false, uneven);
}

/* ---- mistakes, and one rank ---- */

static nrl_status mistakes(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    nrl_work *w;
    nrl_tensor *three = vector(ctx, 3, (float[3]){0}), *two = vector(ctx, 2, (float[2]){0});
    static const int64_t far[] = {2, 2};
    nrl_comm_call call = {.size = sizeof call, .send = three, .receive = two, .what = "x"};
    WANT(nrl_comm_all_reduce(c, ctx, &call, &w) == NRL_ERR_BUG && !w);
    WANT(nrl_comm_all_gather(c, ctx, &call, &w) == NRL_ERR_BUG);
    WANT(nrl_comm_reduce_scatter(c, ctx, &call, &w) == NRL_ERR_BUG);
    WANT(nrl_comm_all_to_all(c, ctx, &call, &w) == NRL_ERR_BUG);
    call.counts = far; /* 4 elements in a tensor of 3 */
    WANT(nrl_comm_reduce_scatter(c, ctx, &call, &w) == NRL_ERR_BUG);
    nrl_comm_call root = {.size = sizeof root, .receive = two, .peer = 2};
    WANT(nrl_comm_broadcast(c, ctx, &root, &w) == NRL_ERR_BUG);
    WANT(nrl_comm_recv(c, ctx, &root, &w) == NRL_ERR_BUG);
    nrl_comm_call nothing = {.size = sizeof nothing};
    WANT(nrl_comm_all_reduce(c, ctx, &nothing, &w) == NRL_ERR_BUG);
    return nrl_comm_barrier(c, "nobody was harmed");
}

static void operands_that_do_not_fit_are_told_before_anything_is_sent(void **state)
{
    (void)state;
    run_plan(2, false, mistakes);
}

static nrl_status alone(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    nrl_work *w;
    nrl_tensor *a = vector(ctx, 2, (float[]){1, 2}), *b = vector(ctx, 2, (float[]){0, 0});
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .send = a, .receive = b};
    NRL_TRY(nrl_comm_all_reduce(c, ctx, &call, &w));
    WANT(w == NULL && nrl_work_done(w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    return expect(ctx, b, 2, (float[]){1, 2});
}

static void on_an_axis_of_one_a_call_is_a_copy(void **state)
{
    (void)state;
    run_plan(1, false, alone);
}

/* ---- a device that waits by itself ---- */

static _Atomic int n_fences;

static nrl_status fence(void *self, nrl_request *request, nrl_stream *stream)
{
    (void)self, (void)request, (void)stream;
    n_fences++;
    return NRL_OK;
}

/* The host goes on after a wait, and reading finds that everything has ended. */
static nrl_status fenced(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    char place;
    nrl_work *w[2];
    nrl_tensor *sum[2];
    m->table.host_only = false;
    m->table.fence = fence;
    ctx->stream = (nrl_stream *)(void *)&place;
    nrl_status st = NRL_OK;
    for (int i = 0; i < 2 && !st; i++) {
        sum[i] = vector(ctx, 2, (float[]){1, (float)i});
        st = nrl_comm_all_reduce(
            c, ctx, &(nrl_comm_call){.size = sizeof(nrl_comm_call), .reduce = NRL_REDUCE_OP_SUM, .receive = sum[i]},
            &w[i]);
    }
    for (int i = 0; i < 2 && !st; i++)
        st = nrl_work_wait(&w[i], ctx);
    bool is_kept = m->fenced != NULL && !w[0] && !w[1];
    if (!st) st = expect(ctx, sum[1], 2, (float[]){2, 2});
    if (!st) st = expect(ctx, sum[0], 2, (float[]){2, 0});
    bool has_ended = m->fenced == NULL;
    if (!st)
        st = nrl_comm_all_reduce(
            c, ctx, &(nrl_comm_call){.size = sizeof(nrl_comm_call), .reduce = NRL_REDUCE_OP_SUM, .receive = sum[0]},
            &w[0]);
    if (!st) st = nrl_work_wait(&w[0], ctx); /* never read: closing the mesh waits for it */
    mesh_settle(m);
    ctx->stream = NULL;
    WANT(st || (is_kept && has_ended && !m->fenced));
    return st;
}

static void the_host_waits_for_fenced_work_where_it_reads(void **state)
{
    (void)state;
    n_fences = 0;
    run_plan(2, false, fenced);
    assert_int_equal(n_fences, 2 * 3);
}

/* A rank that never comes ends the wait of those that read, not their program. */
static nrl_status fenced_late(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    char place;
    nrl_work *w;
    double got;
    if (nrl_mesh_rank(m)) {
        while (!control_failed(m->control))
            usleep(10000);
        return NRL_OK;
    }
    m->table.host_only = false;
    m->table.fence = fence;
    m->timeout_step = 0.3;
    ctx->stream = (nrl_stream *)(void *)&place;
    nrl_tensor *sum = vector(ctx, 1, (float[]){1});
    nrl_status st = nrl_comm_all_reduce(
        c, ctx,
        &(nrl_comm_call){
            .size = sizeof(nrl_comm_call), .reduce = NRL_REDUCE_OP_SUM, .receive = sum, .what = "bucket 0"},
        &w);
    if (!st) st = nrl_work_wait(&w, ctx);
    nrl_status read = st ? st : nrl_tensor_fetch(ctx, sum, &got, 1);
    ctx->stream = NULL;
    WANT(st == NRL_OK && read == NRL_ERR_PEER && strstr(nrl_error_text(), "bucket 0"));
    return NRL_OK;
}

static void a_late_rank_ends_the_reading_of_what_waits_for_it(void **state)
{
    (void)state;
    run_plan(2, false, fenced_late);
}

/* ---- memory of the collective ---- */

static nrl_status given(void *group, size_t bytes, void **out)
{
    static _Alignas(64) _Thread_local char memory[256];
    (void)group;
    *out = bytes <= sizeof memory ? memory : NULL; /* of larger tensors it has none */
    return NRL_OK;
}

static nrl_status in_given_memory(nrl_mesh *m, nrl_ctx *ctx)
{
    nrl_comm *c = nrl_mesh_comm(m, "data");
    const size_t before = ctx->pool.live_bytes;
    nrl_tensor *small, *large;
    nrl_work *w;
    void *place;
    m->table.alloc = given;
    NRL_TRY(given(NULL, 1, &place));
    memset(place, 1, 4);
    NRL_TRY(nrl_comm_tensor(c, ctx, NRL_DTYPE_F32, 4, true, &small));
    NRL_TRY(nrl_comm_tensor(c, ctx, NRL_DTYPE_F32, 1000, true, &large));
    WANT(nrl_tensor_mat(small).data == place && nrl_tensor_mat(large).data && nrl_tensor_mat(large).data != place);
    WANT(ctx->pool.live_bytes - before >= 4016 && ctx->pool.exact_bytes >= 4016);
    NRL_TRY(nrl_tensor_fill(ctx, small, nrl_mesh_rank(m) + 1));
    nrl_comm_call sum = {.size = sizeof sum, .reduce = NRL_REDUCE_OP_SUM, .receive = small, .what = "small"};
    NRL_TRY(nrl_comm_all_reduce(c, ctx, &sum, &w));
    NRL_TRY(nrl_work_wait(&w, ctx));
    NRL_TRY(expect(ctx, small, 4, (float[]){3, 3, 3, 3}));
    nrl_tensor_free(ctx, small);
    nrl_tensor_free(ctx, large);
    WANT(ctx->pool.live_bytes == before);
    return NRL_OK;
}

static void tensors_lie_in_memory_of_the_collective_if_it_has_any(void **state)
{
    (void)state;
    run_plan(2, false, in_given_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_exchanged),
        cmocka_unit_test(tensors_of_a_device_go_through_host_memory),
        cmocka_unit_test(shares_may_be_uneven_and_empty),
        cmocka_unit_test(operands_that_do_not_fit_are_told_before_anything_is_sent),
        cmocka_unit_test(on_an_axis_of_one_a_call_is_a_copy),
        cmocka_unit_test(tensors_lie_in_memory_of_the_collective_if_it_has_any),
        cmocka_unit_test(the_host_waits_for_fenced_work_where_it_reads),
        cmocka_unit_test(a_late_rank_ends_the_reading_of_what_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
