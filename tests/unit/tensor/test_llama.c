/*
 * test_llama.c - behavior that needs a whole model: packing, shared prompts, recompute, chunks of
 * the head, the key/value cache, bf16, and memory over steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inference/kv_cache.h"
#include "profiling/profile.h"
#include "support/batch_check.h"
#include "support/memory.h"
#include "support/tiny_llama.h"
#include "tensor/internal.h"
#include "tensor/ops/rope.h"
#include <math.h>
#include <time.h>

/* Products of other sizes sum in another order: some roundings of f32 on values of size one. */
#define SUM_ORDER_TOLERANCE 1e-5
/* bf16 keeps 8 bits: 0.4 % a rounding, averaged over a model's gradients. */
#define BF16_TOLERANCE 0.02

static device the_device;
static nrl_ctx *ctx;
static tiny_llama model;

static void ok(nrl_status st)
{
    if (st) fail_msg("%s", nrl_error_text());
}

static int open_all(void **state)
{
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    return ctx_create(&the_device, &ctx) || tiny_open(&model, ctx, NRL_DTYPE_F32) ? -1 : 0;
}

static int close_all(void **state)
{
    (void)state;
    tiny_close(&model);
    ctx_destroy(ctx);
    device_close(&the_device);
    return 0;
}

/* Largest difference, relative to the size of what is expected. */
static double difference(const double *a, const double *b, int64_t n)
{
    double most = 0, size = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        size = fmax(size, fabs(b[i]));
    }
    return most / size;
}

static double norm_difference(const double *a, const double *b, int64_t n)
{
    double d = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(d / size);
}

static void packed_segments_learn_as_separate_ones(void **state)
{
    static const int lengths[] = {5, 2, 9};
    double packed[16], apart[16];
    int64_t n;
    nrl_batch *b = tiny_batch(lengths, 3, 1);
    (void)state;
    tiny_zero_grad(&model);
    ok(tiny_step(&model, b, packed));
    double *grads = tiny_grads(&model, &n);
    tiny_zero_grad(&model);
    for (int s = 0, row = 0; s < 3; s++) {
        nrl_batch *one = tiny_batch(&lengths[s], 1, 1 + (uint64_t)s * 1000);
        ok(tiny_step(&model, one, apart + row));
        row += lengths[s] - 1;
        batch_free(one);
    }
    double *sum = tiny_grads(&model, &n);
    assert_true(difference(packed, apart, 13) < SUM_ORDER_TOLERANCE);
    assert_true(difference(grads, sum, n) < SUM_ORDER_TOLERANCE);
    free(grads);
    free(sum);
    batch_free(b);
}

/* Prompt of 4, continuations of 3 and 5: once shared, once spelled out twice. */
static void fill_shared(nrl_batch *b, const nrl_batch *full)
{
    static const int32_t cu[] = {0, 4, 7, 12}, prefix[] = {-1, 0, 0};
    memcpy(b->cu_seqlens, cu, sizeof cu);
    b->prefix = memcpy(arena_alloc(&b->memory, sizeof prefix), prefix, sizeof prefix);
    b->n_examples = 3;
    for (int32_t s = 0, row = 0; s < 3; s++) {
        b->segment_example[s] = s;
        for (int32_t i = cu[s]; i < cu[s + 1]; i++) {
            int32_t place = s ? i - cu[s] + 4 : i, from = (s == 2 ? 7 : 0) + place;
            b->tokens[i] = full->tokens[from];
            b->positions[i] = place;
            if (!s) continue;
            b->row_token[row] = i == cu[s] ? 3 : i - 1;
            b->row_target[row] = b->tokens[i];
            b->row_segment[row] = s;
            b->row_weight[row++] = 1;
        }
    }
}

