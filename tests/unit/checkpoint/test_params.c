/*
 * test_params.c - parameters and states to a checkpoint and back, bit-exact; and nrl_action_*.
 */
#include "base/json.h"
#include "run/state/params.h"
#include "run/state/state_io.h"
#include "support/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char out[] = "/tmp/nrl-params-XXXXXX";
static const char *const state_names[] = {"exp_avg", "exp_avg_sq"};
static const params_scope states = {.n_states = 2, .state_names = state_names};

/* Three parameters: larger than a chunk with two parts, a frozen bf16 one, a small one. */
enum { N_PARAMS = 3, ROWS = 700, COLS = 2000 };

typedef struct {
    device device;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS], *list[N_PARAMS];
    nrl_part parts[N_PARAMS + 1];
    model m;
    nrl_tensor *made[16];
    int n_made;
} fixture;

static nrl_tensor *new_tensor(fixture *f, nrl_dtype dtype, int n_dims, const int64_t *dims)
{
    nrl_tensor *t;
    assert_int_equal(tensor_persistent(f->ctx, dtype, n_dims, dims, true, &t), NRL_OK);
    return f->made[f->n_made++] = t;
}

static void bind_trained(fixture *f, nrl_param *p)
{
    nrl_param_bind(p, NRL_SLOT_WEIGHT, new_tensor(f, NRL_DTYPE_BF16, p->n_dims, p->dims));
    nrl_param_bind(p, NRL_SLOT_MASTER, new_tensor(f, NRL_DTYPE_F32, p->n_dims, p->dims));
    nrl_param_bind(p, NRL_SLOT_STATE0, new_tensor(f, NRL_DTYPE_F32, p->n_dims, p->dims));
    nrl_param_bind(p, NRL_SLOT_STATE1, new_tensor(f, NRL_DTYPE_F32, p->n_dims, p->dims));
}

static int set_up(void **state)
{
    static const int64_t fused[] = {ROWS, COLS}, frozen[] = {5, 3}, small[] = {11};
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!test_device_open(&f->device) || ctx_create(&f->device, &f->ctx) != NRL_OK) return 1;
    param_init(&f->params[0], &f->parts[0], "qkv", 2, fused);
    f->parts[3] = f->parts[0];
    f->parts[0].name = "q";
    f->parts[0].dims[0] = ROWS - 100;
    param_init(&f->params[1], &f->parts[1], "embed", 2, frozen);
    param_init(&f->params[2], &f->parts[2], "norm", 1, small);
    static nrl_part two[2];
    two[0] = f->parts[0];
    two[1] = f->parts[3];
    two[1].name = "k";
    two[1].dims[0] = 100;
    f->params[0].parts = two;
    f->params[0].n_parts = 2;
    f->params[1].trained = false;
    bind_trained(f, &f->params[0]);
    nrl_param_bind(&f->params[1], NRL_SLOT_WEIGHT, new_tensor(f, NRL_DTYPE_BF16, 2, frozen));
    bind_trained(f, &f->params[2]);
    for (int i = 0; i < N_PARAMS; i++)
        f->list[i] = &f->params[i];
    f->m.params = f->list;
    f->m.n_params = N_PARAMS;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < f->n_made; i++)
        tensor_release(f->ctx, f->made[i]);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    free(f);
    return 0;
}

/* Every byte of every tensor but the bf16 copies of masters: what must survive. */
static void fill(fixture *f, uint64_t seed)
{
    for (int i = 0; i < f->n_made; i++) {
        size_t size = (size_t)nrl_tensor_numel(f->made[i]) * nrl_dtype_size(nrl_tensor_dtype(f->made[i]));
        unsigned char *bytes = malloc(size);
        for (size_t k = 0; k < size; k++)
            bytes[k] = (unsigned char)(test_uniform(&seed) * 128);
        assert_int_equal(tensor_write(f->ctx, f->made[i], bytes), NRL_OK);
        free(bytes);
    }
}

