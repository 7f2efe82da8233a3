/*
 * test_updates.c - updates of what train.offload.optimizer keeps on the host, over a driver whose copies are executed
 * late: the bits are those of the cpu backend for the same gradients, for each encoding of masters and gradients and
 * for states of blocks; how many bytes of a parameter cross the bus; failing calls, after which nothing is left behind.
 */
#include "optim/updates.h"
#include "support/backend.h"
#include "support/options.h"
#include "tensor/param.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "fake_driver.h"

enum { N_PARAMS = 7, STEPS = 2, LARGE = (1 << 20) + 4321 };

/* MASTER_THERE: on the GPU, as shards of a strategy are. */
typedef enum { F32_WEIGHT, F32_MASTER, MASTER_THERE, SPLIT16 } master_kind;

/* One of the two: tensors of the cpu, or of the GPU with states on the host. */
typedef struct {
    arena memory;
    const nrl_optimizer *table;
    void *self;
    device device;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS], *list[N_PARAMS];
    nrl_part parts[N_PARAMS];
    model m;
    update_plan updates;
    nrl_slice *slices;
    int64_t n_slices;
} side;

const nrl_plugin *nrl_plugin_entry(void); /* of the cuda backend, which is linked */

static plugin_host *plugins;
static nrl_backend cpu;
static void *cpu_options;

static nrl_tensor *new_tensor(side *s, nrl_dtype dtype, int64_t n, bool leaves)
{
    nrl_tensor *t;
    nrl_status st = leaves ? tensor_offloaded(s->ctx, dtype, n, dtype == NRL_DTYPE_F32, &t)
                           : tensor_persistent(s->ctx, dtype, 1, &n, dtype == NRL_DTYPE_F32, &t);
    assert_int_equal(st, NRL_OK);
    return t;
}