static void a_shared_prompt_learns_as_two_whole_texts(void **state)
{
    static const int lengths[] = {7, 9};
    double shared_logps[8], full_logps[14], expected[8];
    int64_t n;
    nrl_batch *full = tiny_batch(lengths, 2, 5), *shared = batch_new(12, 8, 3);
    (void)state;
    for (int i = 0; i < 4; i++)
        full->tokens[7 + i] = full->tokens[i];
    for (int i = 0; i < 14; i++) { /* the prompt is not trained */
        full->row_target[i] = full->tokens[full->row_token[i] + 1];
        full->row_weight[i] = (i < 6 ? i : i - 6) >= 3;
    }
    fill_shared(shared, full);
    ok(batch_check(shared, TINY_V));
    tiny_zero_grad(&model);
    ok(tiny_step(&model, full, full_logps));
    double *two = tiny_grads(&model, &n);
    tiny_zero_grad(&model);
    ok(tiny_step(&model, shared, shared_logps));
    double *one = tiny_grads(&model, &n);
    for (int i = 0; i < 8; i++)
        expected[i] = full_logps[i < 3 ? 3 + i : 6 + i];
    assert_true(difference(shared_logps, expected, 8) < SUM_ORDER_TOLERANCE);
    assert_true(difference(one, two, n) < SUM_ORDER_TOLERANCE);
    free(one);
    free(two);
    batch_free(full);
    batch_free(shared);
}

/* ---- one tape a unit, cut at the carries, with and without making the activations again ---- */

typedef struct {
    tape *tapes[TINY_LAYERS + 1];
    nrl_tensor *carry[TINY_LAYERS + 2]; /* counted: what unit u reads, and the last result */
} cut_run;

static void cut_forward(cut_run *r, bool keep)
{
    for (int u = 0; u <= TINY_LAYERS; u++) {
        nrl_tensor *y;
        ctx_scope_begin(ctx);
        if (r->carry[u]) tensor_set_leaf(r->carry[u]);
        if (keep) ctx_tape_begin(ctx, r->tapes[u]);
        ok(tiny_unit(&model, u, r->carry[u], &y));
        if (keep) ctx_tape_end(ctx);
        r->carry[u + 1] = tensor_retain(y);
        ctx_scope_end(ctx);
    }
}

static void cut_backward(cut_run *r, bool again, nrl_tensor *grad)
{
    for (int u = TINY_LAYERS; u >= 0; u--) {
        nrl_tensor *y = r->carry[u + 1], *dx = NULL;
        ctx_scope_begin(ctx);
        if (again) {
            ctx_tape_begin(ctx, r->tapes[u]);
            ok(tiny_unit(&model, u, r->carry[u], &y));
            ctx_tape_end(ctx);
        }
        ok(tape_backward(ctx, r->tapes[u], &y, &grad, 1, &r->carry[u], &dx, u ? 1 : 0));
        tensor_release(ctx, grad);
        grad = dx;
        ctx_scope_end(ctx);
    }
}

static void cut_step(nrl_batch *b, bool again)
{
    cut_run r = {0};
    tape *head_tape = tape_create();
    nrl_tensor *seed, *dhidden, *hidden;
    head_tensors v;
    head_spec head = tiny_head(&model);
    for (int u = 0; u <= TINY_LAYERS; u++)
        r.tapes[u] = tape_create();
    ok(ctx_set_batch(ctx, b));
    cut_forward(&r, !again);
    hidden = r.carry[TINY_LAYERS + 1];
    ctx_scope_begin(ctx);
    tensor_set_leaf(hidden);
    ctx_tape_begin(ctx, head_tape);
    ok(head_columns(ctx, &head, hidden, HEAD_LOGP, 1, &v));
    ctx_tape_end(ctx);
    ok(tiny_seed(ctx, b, &seed));
    ok(tape_backward(ctx, head_tape, &v.logps, &seed, 1, &hidden, &dhidden, 1));
    ctx_scope_end(ctx);
    cut_backward(&r, again, dhidden);
    for (int u = 0; u <= TINY_LAYERS; u++)
        tape_destroy(ctx, r.tapes[u]);
    for (int u = 0; u <= TINY_LAYERS + 1; u++)
        tensor_release(ctx, r.carry[u]);
    tape_destroy(ctx, head_tape);
    ok(ctx_set_batch(ctx, NULL));
}