static uint64_t sum_of(fixture *f, const nrl_tensor *t)
{
    size_t size = (size_t)nrl_tensor_numel(t) * nrl_dtype_size(nrl_tensor_dtype(t));
    unsigned char *bytes = malloc(size);
    uint64_t sum = 14695981039346656037u;
    assert_int_equal(tensor_read(f->ctx, t, bytes), NRL_OK);
    for (size_t k = 0; k < size; k++)
        sum = (sum ^ bytes[k]) * 1099511628211u;
    free(bytes);
    return sum;
}

static nrl_status save(fixture *f, char **dir)
{
    checkpoint_writer *w;
    checkpoint_outcome o;
    bool done;
    const checkpoint_writer_options options = {.out = out, .threads = 1};
    assert_int_equal(checkpoint_writer_open(&options, &w), NRL_OK);
    checkpoint_begin(w, 1);
    assert_int_equal(params_save(f->ctx, &f->m, &states, w), NRL_OK);
    checkpoint_submit(w);
    nrl_status st = checkpoint_poll(w, true, &o, &done);
    if (st == NRL_OK) *dir = mem_strdup(o.dir);
    checkpoint_writer_close(w, false);
    return st;
}

static bool is_copy_of_master(const fixture *f, const nrl_tensor *t)
{
    for (int i = 0; i < N_PARAMS; i++)
        if (nrl_param_tensor(&f->params[i], NRL_SLOT_WEIGHT) == t)
            return nrl_param_tensor(&f->params[i], NRL_SLOT_MASTER) != NULL;
    return false;
}

static void every_bit_of_weights_and_states_comes_back(void **state)
{
    fixture *f = *state;
    uint64_t before[16];
    char *dir;
    checkpoint *c;
    assert_int_equal(params_bytes(&f->m, &states), 3 * 4 * (ROWS * COLS + 11) + 2 * 15);
    fill(f, 1);
    for (int i = 0; i < f->n_made; i++)
        before[i] = sum_of(f, f->made[i]);
    assert_int_equal(save(f, &dir), NRL_OK);
    fill(f, 2);
    assert_int_equal(checkpoint_open(dir, &c), NRL_OK);
    assert_int_equal(params_load(f->ctx, &f->m, &states, c), NRL_OK);
    for (int i = 0; i < f->n_made; i++)
        if (!is_copy_of_master(f, f->made[i])) assert_true(sum_of(f, f->made[i]) == before[i]);
    assert_true(checkpoint_find_tensor(c, "q", "weight") >= 0); /* parts' names, not the storage's */
    assert_true(checkpoint_find_tensor(c, "k", "exp_avg_sq") >= 0);
    assert_int_equal(checkpoint_find_tensor(c, "qkv", "weight"), -1);
    assert_int_equal(checkpoint_find_tensor(c, "embed", "exp_avg"), -1);
    checkpoint_close(c);
    free(dir);
}

static void another_model_is_refused(void **state)
{
    fixture *f = *state;
    char *dir;
    checkpoint *c;
    assert_int_equal(save(f, &dir), NRL_OK);
    assert_int_equal(checkpoint_open(dir, &c), NRL_OK);
    f->parts[2].name = "other";
    assert_int_equal(params_load(f->ctx, &f->m, &states, c), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "has no weight of 'other'"));
    f->parts[2].name = "norm";
    f->params[0].parts[0].dims[0]--;
    f->params[0].parts[1].dims[0]++;
    assert_int_equal(params_load(f->ctx, &f->m, &states, c), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "f32 [600,2000], expected f32 [599,2000]"));
    checkpoint_close(c);
    free(dir);
}

/* ---- nrl_action_* ---- */

static nrl_node *through_json(arena *a, const nrl_node *map)
{
    nrl_node *back;
    char *text = json_write(map, 0);
    assert_int_equal(json_parse(a, "state", text, strlen(text), &back), NRL_OK);
    free(text);
    return back;
}