/* Numbers of size one in the type of t. */
static void write_numbers(side *s, nrl_tensor *t, uint64_t seed)
{
    const int64_t n = nrl_tensor_numel(t);
    const bool is_half = nrl_dtype_size(nrl_tensor_dtype(t)) == sizeof(uint16_t);
    float *values = malloc((size_t)n * sizeof *values);
    uint16_t *halves = malloc((size_t)n * sizeof *halves);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        values[i] = (float)test_uniform(&seed);
        memcpy(&bits, &values[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    assert_int_equal(tensor_write(s->ctx, t, is_half ? (const void *)halves : values), NRL_OK);
    free(values);
    free(halves);
}

static void open_side(side *s, const char *optimizer, const char *yaml, master_kind kind, nrl_dtype gradients,
                      bool on_gpu)
{
    const void *table;
    void *options;
    *s = (side){.m = {.params = s->list, .n_params = N_PARAMS}};
    if (on_gpu) {
        const nrl_plugin *p = nrl_plugin_entry();
        const nrl_backend *cuda = (const nrl_backend *)(const void *)p;
        void *cuda_options = calloc(1, p->options_size + 1);
        const option_part part = {p->options, p->n_options, sizeof(nrl_option), cuda_options};
        config_problems problems = {0};
        options_fill(&s->memory, &problems, "backend", node_new(&s->memory, NRL_NODE_MAP), &part, 1);
        assert_int_equal(device_open(cuda, cuda_options, 0, &s->device), NRL_OK);
        free(cuda_options);
    } else {
        assert_int_equal(device_open(&cpu, cpu_options, 0, &s->device), NRL_OK);
    }
    assert_int_equal(ctx_create(&s->device, &s->ctx), NRL_OK);
    if (on_gpu) assert_int_equal(ctx_offload_open(s->ctx, CTX_OFFLOAD_OPTIMIZER, NULL), NRL_OK);
    assert_int_equal(
        test_options(plugins, &s->memory, NRL_KIND_OPTIMIZER, "optimizer", optimizer, yaml, &table, &options), NRL_OK);
    s->table = table;
    s->self = options;
    if (s->table->create) assert_int_equal(s->table->create(options, &s->self), NRL_OK);
    for (int i = 0; i < N_PARAMS; i++) {
        nrl_param *p = s->list[i] = &s->params[i];
        param_init(p, &s->parts[i], arena_printf(&s->memory, "p%d", i), 2, (int64_t[]){1, i == 2 ? LARGE : 300 + i});
        p->trained = p->decay = true;
        nrl_param_bind(p, NRL_SLOT_GRAD, new_tensor(s, gradients, p->numel, false));
        nrl_param_bind(p, NRL_SLOT_WEIGHT,
                       new_tensor(s, kind == F32_WEIGHT ? NRL_DTYPE_F32 : NRL_DTYPE_BF16, p->numel, false));
        write_numbers(s, p->slots[NRL_SLOT_WEIGHT], (uint64_t)i);
        if (kind == SPLIT16) {
            nrl_param_bind(p, NRL_SLOT_HI16, p->slots[NRL_SLOT_WEIGHT]);
            nrl_param_bind(p, NRL_SLOT_LO16, new_tensor(s, NRL_DTYPE_U16, p->numel, true));
            write_numbers(s, p->slots[NRL_SLOT_LO16], (uint64_t)(10 + i));
        } else if (kind != F32_WEIGHT) {
            nrl_param_bind(p, NRL_SLOT_MASTER, new_tensor(s, NRL_DTYPE_F32, p->numel, kind == F32_MASTER));
            write_numbers(s, p->slots[NRL_SLOT_MASTER], (uint64_t)i);
        }
    }
    assert_int_equal(updates_declare(s->table, s->self, &s->m, &s->updates), NRL_OK);
    for (int i = 0; i < N_PARAMS; i++)
        for (uint32_t k = 0; k < s->updates.n_states; k++)
            nrl_param_bind(s->list[i], (nrl_slot)(NRL_SLOT_STATE0 + k),
                           new_tensor(s, NRL_DTYPE_F32, s->list[i]->numel, true));
    updates_place(&s->updates, NULL);
    assert_int_equal(updates_bind(&s->updates, s->ctx), NRL_OK);
    assert_int_equal(slices_build(&s->m, NULL, s->updates.n_states, &s->memory, &s->slices, &s->n_slices), NRL_OK);
}

static void close_side(side *s)
{
    update_host_close(s->updates.host);
    updates_unbind(&s->updates, s->ctx);
    updates_close(&s->updates);
    for (int i = 0; i < N_PARAMS; i++) {
        if (s->params[i].slots[NRL_SLOT_HI16]) s->params[i].slots[NRL_SLOT_HI16] = NULL; /* WEIGHT */
        for (int slot = 0; slot < NRL_SLOT_COUNT; slot++)
            tensor_release(s->ctx, s->params[i].slots[slot]);
    }
    if (s->table->create) s->table->destroy(s->self);
    ctx_destroy(s->ctx);
    device_close(&s->device);
    arena_free(&s->memory);
}

static nrl_status one_step(side *s, int64_t step)
{
    const nrl_step_params params = {.size = sizeof params,
                                    .step = step,
                                    .lr = 1e-2,
                                    .grad_scale = 0.25,
                                    .slice_size = sizeof(nrl_slice),
                                    .grad_norm = 4};
    for (int i = 0; i < N_PARAMS; i++)
        write_numbers(s, s->params[i].slots[NRL_SLOT_GRAD], (uint64_t)(100 * step + i));
    fake.copied_bytes = 0;
    return updates_step(&s->updates, s->ctx, s->slices, s->n_slices, &params);
}

static void compare(side *a, nrl_tensor *x, side *b, nrl_tensor *y, const char *what, int param)
{
    if (!x && !y) return;
    const size_t bytes = (size_t)nrl_tensor_numel(x) * nrl_dtype_size(nrl_tensor_dtype(x));
    char *of_x = malloc(bytes), *of_y = malloc(bytes);
    assert_int_equal(tensor_read(a->ctx, x, of_x), NRL_OK);
    assert_int_equal(tensor_read(b->ctx, y, of_y), NRL_OK);
    if (memcmp(of_x, of_y, bytes)) fail_msg("%s of parameter %d differ", what, param);
    free(of_x);
    free(of_y);
}

/* The same updates on both; `bytes` of each element cross the bus. */
static void check(const char *optimizer, const char *yaml, master_kind kind, nrl_dtype gradients, int bytes)
{
    static side on_cpu, on_gpu;
    int64_t elements = 0;
    fake_reset();
    fake.late = true;
    open_side(&on_cpu, optimizer, yaml, kind, gradients, false);
    open_side(&on_gpu, optimizer, yaml, kind, gradients, true);
    assert_int_equal(update_host_open(&on_gpu.device, &cpu, cpu_options, &on_gpu.updates.host), NRL_OK);
    for (int64_t step = 1; step <= STEPS; step++) {
        assert_int_equal(one_step(&on_cpu, step), NRL_OK);
        assert_int_equal(one_step(&on_gpu, step), NRL_OK);
    }
    for (int i = 0; i < N_PARAMS; i++)
        elements += on_gpu.params[i].numel;
    print_message("%s, masters %d, gradients of %zu bytes: %.2f bytes of a parameter cross the bus\n", optimizer,
                  (int)kind, nrl_dtype_size(gradients), (double)fake.copied_bytes / (double)elements);
    assert_int_equal(fake.copied_bytes, bytes * elements);
    for (int i = 0; i < N_PARAMS; i++) {
        for (int slot = 0; slot < NRL_SLOT_COUNT; slot++)
            compare(&on_cpu, on_cpu.params[i].slots[slot], &on_gpu, on_gpu.params[i].slots[slot], "slots", i);
        for (int k = 0; !on_cpu.updates.is_plain && k < NRL_MAX_STATES; k++)
            compare(&on_cpu, on_cpu.updates.units[i].states[k], &on_gpu, on_gpu.updates.units[i].states[k], "states",
                    i);
    }
    close_side(&on_cpu);
    close_side(&on_gpu);
    assert_int_equal(fake.live_host_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
}

static void updates_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    check("adamw", "{weight_decay: 0.1}", F32_MASTER, NRL_DTYPE_F32, 4 + 2);
    check("adamw", "{weight_decay: 0.1}", F32_MASTER, NRL_DTYPE_BF16, 2 + 2);
    check("adamw", "", F32_WEIGHT, NRL_DTYPE_F32, 4 + 4 + 4);
    check("adamw", "", MASTER_THERE, NRL_DTYPE_F32, 4 + 4 + 4 + 2);
    check("adamw", "", SPLIT16, NRL_DTYPE_F32, 4 + 2 + 2);
    check("adamw", "", SPLIT16, NRL_DTYPE_BF16, 2 + 2 + 2);
    check("lion", "", F32_MASTER, NRL_DTYPE_BF16, 2 + 2); /* works on f32 copies */
    check("sgd", "", SPLIT16, NRL_DTYPE_F32, 4 + 2 + 2);
    check("adamw8bit", "", F32_MASTER, NRL_DTYPE_F32, 4 + 2);
}

static void a_call_that_fails_is_an_error(void **state)
{
    static const char *const calls[] = {"event_create", "event_record", "stream_fence", "event_wait", "copy"};
    static side s;
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int at = 1; at < 12; at += 5) {
            fake_reset();
            open_side(&s, "adamw", "", F32_WEIGHT, NRL_DTYPE_F32, true);
            assert_int_equal(update_host_open(&s.device, &cpu, cpu_options, &s.updates.host), NRL_OK);
            if (one_step(&s, 1) != NRL_OK) fail_msg("%s", nrl_error_text());
            for (int k = 0; k < N_PARAMS; k++)
                write_numbers(&s, s.params[k].slots[NRL_SLOT_GRAD], (uint64_t)k);
            fake.fail_call = calls[i];
            fake.fail_at = at;
            fake.fail_code = 700;
            const nrl_step_params params = {.size = sizeof params, .step = 2, .slice_size = sizeof(nrl_slice)};
            const nrl_status st = updates_step(&s.updates, s.ctx, s.slices, s.n_slices, &params);
            assert_int_equal(st, fake.fail_call ? NRL_OK /* it was not called so often */ : NRL_ERR_DEVICE);
            fake.fail_call = NULL;
            close_side(&s);
            assert_int_equal(fake.live_host_blocks, 0);
            assert_int_equal(fake.live_events, 0);
            assert_int_equal(fake.live_streams, 0);
        }
}

int main(void)
{
    arena memory = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_have_the_bits_of_the_cpu),
        cmocka_unit_test(a_call_that_fails_is_an_error),
    };
    plugins = test_host();
    if (!test_backend_table("cpu", &cpu)) return 77;
    cpu_options = calloc(1, cpu.plugin.options_size + 1);
    if (test_backend_options(&memory, &cpu, cpu_options) != NRL_OK) {
        fprintf(stderr, "%s\n", nrl_error_text());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_host_destroy(plugins);
    free(cpu_options);
    arena_free(&memory);
    return failed;
}