static nrl_status broken_gather(void *self, nrl_stream *stream, const nrl_gather_args *a)
{
    (void)self, (void)stream, (void)a;
    return nrl_fail(NRL_ERR_DEVICE, "broken on purpose");
}

static void a_head_that_fails_on_the_way_back_leaves_the_phase_as_it_was(void **state)
{
    static const int lengths[] = {6};
    nrl_batch *b = tiny_batch(lengths, 1, 4);
    nrl_tensor *hidden, *seed;
    head_tensors v;
    head_spec head = tiny_head(&model);
    tape *t = tape_create();
    (void)state;
    ok(ctx_set_batch(ctx, b));
    ctx_profile(ctx, true);
    ctx_profile_step(ctx, true);
    ctx_phase_set(ctx, NRL_PHASE_BACKWARD);
    ctx_scope_begin(ctx);
    ok(tiny_record(&model, t, &hidden));
    ctx_tape_begin(ctx, t);
    ok(head_columns(ctx, &head, hidden, HEAD_LOGP, 1, &v));
    ctx_tape_end(ctx);
    ok(tiny_seed(ctx, b, &seed));
    const nrl_ops kept = the_device.ops;
    the_device.ops.gather = broken_gather;
    assert_int_equal(tape_backward(ctx, t, &v.logps, &seed, 1, NULL, NULL, 0), NRL_ERR_DEVICE);
    the_device.ops = kept;
    assert_int_equal(ctx_phase_set(ctx, NRL_PHASE_HOST), NRL_PHASE_BACKWARD);
    ctx_scope_end(ctx);
    ctx_profile_step(ctx, false);
    ctx_profile(ctx, false);
    tensor_release(ctx, hidden);
    tape_destroy(ctx, t);
    ok(ctx_set_batch(ctx, NULL));
    batch_free(b);
}

static void recompute_gives_the_same_bits(void **state)
{
    static const int lengths[] = {6, 11};
    nrl_batch *b = tiny_batch(lengths, 2, 3);
    ctx_memory before, after;
    int64_t n;
    (void)state;
    rope_forget(ctx); /* a device keeps its angles */
    ctx_memory_use(ctx, &before);
    tiny_zero_grad(&model);
    ok(tiny_step(&model, b, NULL));
    double *whole = tiny_grads(&model, &n);
    tiny_zero_grad(&model);
    cut_step(b, false);
    double *kept = tiny_grads(&model, &n);
    tiny_zero_grad(&model);
    cut_step(b, true);
    double *again = tiny_grads(&model, &n);
    assert_memory_equal(again, kept, (size_t)n * sizeof *kept);
    assert_true(difference(kept, whole, n) < SUM_ORDER_TOLERANCE);
    rope_forget(ctx);
    ctx_memory_use(ctx, &after);
    assert_int_equal(after.live_bytes, before.live_bytes);
    free(whole);
    free(kept);
    free(again);
    batch_free(b);
}

/* ---- head ---- */

static nrl_status fused_loss(void *user, nrl_ctx *c, nrl_batch *chunk, const head_tensors *v, head_tensors *grads)
{
    nrl_tensor *weights, *weighed, *sum, *seed;
    tape *t = tape_create();
    double *total = user, value;
    tensor_set_leaf(v->logps);
    ctx_tape_begin(c, t);
    NRL_TRY(nrl_batch_column(c, chunk, "weights", &weights));
    NRL_TRY(nrl_op_binary(c, NRL_BINARY_MUL, v->logps, weights, &weighed));
    NRL_TRY(nrl_op_sum(c, weighed, &sum));
    ctx_tape_end(c);
    NRL_TRY(nrl_tensor_fetch(c, sum, &value, 1));
    *total -= value;
    NRL_TRY(nrl_tensor_from_host(c, NRL_DTYPE_F32, 1, (int64_t[]){1}, &(float){-1}, &seed));
    NRL_TRY(tape_backward(c, t, &sum, &seed, 1, &v->logps, &grads->logps, 1));
    tape_destroy(c, t);
    return NRL_OK;
}