static void run_numbers_come_back_bit_by_bit(void **state)
{
    arena a = {0};
    double f[] = {0.1, -0.0, 5e-324, NAN, INFINITY, -INFINITY, 1e300, 3}, g[8] = {0};
    int64_t i[] = {INT64_MIN, INT64_MAX, 0}, j[3] = {1, 1, 1};
    (void)state;
    nrl_state_io v = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    assert_int_equal(nrl_state_io_f64(&v, "f", f, 8), NRL_OK);
    assert_int_equal(nrl_state_io_i64(&v, "i", i, 3), NRL_OK);
    nrl_state_io back = {.from = through_json(&a, v.into)};
    assert_int_equal(nrl_state_io_f64(&back, "f", g, 8), NRL_OK);
    assert_int_equal(nrl_state_io_i64(&back, "i", j, 3), NRL_OK);
    for (int k = 0; k < 8; k++)
        assert_true(isnan(f[k]) ? isnan(g[k]) : f[k] == g[k] && signbit(f[k]) == signbit(g[k]));
    assert_memory_equal(i, j, sizeof i);
    arena_free(&a);
}

static void state_that_is_missing_or_of_another_size_is_told(void **state)
{
    arena a = {0};
    double one = 1, two[2];
    (void)state;
    nrl_state_io v = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    nrl_state_io_f64(&v, "mean", &one, 1);
    nrl_state_io back = {.from = v.into};
    assert_int_equal(nrl_state_io_f64(&back, "other", &one, 1), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "no state 'other'"));
    assert_int_equal(nrl_state_io_f64(&back, "mean", two, 2), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "has 1 values in the checkpoint, expected 2"));
    back.from = NULL;
    assert_int_equal(nrl_state_io_f64(&back, "mean", &one, 1), NRL_ERR_CORRUPT);
    arena_free(&a);
}

/* Bit for bit on as many ranks; left alone where another number of them saved, or nobody. */
static void a_ranks_tensor_is_run_there_and_back(void **state)
{
    fixture *f = *state;
    nrl_tensor *t = f->made[0];
    checkpoint_writer *w;
    checkpoint_outcome o;
    checkpoint *c;
    bool found = true, done;
    const checkpoint_writer_options options = {.out = out, .threads = 1, .async = true};
    fill(f, 5);
    uint64_t saved = sum_of(f, t);
    assert_int_equal(checkpoint_writer_open(&options, &w), NRL_OK);
    checkpoint_begin(w, 9);
    nrl_state_io v = {.writer = w, .world = 1, .owner = "parallel"};
    assert_int_equal(nrl_state_io_tensor(&v, f->ctx, "residual", t, &found), NRL_OK);
    assert_false(found);
    fill(f, 6); /* what changes after the action is not saved */
    checkpoint_submit(w);
    assert_int_equal(checkpoint_poll(w, true, &o, &done), NRL_OK);
    assert_int_equal(checkpoint_open(o.dir, &c), NRL_OK);
    uint64_t other = sum_of(f, t);
    for (int32_t world = 2; world >= 1; world--) {
        nrl_state_io back = {.saved = c, .world = world, .owner = "parallel", .optional = true};
        int64_t number = 3;
        assert_int_equal(nrl_state_io_tensor(&back, f->ctx, "nothing", t, &found), NRL_OK);
        assert_false(found);
        assert_int_equal(nrl_state_io_tensor(&back, f->ctx, "residual", t, &found), NRL_OK);
        assert_int_equal(found, world == 1);
        assert_true(sum_of(f, t) == (world == 1 ? saved : other));
        assert_int_equal(nrl_state_io_i64(&back, "count", &number, 1), NRL_OK); /* absent, and that is fine */
        assert_int_equal(number, 3);
    }
    checkpoint_close(c);
    checkpoint_writer_close(w, false);
}

int main(void)
{
    device d;
    if (!test_device_open(&d)) return 77;
    device_close(&d);
    if (!mkdtemp(out)) return 1;
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(every_bit_of_weights_and_states_comes_back),
        CASE(another_model_is_refused),
        CASE(a_ranks_tensor_is_run_there_and_back),
        cmocka_unit_test(run_numbers_come_back_bit_by_bit),
        cmocka_unit_test(state_that_is_missing_or_of_another_size_is_told),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command) || failed;
}
