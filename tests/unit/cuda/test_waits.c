/*
 * test_waits.c - how often the host waits for the device in a step, how often the device has nothing to do
 * afterwards, and how many kernels are launched: a whole run on the emulated plugin, whose driver counts, compared with
 * the same run on the CPU. More micro-batches or more parameters must not cause more waits.
 */
#include "fake_driver.h"
#include "checkpoint/checkpoint.h"
#include "support/run.h"
#include <dlfcn.h>
#include <math.h>
#include <time.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum {
    WARM = 2, /* steps in which memory is taken, and whose update waits for the host */
    MOST_VALUES = 64
};
/* Of a step after one update, in bf16, sums made in other orders. */
static const double BF16_LOSS = 2e-3;

static test_place place;
static const char *rows, *pairs, *plugins;
static fake_device *counted; /* the plugin's own, not this program's */

static const char *const llama =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 70, \"hidden_size\": 16,"
    " \"intermediate_size\": 32, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    " \"head_dim\": 8, \"hidden_act\": \"silu\", \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-05,"
    " \"rope_theta\": 10000.0, \"initializer_range\": 0.05, \"tie_word_embeddings\": true, \"bos_token_id\": 1,"
    " \"eos_token_id\": 2, \"torch_dtype\": \"float32\"}";

static const char *optimizer = "adamw";

static run *open_run(const char *backend, const char *algorithm, int layers, int micro_batch_tokens, const char *data,
                     const char *const *overrides)
{
    run *r = NULL;
    nrl_environment env = {.size = sizeof env, .plugin_path = plugins, .quiet = true};
    static int n;
    const char *config = test_file(&place, "model.json", arena_printf(&place.memory, llama, layers));
    const char *yaml = arena_printf(&place.memory,
                                    "model: {config: %s}\n"
                                    "data: {train: %s, max_length: 16}\n"
                                    "algorithm: {name: %s}\n"
                                    "train: {steps: 6, global_batch: 4, micro_batch_tokens: %d, precision: bf16}\n"
                                    "optimizer: {name: %s, lr: 1.0e-3}\n"
                                    "schedule: constant\n"
                                    "backend: %s\n"
                                    "checkpoint: {every: 0, save_at_start: false}\n"
                                    "loggers: []\n"
                                    "out: %s/%d\n",
                                    config, data, algorithm, micro_batch_tokens, optimizer, backend, place.folder, n++);
    if (test_run_open_in(&place, &env, yaml, overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

typedef struct {
    int64_t waits, idle, host, copies; /* idle: waits behind which nothing was queued; host: pinned memory requested */
    double loss, launches;
} stats;

/* Of one step in the middle of a run. */
static stats of_a_step(const char *backend, const char *algorithm, int layers, int micro_batch_tokens, const char *data)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    run *r = open_run(backend, algorithm, layers, micro_batch_tokens, data, NULL);
    for (int i = 0; i < WARM; i++)
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    const device *d = &r->session.device;
    nrl_value values[MOST_VALUES];
    size_t n_values = 0;
    stats f = {.waits = -counted->n_waits,
               .idle = -counted->n_idle_waits,
               .host = -counted->n_allocate_host,
               .copies = -counted->n_copies};
    if (d->table.watch_begin) assert_int_equal(d->table.watch_begin(d->self), NRL_OK);
    if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    if (d->table.watch_end) assert_int_equal(d->table.watch_end(d->self, values, MOST_VALUES, &n_values), NRL_OK);
    for (size_t i = 0; i < n_values; i++)
        if (!strcmp(values[i].name, "launches")) f.launches = values[i].value;
    f.loss = e.loss;
    f.waits += counted->n_waits;
    f.idle += counted->n_idle_waits;
    f.host += counted->n_allocate_host;
    f.copies += counted->n_copies;
    nrl_run_close(r);
    return f;
}

static void check(const char *algorithm, const char *data, const stats *expected)
{
    stats one = of_a_step("cuda", algorithm, 1, 200, data), many = of_a_step("cuda", algorithm, 2, 32, data);
    stats cpu = of_a_step("cpu", algorithm, 2, 32, data);
    print_message("%s: %lld waits in a step, %lld of them idle, %lld copies, %g launches; with more micro-batches and "
                  "layers %lld, %lld, %lld, %g\n",
                  algorithm, (long long)one.waits, (long long)one.idle, (long long)one.copies, one.launches,
                  (long long)many.waits, (long long)many.idle, (long long)many.copies, many.launches);
    assert_true(many.copies > one.copies); /* there are more of them */
    assert_int_equal(many.waits, one.waits);
    assert_int_equal(many.idle, one.idle);
    assert_int_equal(one.waits, expected->waits);
    assert_int_equal(one.idle, expected->idle);
    assert_true(one.launches <= expected->launches && many.launches > one.launches);
    assert_int_equal(many.host, 0);
    assert_true(fabs(many.loss - cpu.loss) <= BF16_LOSS * fabs(cpu.loss));
}

static void the_host_waits_once_while_the_device_updates(void **state)
{
    (void)state;
    check("sft", rows, &(stats){.waits = 1, .idle = 0, .launches = 66});
}

static void metrics_and_a_reference_cost_no_wait_a_micro_batch(void **state)
{
    (void)state;
    check("dpo", pairs, &(stats){.waits = 1, .idle = 0, .launches = 157});
}

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Launches and the host's time of a step of a model with so many layers; in the best of some steps, in which kernels do
 * nothing. */
static double host_seconds(int layers, double *launches)
{
    enum { TIMED = 3 };
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    double best = 1;
    *launches = of_a_step("cuda", "sft", layers, 200, rows).launches;
    run *r = open_run("cuda", "sft", layers, 200, rows, (const char *const[]){"train.nan=skip", NULL});
    for (int i = 0; i < WARM + TIMED; i++) {
        counted->no_work = i >= WARM;
        const double began = thread_seconds();
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        if (i >= WARM) best = fmin(best, thread_seconds() - began);
    }
    counted->no_work = false;
    nrl_run_close(r);
    return best;
}

/* A layer has LAYER_LAUNCHES, whatever its width. Seconds are printed, and not compared: they are those of this
 * machine, without the driver. */
static void a_layer_costs_a_fixed_number_of_launches(void **state)
{
    enum { FEW = 2, MANY = 16, LAYER_LAUNCHES = 32 };
    double few, many;
    (void)state;
    const double a = host_seconds(FEW, &few), b = host_seconds(MANY, &many);
    print_message(
        "a step of %d layers: %g launches, %.2f ms of the host; of %d: %g, %.2f ms; %.2f us for each launch\n", FEW,
        few, 1e3 * a, MANY, many, 1e3 * b, 1e6 * (b - a) / (many - few));
    assert_true((many - few) / (MANY - FEW) <= LAYER_LAUNCHES);
}

/* Its two tables of codes are copied in the first step. */
static void moments_of_8_bits_need_no_copies_in_a_step(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 2; layers++) {
        stats plain = of_a_step("cuda", "sft", layers, 200, rows);
        optimizer = "adamw8bit, min_8bit_size: 1";
        stats quantized = of_a_step("cuda", "sft", layers, 200, rows);
        optimizer = "adamw";
        assert_int_equal(quantized.copies, plain.copies);
        assert_true(quantized.launches > plain.launches);
    }
}

/* Waits for the device while the second checkpoint of a run is saved, whose memory is there; *dir: the first one. */
static int64_t waits_of_a_save(int layers, bool is_pinned, const char **dir)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    const char *second;
    run *r = open_run("cuda", "sft", layers, 200, rows, NULL);
    counted->fail_call = is_pinned ? NULL : "allocate_host";
    counted->fail_code = CUDA_NO_MEMORY;
    if (nrl_run_step(r, &e, &done) != NRL_OK || nrl_run_save(r, dir) != NRL_OK) fail_msg("%s", nrl_error_text());
    *dir = arena_strdup(&place.memory, *dir);
    if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    int64_t n = -counted->n_waits;
    if (nrl_run_save(r, &second) != NRL_OK) fail_msg("%s", nrl_error_text());
    n += counted->n_waits;
    counted->fail_call = NULL;
    nrl_run_close(r);
    return n;
}