/* The same loss from the logits z and their log-sum-exp: log p(target) = sum_v onehot_v z_v - lse. */
static nrl_status fused_logits_loss(void *user, nrl_ctx *c, nrl_batch *chunk, const head_tensors *v,
                                    head_tensors *grads)
{
    int64_t n = chunk->n_rows, dims[] = {n, TINY_V};
    float *onehot = calloc((size_t)(n * TINY_V), sizeof *onehot);
    nrl_tensor *mask, *weights, *each, *sum, *seed, *leaves[] = {v->logits, v->lse}, *back[2];
    tape *t = tape_create();
    double *total = user, value;
    for (int64_t i = 0; i < n; i++)
        onehot[i * TINY_V + chunk->row_target[i]] = 1;
    NRL_TRY(nrl_tensor_from_host(c, NRL_DTYPE_F32, 2, dims, onehot, &mask));
    free(onehot);
    tensor_set_leaf(v->logits);
    tensor_set_leaf(v->lse);
    ctx_tape_begin(c, t);
    NRL_TRY(nrl_batch_column(c, chunk, "weights", &weights));
    NRL_TRY(nrl_op_binary(c, NRL_BINARY_MUL, v->logits, mask, &each));
    NRL_TRY(nrl_op_sum_columns(c, each, &each));
    NRL_TRY(nrl_op_binary(c, NRL_BINARY_SUB, each, v->lse, &each));
    NRL_TRY(nrl_op_binary(c, NRL_BINARY_MUL, each, weights, &each));
    NRL_TRY(nrl_op_sum(c, each, &sum));
    ctx_tape_end(c);
    NRL_TRY(nrl_tensor_fetch(c, sum, &value, 1));
    *total -= value;
    NRL_TRY(nrl_tensor_from_host(c, NRL_DTYPE_F32, 1, (int64_t[]){1}, &(float){-1}, &seed));
    NRL_TRY(tape_backward(c, t, &sum, &seed, 1, leaves, back, 2));
    grads->logits = back[0];
    grads->lse = back[1];
    tape_destroy(c, t);
    return NRL_OK;
}

static void fused_step_of(nrl_batch *b, head_spec head, uint32_t want, head_chunk_loss loss_of_chunk, double *loss)
{
    nrl_tensor *hidden, *dhidden;
    tape *t = tape_create();
    *loss = 0;
    ok(ctx_set_batch(ctx, b));
    ok(tiny_record(&model, t, &hidden));
    ok(head_fused(ctx, &head, hidden, want, loss_of_chunk, loss, &dhidden));
    ok(tape_backward(ctx, t, &hidden, &dhidden, 1, NULL, NULL, 0));
    tensor_release(ctx, dhidden);
    tensor_release(ctx, hidden);
    tape_destroy(ctx, t);
    ok(ctx_set_batch(ctx, NULL));
}

static void fused_step(nrl_batch *b, double *loss)
{
    fused_step_of(b, tiny_head(&model), HEAD_LOGP, fused_loss, loss);
}

static void the_fused_head_learns_as_columns_in_any_chunks(void **state)
{
    static const int lengths[] = {6, 11, 7};
    static const int64_t chunks[] = {0, 1, 5, 16, 100};
    double logps[21], expected = 0, loss;
    int64_t n;
    nrl_batch *b = tiny_batch(lengths, 3, 4);
    (void)state;
    for (int i = 0; i < 21; i++)
        b->row_weight[i] = (float)(i % 3) / 2;
    tiny_zero_grad(&model);
    ok(tiny_step(&model, b, logps));
    double *columns = tiny_grads(&model, &n);
    for (int i = 0; i < 21; i++)
        expected -= (double)b->row_weight[i] * logps[i];
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        ctx_settings_of(ctx)->head_chunk_rows = chunks[k];
        tiny_zero_grad(&model);
        fused_step(b, &loss);
        double *fused = tiny_grads(&model, &n);
        assert_true(fabs(loss - expected) < SUM_ORDER_TOLERANCE * expected);
        assert_true(difference(fused, columns, n) < SUM_ORDER_TOLERANCE);
        free(fused);
    }
    ctx_settings_of(ctx)->head_chunk_rows = 0;
    free(columns);
    batch_free(b);
}

