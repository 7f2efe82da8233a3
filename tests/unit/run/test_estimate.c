/*
 * test_estimate.c - the memory of a micro-batch according to `nrl check`, compared with the memory
 * that the run uses; and the estimate for a model far larger than this machine takes a moment.
 */
#include "support/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 4 }; /* those that the estimate looks at */
/* A CPU borrows the batch's own arrays, where a device has copies; the rest is the same. */
static const double NEAR = 0.05;

static test_place place;

static run *open_run(const char *name, const char *algorithm, const char *rows, const char *precision,
                     const char *recompute, bool check)
{
    run *r = NULL;
    const nrl_environment env = {.size = sizeof env,
                                 .plugin_path = getenv("NRL_PLUGIN_PATH"),
                                 .quiet = true,
                                 .no_output = !check,
                                 .check_only = check};
    const char *yaml = arena_printf(&place.memory,
                                    "model: {config: %s}\n"
                                    "data: {train: %s, max_length: 256}\n"
                                    "algorithm: {name: %s}\n"
                                    "train: {steps: %d, global_batch: 8, micro_batch_tokens: 512, precision: %s,"
                                    " activation_checkpointing: %s}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-3}\n"
                                    "schedule: constant\n"
                                    "backend: cpu\n"
                                    "out: %s/out\n",
                                    test_source(&place, arena_printf(&place.memory, "configs/models/%s", name)), rows,
                                    algorithm, STEPS, precision, recompute, place.folder);
    if (test_run_open_in(&place, &env, yaml, NULL, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

static void compare(const char *name, const char *algorithm, const char *rows, const char *precision,
                    const char *recompute)
{
    run *r = open_run(name, algorithm, rows, precision, recompute, true);
    session_estimate(&r->session);
    assert_true(r->session.estimate.known);
    double said = (double)r->session.estimate.bytes;
    nrl_run_close(r);
    r = open_run(name, algorithm, rows, precision, recompute, false);
    ctx_memory memory;
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    for (int i = 0; i < STEPS; i++)
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    ctx_memory_use(r->session.ctx, &memory);
    const storage *held = &r->session.storage;
    double took = (double)((int64_t)memory.peak_bytes - held->work_bytes - held->master_bytes - held->gradient_bytes -
                           held->state_bytes - (r->session.reference ? reference_bytes(r->session.reference) : 0));
    print_message("%s, %s, %s, %s: %.0f bytes said, %.0f taken (%+.1f %%)\n", name, algorithm, precision, recompute,
                  said, took, 100 * (said / took - 1));
    assert_true(said >= took * (1 - NEAR) && said <= took * (1 + NEAR));
    nrl_run_close(r);
}

static void what_a_micro_batch_takes_is_known_beforehand(void **state)
{
    (void)state;
    const char *rows = test_rows(&place, "rows.jsonl", 80, 200, 256, 500, 1);
    const char *pairs = test_pairs(&place, "pairs.jsonl", 80, 80, 500, 1);
    compare("tiny.json", "sft", rows, "fp32", "none");
    compare("tiny.json", "sft", rows, "bf16", "none");
    compare("tiny.json", "sft", rows, "bf16", "all");
    compare("tiny.json", "sft", rows, "bf16", "{ratio: 0.5}");
    compare("tiny.json", "sft", rows, "fp32", "none, offload: {activations: disk}");
    compare("tiny-gpt2.json", "sft", rows, "fp32", "none");
    compare("tiny.json", "dpo", pairs, "bf16", "none");
}

static const char *const llama_8b =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": "
    "4096,"
    " \"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
    " \"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05,"
    " \"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

/* 4096 tokens of ids, as `n` rows. */
static const char *long_rows(int n)
{
    const char *path = arena_printf(&place.memory, "%s/long.jsonl", place.folder);
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            fputs(k ? ",\"labels\":[5" : "{\"input_ids\":[5", f);
            for (int t = 1; t < 4096; t++)
                fprintf(f, ",%d", 3 + (t * 7 + i) % 1000);
            fputs(k ? "]}\n" : "]", f);
        }
    fclose(f);
    return path;
}

/* 141 GB, of which a run holds 0.95 (memory_fraction), and a GiB for CUDA and its libraries. */
static const double H200 = 0.95 * 141e9 - (1 << 30);

static void a_model_of_8b_fits_one_h200_without_recompute(void **state)
{
    run *r = NULL;
    const nrl_environment env = {.size = sizeof env,
                                 .plugin_path = arena_printf(&place.memory, "%s/tests/emulated:%s",
                                                             getenv("NRL_TEST_BUILD"), getenv("NRL_PLUGIN_PATH")),
                                 .quiet = true,
                                 .check_only = true};
    const char *yaml = arena_printf(&place.memory,
                                    "model: {config: %s}\n"
                                    "data: {train: %s, max_length: 4096}\n"
                                    "algorithm: sft\n"
                                    "train: {steps: 1, global_batch: 2, micro_batch_tokens: 4096, precision: bf16,"
                                    " master: split16, gradients: bf16}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-5}\n"
                                    "schedule: constant\n"
                                    "backend: cuda\n"
                                    "out: %s/out\n",
                                    test_file(&place, "8b.json", llama_8b), long_rows(2), place.folder);
    (void)state;
    if (test_run_open_in(&place, &env, yaml, NULL, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    session_estimate(&r->session);
    assert_true(r->session.estimate.known && r->session.estimate.tokens == 4096);
    const storage *s = &r->session.storage;
    double held = (double)(s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes);
    double all = held + (double)r->session.estimate.bytes;
    print_message("8B, 4096 tokens: %.1f GiB held, %.1f a micro-batch\n", held / (1 << 30),
                  (double)r->session.estimate.bytes / (1 << 30));
    assert_true(all < H200 && all > 0.8 * H200);
    nrl_run_close(r);
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    return 0;
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
        cmocka_unit_test(what_a_micro_batch_takes_is_known_beforehand),
        cmocka_unit_test(a_model_of_8b_fits_one_h200_without_recompute),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