static void *tensor_of(checkpoint *c, size_t i)
{
    const layout_shard whole = piece_of_whole(checkpoint_tensor_at(c, i)->n_dims, checkpoint_tensor_at(c, i)->dims);
    void *all = malloc((size_t)checkpoint_tensor_bytes(c, i) + 1);
    if (checkpoint_read(c, i, &whole, all) != NRL_OK) fail_msg("%s", nrl_error_text());
    return all;
}

static void same_tensors(const char *dir_a, const char *dir_b)
{
    checkpoint *a, *b;
    if (checkpoint_open(dir_a, &a) != NRL_OK || checkpoint_open(dir_b, &b) != NRL_OK) fail_msg("%s", nrl_error_text());
    assert_int_equal(checkpoint_n_tensors(a), checkpoint_n_tensors(b));
    for (size_t i = 0; i < checkpoint_n_tensors(a); i++) {
        void *x = tensor_of(a, i), *y = tensor_of(b, i);
        assert_memory_equal(x, y, (size_t)checkpoint_tensor_bytes(a, i));
        free(x);
        free(y);
    }
    checkpoint_close(a);
    checkpoint_close(b);
}

static void a_save_waits_once_for_all_that_it_copies(void **state)
{
    const char *one, *many, *plain;
    (void)state;
    counted->late = true;
    assert_int_equal(waits_of_a_save(1, true, &one), 1);
    assert_int_equal(waits_of_a_save(2, true, &many), 1);
    int64_t waits = waits_of_a_save(2, false, &plain); /* tensor by tensor */
    counted->late = false;
    print_message("a save waits once for the device; without pinned memory %lld times\n", (long long)waits);
    assert_true(waits > 20);
    same_tensors(many, plain);
}