static void a_loss_of_logits_learns_as_one_of_log_probs(void **state)
{
    static const int lengths[] = {6, 11, 7};
    static const int64_t chunks[] = {0, 1, 5};
    static const double scales[] = {1, 0.7, 0.7}, caps[] = {0, 0, 2.5};
    nrl_batch *b = tiny_batch(lengths, 3, 4);
    int64_t n;
    (void)state;
    for (int h = 0; h < 3; h++) {
        const head_spec head = {&model.params[TINY_EMBED], NULL, scales[h], caps[h]};
        double expected, loss;
        tiny_zero_grad(&model);
        fused_step_of(b, head, HEAD_LOGP, fused_loss, &expected);
        double *logps = tiny_grads(&model, &n);
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            ctx_settings_of(ctx)->head_chunk_rows = chunks[k];
            tiny_zero_grad(&model);
            fused_step_of(b, head, HEAD_LOGITS, fused_logits_loss, &loss);
            double *logits = tiny_grads(&model, &n);
            assert_true(fabs(loss - expected) < SUM_ORDER_TOLERANCE * expected);
            assert_true(difference(logits, logps, n) < SUM_ORDER_TOLERANCE);
            free(logits);
        }
        ctx_settings_of(ctx)->head_chunk_rows = 0;
        free(logps);
    }
    batch_free(b);
}

static nrl_op_time profile_row(const char *name)
{
    int n;
    nrl_op_time found = {0};
    ok(ctx_profile_read(ctx));
    nrl_op_time *rows = ctx_profile_rows(ctx, 0, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].name, name)) found = rows[i];
    free(rows);
    return found;
}

/* 21 rows in chunks of 5, 5, 5, 5 and 1; those with room are not made again. */
static void kept_logits_spare_products_and_change_no_bit(void **state)
{
    static const int lengths[] = {6, 11, 7};
    static const int64_t rows[] = {0, 4, 5, 12, 20, 21, 1000}, chunks[] = {0, 0, 1, 2, 4, 5, 5};
    double logps[21], *none = NULL;
    int64_t n, products = 0;
    nrl_batch *b = tiny_batch(lengths, 3, 4);
    (void)state;
    ctx_settings_of(ctx)->head_chunk_rows = 5;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        ctx_settings_of(ctx)->head_keep_bytes = rows[k] * TINY_V * (int64_t)sizeof(float);
        ctx_profile(ctx, true);
        tiny_zero_grad(&model);
        ok(tiny_step(&model, b, logps));
        double *grads = tiny_grads(&model, &n);
        if (!none) {
            none = grads;
            products = profile_row("gemm").calls;
            continue;
        }
        assert_memory_equal(grads, none, (size_t)n * sizeof *grads);
        assert_int_equal(profile_row("gemm").calls, products - chunks[k]);
        free(grads);
    }
    ctx_profile(ctx, false);
    ctx_settings_of(ctx)->head_chunk_rows = 0;
    ctx_settings_of(ctx)->head_keep_bytes = 0;
    free(none);
    batch_free(b);
}

static void a_batch_without_scored_rows_learns_nothing(void **state)
{
    static const int lengths[] = {6};
    double loss;
    nrl_batch *b = tiny_batch(lengths, 1, 4);
    (void)state;
    b->n_rows = 0;
    tiny_zero_grad(&model);
    fused_step(b, &loss);
    ok(tiny_step(&model, b, NULL));
    int64_t n;
    double *grads = tiny_grads(&model, &n);
    for (int64_t i = 0; i < TINY_EMBED; i++)
        assert_true(grads[i] == 0);
    assert_true(loss == 0);
    free(grads);
    batch_free(b);
}

/* ---- generation ---- */

static void last_logits(nrl_batch *b, const int32_t *rows, int64_t n, double *out)
{
    nrl_tensor *hidden, *logits;
    head_spec head = tiny_head(&model);
    ok(ctx_set_batch(ctx, b));
    ctx_scope_begin(ctx);
    ok(tiny_forward(&model, &hidden));
    ok(head_logits(ctx, &head, hidden, rows, n, &logits));
    ok(nrl_tensor_fetch(ctx, logits, out, n * TINY_V));
    ctx_scope_end(ctx);
    ok(ctx_set_batch(ctx, NULL));
}

/* Tokens [from, from + n) of every segment of `all` as the next input. */
static nrl_batch *part_of(const nrl_batch *all, const int *from, const int *n)
{
    nrl_batch *b = tiny_batch(n, (int)all->n_segments, 0);
    for (int s = 0, at = 0; s < all->n_segments; s++)
        for (int i = 0; i < n[s]; i++, at++) {
            b->tokens[at] = all->tokens[all->cu_seqlens[s] + from[s] + i];
            b->positions[at] = from[s] + i;
        }
    return b;
}

static void decoding_through_the_cache_equals_a_whole_pass(void **state)
{
    static const int lengths[] = {7, 5};
    int at[] = {0, 0}, step[] = {4, 2};
    double full[12 * TINY_V], now[12 * TINY_V];
    int32_t rows[12];
    kv_cache *cache;
    nrl_batch *all = tiny_batch(lengths, 2, 6);
    (void)state;
    for (int32_t i = 0; i < 12; i++)
        rows[i] = i;
    last_logits(all, rows, 12, full);
    ok(kv_cache_create(ctx, 18, &cache));
    while (at[0] < 7 || at[1] < 5) { /* prefill of 4 and 2, then one a sequence; one ends first */
        nrl_batch *b = part_of(all, at, step);
        kv_cache_use(ctx, cache, (int64_t[]){0, 9}, 2);
        last_logits(b, rows, b->n_tokens, now);
        kv_cache_use(ctx, NULL, NULL, 0);
        for (int s = 0, row = 0; s < 2; s++)
            for (int i = 0; i < step[s]; i++, row++)
                assert_true(difference(now + row * TINY_V, full + (s * 7 + at[s] + i) * TINY_V, TINY_V) <
                            SUM_ORDER_TOLERANCE);
        batch_free(b);
        for (int s = 0; s < 2; s++) {
            at[s] += step[s];
            step[s] = at[s] < lengths[s];
        }
    }
    int beyond[] = {5, 0}, n[] = {1, 0};
    nrl_batch *b = part_of(all, beyond, n);
    nrl_tensor *hidden;
    ok(ctx_set_batch(ctx, b));
    kv_cache_use(ctx, cache, (int64_t[]){0, 3}, 2); /* a position beyond a sequence's rows is refused */
    ctx_scope_begin(ctx);
    assert_int_equal(tiny_forward(&model, &hidden), NRL_ERR_BUG);
    ctx_scope_end(ctx);
    kv_cache_destroy(cache);
    ok(ctx_set_batch(ctx, NULL));
    batch_free(b);
    batch_free(all);
}

/* ---- precision ---- */

static void bf16_stays_near_f32(void **state)
{
    static const int lengths[] = {21, 14, 30};
    double logps[62], exact[62];
    int64_t n;
    tiny_llama low;
    nrl_batch *b = tiny_batch(lengths, 3, 8);
    (void)state;
    tiny_zero_grad(&model);
    ok(tiny_step(&model, b, exact));
    double *grads = tiny_grads(&model, &n);
    ok(tiny_open(&low, ctx, NRL_DTYPE_BF16));
    ok(tiny_step(&low, b, logps));
    double *low_grads = tiny_grads(&low, &n);
    tiny_close(&low);
    double of_logps = norm_difference(logps, exact, 62), of_grads = norm_difference(low_grads, grads, n);
    printf("bf16: log-probs off by %.3g, gradients by %.3g\n", of_logps, of_grads);
    assert_true(of_logps < BF16_TOLERANCE && of_grads < BF16_TOLERANCE);
    free(grads);
    free(low_grads);
    batch_free(b);
}