/* ---- updates that the device decides ---- */

enum { STEPS = 6 };
typedef struct {
    double loss, norm, scale;
    bool skipped;
    int64_t idle;
} taken;

static nrl_status compare_nothing(trainer *tr)
{
    (void)tr;
    return NRL_OK;
}

static nrl_status compare_no_data(trainer *tr, const data_step *data)
{
    (void)data;
    return compare_nothing(tr);
}

/* Takes all steps of a run; with `checked` the host decides about every update, since it compares ranks before it. */
static void take_steps(const char *precision, const char *scale, bool checked, taken *list)
{
    const char *const overrides[] = {
        arena_printf(&place.memory, "train.precision=%s", precision),
        "optimizer.lr=0.01",
        "optimizer.clip_norm=0.3",
        "train.nan=skip",
        scale,
        NULL,
    };
    static const struct nrl_rank_checks checks = {compare_nothing, compare_no_data, compare_nothing, compare_nothing};
    run *r = open_run("cuda", "sft", 1, 64, rows, overrides);
    if (checked) r->trainer.parts.checks = &checks;
    r->trainer.parts.debug_every = 1;
    for (int i = 0; i < STEPS; i++) {
        nrl_run_event e = {.size = sizeof e};
        bool done = false;
        const int64_t before = counted->n_idle_waits;
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        list[i] = (taken){e.loss, e.grad_norm, r->trainer.loss_scale.scale, e.skipped, counted->n_idle_waits - before};
    }
    nrl_run_close(r);
}

static int compare(const char *precision, const char *scale)
{
    taken ahead[STEPS], host[STEPS];
    int skipped = 0;
    take_steps(precision, scale, false, ahead);
    take_steps(precision, scale, true, host);
    for (int i = 0; i < STEPS; i++) {
        assert_memory_equal(&ahead[i].loss, &host[i].loss, sizeof(double));
        assert_memory_equal(&ahead[i].norm, &host[i].norm, sizeof(double));
        assert_memory_equal(&ahead[i].scale, &host[i].scale, sizeof(double));
        assert_int_equal(ahead[i].skipped, host[i].skipped);
        skipped += ahead[i].skipped;
        print_message("%s, step %d: loss %.9g, norm %.9g, scale %g%s, %lld and %lld idle waits\n", precision, i + 1,
                      ahead[i].loss, ahead[i].norm, ahead[i].scale, ahead[i].skipped ? ", omitted" : "",
                      (long long)ahead[i].idle, (long long)host[i].idle);
        assert_true(host[i].idle > 0);
    }
    assert_int_equal(ahead[STEPS - 1].idle, 0);
    assert_true(ahead[STEPS - 1].loss < ahead[0].loss);
    return skipped;
}

static void a_clipped_step_has_the_bits_of_one_that_the_host_decides(void **state)
{
    (void)state;
    assert_int_equal(compare("bf16", NULL), 0);
}

/* The scale grows into an overflow after some updates, so the device omits one. */
static void a_step_that_overflows_is_omitted_on_the_device(void **state)
{
    (void)state;
    assert_true(compare("fp16", "train.loss_scale={init: 65536, growth: 256, growth_interval: 2}") > 0);
}

static int setup(void **state)
{
    (void)state;
    const char *build = getenv("NRL_TEST_BUILD");
    test_place_make(&place);
    rows = test_rows(&place, "rows.jsonl", 30, 8, 16, 64, 1);
    pairs = test_pairs(&place, "pairs.jsonl", 30, 6, 64, 1);
    plugins = arena_printf(&place.memory, "%s/tests/emulated:%s", build, getenv("NRL_PLUGIN_PATH"));
    void *library = dlopen(arena_printf(&place.memory, "%s/tests/emulated/backends/cuda.so", build), RTLD_NOW);
    counted = library ? dlsym(library, "fake") : NULL;
    return counted ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    test_place_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_waits_once_while_the_device_updates),
        cmocka_unit_test(a_save_waits_once_for_all_that_it_copies),
        cmocka_unit_test(metrics_and_a_reference_cost_no_wait_a_micro_batch),
        cmocka_unit_test(a_layer_costs_a_fixed_number_of_launches),
        cmocka_unit_test(moments_of_8_bits_need_no_copies_in_a_step),
        cmocka_unit_test(a_clipped_step_has_the_bits_of_one_that_the_host_decides),
        cmocka_unit_test(a_step_that_overflows_is_omitted_on_the_device),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