/* ---- memory ---- */

static void a_repeated_step_asks_the_device_for_nothing(void **state)
{
    static const int lengths[] = {21, 14, 30};
    nrl_batch *b = tiny_batch(lengths, 3, 8);
    ctx_memory before, after;
    double loss;
    (void)state;
    for (int i = 0; i < 3; i++)
        fused_step(b, &loss);
    ctx_memory_use(ctx, &before);
    int64_t allocations = ctx->pool.n_device_allocations;
    for (int i = 0; i < 5; i++)
        fused_step(b, &loss);
    ctx_memory_use(ctx, &after);
    assert_int_equal(ctx->pool.n_device_allocations, allocations);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.reserved_bytes, before.reserved_bytes);
    batch_free(b);
}

static void wandering_lengths_do_not_pile_up_memory(void **state)
{
    uint64_t random = 11;
    double loss;
    ctx_memory m;
    (void)state;
    ctx_trim(ctx);
    ctx_memory_reset_peak(ctx);
    for (int i = 0; i < 60; i++) {
        int lengths[3];
        for (int s = 0; s < 3; s++)
            lengths[s] = 20 + (int)(200 * (1 + test_uniform(&random)));
        nrl_batch *b = tiny_batch(lengths, 3, (uint64_t)i);
        fused_step(b, &loss);
        batch_free(b);
    }
    ctx_memory_use(ctx, &m);
    printf("reserved %.2f MB, peak %.2f MB\n", (double)m.reserved_bytes / 1e6, (double)m.peak_bytes / 1e6);
    assert_true((double)m.reserved_bytes <= 1.25 * (double)m.peak_bytes + (2 << 20)); /* a segment */
    ctx_trim(ctx);
    ctx_memory_use(ctx, &m);
    assert_int_equal(m.reserved_bytes, m.live_bytes);
}

/* A layer keeps for its backward: input and sum [N,D], q and y [N,HK], k and v [N,GK], gate and up
 * [N,F], two rstd and lse [H]. Norms and the gate's product are made again. */
static void a_tape_keeps_only_what_cannot_be_made_again(void **state)
{
    static const int lengths[] = {64, 64};
    nrl_batch *b = tiny_batch(lengths, 2, 8);
    nrl_tensor *hidden;
    tape *t = tape_create();
    (void)state;
    ctx_trim(ctx);
    ok(ctx_set_batch(ctx, b));
    ctx_memory before, after;
    ctx_memory_use(ctx, &before);
    ok(tiny_record(&model, t, &hidden));
    ctx_memory_use(ctx, &after);
    double layer = 2 * TINY_D + 2 * TINY_H * TINY_K + 2 * TINY_G * TINY_K + 2 * TINY_F + 2 + TINY_H;
    double rope = TINY_K, last = TINY_D + 1 + TINY_D; /* the last sum, its rstd, hidden itself */
    double expected = 128 * 4 * (TINY_LAYERS * layer + rope + last);
    double kept = (double)(after.live_bytes - before.live_bytes);
    printf("kept %.0f bytes, expected %.0f\n", kept, expected);
    assert_true(kept >= expected && kept <= 1.125 * expected); /* sizes are rounded up */
    tensor_release(ctx, hidden);
    tape_destroy(ctx, t);
    ok(ctx_set_batch(ctx, NULL));
    batch_free(b);
}

static void a_profile_counts_calls_time_and_flops(void **state)
{
    static const int lengths[] = {21};
    nrl_batch *b = tiny_batch(lengths, 1, 8);
    double loss;
    int n;
    (void)state;
    ctx_profile(ctx, true);
    fused_step(b, &loss);
    const nrl_op_time gemm = profile_row("gemm");
    /* 7 products a layer and the head, each forward once and backward twice */
    assert_int_equal(gemm.calls, 3 * (7 * TINY_LAYERS + 1));
    double layer = TINY_D * TINY_K * (2.0 * TINY_H + 2 * TINY_G) + 3.0 * TINY_D * TINY_F;
    double expected = 6 * (21 * TINY_LAYERS * layer + 20.0 * TINY_D * TINY_V);
    assert_true(fabs(gemm.flops - expected) < 1e-6 * expected);
    assert_true(gemm.seconds > 0);
    ctx_profile(ctx, false);
    assert_null(ctx_profile_rows(ctx, 0, &n));
    assert_int_equal(n, 0);
    batch_free(b);
}

/* A tenth of a second on the host, and a step that is not its own. */
static void a_profile_leaves_operations_out_of_the_hosts_time(void **state)
{
    static const int lengths[] = {21};
    const struct timespec pause = {0, 100000000};
    nrl_batch *b = tiny_batch(lengths, 1, 8);
    double loss, operations = 0;
    int n;
    (void)state;
    ctx_profile(ctx, true);
    double mark = ctx_profile_mark(ctx);
    nanosleep(&pause, NULL);
    fused_step(b, &loss);
    ctx_profile_host(ctx, "host", mark);
    const nrl_op_time host = profile_row("host");
    nrl_op_time *rows = ctx_profile_rows(ctx, 0, &n);
    for (int i = 0; i < n; i++)
        if (!rows[i].on_host) operations += rows[i].seconds;
    free(rows);
    assert_int_equal(host.calls, 1);
    assert_true(host.seconds >= 0.1 && operations > 0);
    ctx_profile(ctx, false);
    batch_free(b);
}

/* A step on a model of its own, whose tables of positions are not made yet. */
static nrl_status step_on_a_new_context(void *user, int64_t n)
{
    static const int lengths[] = {5, 2, 9};
    nrl_ctx *own;
    tiny_llama small;
    double logps[16];
    (void)user;
    ok(ctx_create(&the_device, &own));
    ok(tiny_open(&small, own, NRL_DTYPE_F32));
    nrl_batch *b = tiny_batch(lengths, 3, 1);
    mem_try_fail_after(n);
    nrl_status st = tiny_step(&small, b, logps);
    mem_try_fail_after(-1);
    ok(ctx_set_batch(own, NULL));
    batch_free(b);
    tiny_close(&small);
    ctx_destroy(own);
    return st;
}

static void a_step_without_memory_is_an_error(void **state)
{
    nrl_batch *b;
    (void)state;
    assert_true(test_out_of_memory(step_on_a_new_context, NULL, 64) > 2);
    mem_try_fail_after(0);
    b = batch_new(4, 3, 1);
    mem_try_fail_after(-1);
    assert_null(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_segments_learn_as_separate_ones),
        cmocka_unit_test(a_shared_prompt_learns_as_two_whole_texts),
        cmocka_unit_test(a_head_that_fails_on_the_way_back_leaves_the_phase_as_it_was),
        cmocka_unit_test(recompute_gives_the_same_bits),
        cmocka_unit_test(the_fused_head_learns_as_columns_in_any_chunks),
        cmocka_unit_test(a_loss_of_logits_learns_as_one_of_log_probs),
        cmocka_unit_test(kept_logits_spare_products_and_change_no_bit),
        cmocka_unit_test(a_batch_without_scored_rows_learns_nothing),
        cmocka_unit_test(decoding_through_the_cache_equals_a_whole_pass),
        cmocka_unit_test(bf16_stays_near_f32),
        cmocka_unit_test(a_repeated_step_asks_the_device_for_nothing),
        cmocka_unit_test(wandering_lengths_do_not_pile_up_memory),
        cmocka_unit_test(a_tape_keeps_only_what_cannot_be_made_again),
        cmocka_unit_test(a_profile_counts_calls_time_and_flops),
        cmocka_unit_test(a_profile_leaves_operations_out_of_the_hosts_time),
        cmocka_unit_test(a_step_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
