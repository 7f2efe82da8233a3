/*
 * test_inference.c - nrl/inference.h alone: log-probs compared with those of transformers, a run
 * that agrees with its checkpoint, tokens as they are generated, limits of the choice of a token,
 * models that are exported and imported unchanged, and refused calls.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "inference/choose.h"
#include "support/memory.h"
#include "support/run.h"
#include <math.h>
#include <nrl/inference.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MAX_TOKENS = 512 };

typedef struct {
    int32_t ids[MAX_TOKENS];
    int64_t lengths[8], total;
    size_t n;
} sequences;

static nrl_inference *open_or_fail(const char *path)
{
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    nrl_inference *m;
    if (nrl_inference_open(path, &env, &m)) fail_msg("%s", nrl_error_text());
    return m;
}

static float *logps_of(nrl_inference *m, const sequences *s)
{
    float *out = mem_alloc((size_t)s->total * sizeof *out);
    if (nrl_inference_logps(m, s->ids, s->lengths, s->n, out)) fail_msg("%s", nrl_error_text());
    return out;
}

static sequences golden_sequences(const nrl_node *golden)
{
    sequences s = {.n = nrl_node_size(nrl_node_find(golden, "input_ids"))};
    assert_in_range(s.n, 1, 8);
    for (size_t i = 0; i < s.n; i++) {
        const nrl_node *row = nrl_node_at(nrl_node_find(golden, "input_ids"), i);
        s.lengths[i] = nrl_node_int(nrl_node_at(nrl_node_find(golden, "lengths"), i), 0);
        for (size_t t = 0; t < (size_t)s.lengths[i]; t++)
            s.ids[s.total++] = (int32_t)nrl_node_int(nrl_node_at(row, t), -1);
    }
    return s;
}

static void log_probs_and_logits_are_transformers(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gpt2", "gemma3_text"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        arena a = {0};
        nrl_node *golden;
        const char *dir = arena_printf(&a, "%s/tests/data/models/%s", getenv("NRL_TEST_SOURCE"), names[k]);
        assert_int_equal(json_read_file(&a, arena_printf(&a, "%s/golden.json", dir), 1 << 26, &golden), NRL_OK);
        const sequences s = golden_sequences(golden);
        nrl_inference *m = open_or_fail(dir);
        nrl_inference_info info = {.size = sizeof info};
        nrl_inference_info_fill(m, &info);
        const int64_t vocab = info.vocab_size;
        float *logps = logps_of(m, &s), *logits = mem_alloc((size_t)(s.total * vocab) * sizeof *logits);
        assert_int_equal(nrl_inference_logits(m, s.ids, s.lengths, s.n, logits), NRL_OK);
        int64_t at = 0;
        for (size_t i = 0; i < s.n; i++) {
            const nrl_node *want = nrl_node_at(nrl_node_find(golden, "all_logprobs"), i);
            assert_true(logps[at] == 0);
            for (int64_t t = 1; t < s.lengths[i]; t++) {
                const float *row = logits + (at + t - 1) * vocab;
                double sum = 0, expected = nrl_node_f64(nrl_node_at(want, (size_t)t - 1), NAN);
                for (int64_t v = 0; v < vocab; v++)
                    sum += exp(row[v]);
                assert_true(fabs(logps[at + t] - expected) < 2e-5);
                assert_true(fabs(row[s.ids[at + t]] - log(sum) - expected) < 2e-5);
            }
            at += s.lengths[i];
        }
        free(logps);
        free(logits);
        nrl_inference_close(m);
        arena_free(&a);
    }
}

/* ---- a run, and what is left of it ---- */

static const char config[] = "model: {config: %s, tokenizer: %s/configs/models/tiny-tokenizer}\n"
                             "data: {train: %s/configs/data/chat.jsonl, template: chatml, max_length: 128}\n"
                             "train: {steps: 2, global_batch: 8}\n"
                             "optimizer: {name: adamw, lr: 3e-3}\n"
                             "out: %s/run\n";

static run *train_model(test_place *p, const char *model_path)
{
    const char *source = getenv("NRL_TEST_SOURCE");
    run *r;
    if (test_run_open(p, arena_printf(&p->memory, config, model_path, source, source, p->folder), NULL, &r))
        fail_msg("%s", nrl_error_text());
    if (nrl_run_train(r)) fail_msg("%s", nrl_error_text());
    return r;
}

static run *train(test_place *p)
{
    return train_model(p, arena_printf(&p->memory, "%s/configs/models/tiny.json", getenv("NRL_TEST_SOURCE")));
}

typedef struct {
    buffer text[2];
    int64_t n[2], stop_at; /* 0 = never */
} heard;

static nrl_status hear(void *user, const nrl_sampled_token *t)
{
    heard *h = user;
    assert_true(t->text < 2 && t->id >= 0);
    assert_int_equal(strlen(t->piece), t->piece_size);
    buffer_add(&h->text[t->text], t->piece, t->piece_size);
    if (++h->n[t->text] == h->stop_at) return nrl_fail(NRL_ERR_STOPPED, "enough");
    return NRL_OK;
}

static const char *const prompts[] = {"Hello w\xc3\xb6rld", "What is two plus two?"};

static void tokens_add_up_to_texts(void **state)
{
    test_place *p = *state;
    run *r = train(p);
    nrl_inference *m = open_or_fail(nrl_run_out(r));
    for (int chat = 0; chat < 2; chat++) {
        heard h = {0}, again = {0};
        const nrl_sample_options o = {.size = sizeof o,
                                      .chat = chat,
                                      .max_tokens = 24,
                                      .temperature = 1.5,
                                      .top_p = 0.9,
                                      .seed = 3,
                                      .token = hear,
                                      .token_user = &h};
        nrl_sample_options second = o;
        second.token_user = &again;
        char *texts[2], *others[2];
        int64_t counts[2];
        if (nrl_run_sample(r, prompts, 2, &o, texts, counts)) fail_msg("%s", nrl_error_text());
        if (nrl_inference_sample(m, prompts, 2, &second, others, NULL)) fail_msg("%s", nrl_error_text());
        for (int i = 0; i < 2; i++) {
            assert_int_equal(h.n[i], counts[i]);
            assert_string_equal(h.text[i].text ? h.text[i].text : "", texts[i]);
            assert_string_equal(others[i], texts[i]); /* the checkpoint's weights and template are the run's */
            assert_string_equal(again.text[i].text ? again.text[i].text : "", texts[i]);
            nrl_free(texts[i]);
            nrl_free(others[i]);
            buffer_free(&h.text[i]);
            buffer_free(&again.text[i]);
        }
    }
    heard h = {.stop_at = 3};
    const nrl_sample_options o = {.size = sizeof o, .max_tokens = 24, .top_p = 1, .token = hear, .token_user = &h};
    char *texts[2];
    assert_int_equal(nrl_inference_sample(m, prompts, 2, &o, texts, NULL), NRL_ERR_STOPPED);
    assert_string_equal(nrl_error_text(), "enough");
    assert_null(texts[0]);
    for (int i = 0; i < 2; i++)
        buffer_free(&h.text[i]);
    nrl_inference_close(m);
    nrl_run_close(r);
}

/* ---- texts together ---- */

enum { N_TOGETHER = 9 };

typedef struct {
    int32_t ids[40];
    float logps[40];
    int32_t top[40];
    size_t n;
    uint32_t finish;
} kept_text;

static nrl_status keep(void *user, const nrl_sampled_token *t)
{
    kept_text *k = (kept_text *)user + t->text;
    assert_int_equal(t->n_top, 3);
    assert_true(t->top_logps[0] >= t->top_logps[2] && t->logp <= t->top_logps[0]);
    k->ids[k->n] = t->id;
    k->top[k->n] = t->top_ids[0];
    k->logps[k->n++] = t->logp;
    k->finish = t->finish;
    return NRL_OK;
}

/* The log-probs that the model gives to the tokens of a text. */
static void assert_logps(nrl_inference *m, const char *prompt, const kept_text *k)
{
    nrl_token_ids ids = {0};
    int32_t all[200];
    float logps[200];
    assert_int_equal(
        nrl_tokenizer_encode(nrl_inference_tokenizer(m), NULL, prompt, strlen(prompt), NRL_ENCODE_ADD_SPECIAL, &ids),
        NRL_OK);
    const int32_t eos = nrl_inference_tokenizer(m)->info->eos;
    if (ids.n > 1 && ids.ids[ids.n - 1] == eos) ids.n--; /* a prompt goes on */
    int64_t n = (int64_t)(ids.n + k->n);
    memcpy(all, ids.ids, ids.n * sizeof *all);
    memcpy(all + ids.n, k->ids, k->n * sizeof *all);
    assert_int_equal(nrl_inference_logps(m, all, &n, 1, logps), NRL_OK);
    for (size_t t = 0; t < k->n; t++) /* the sums over the vocabulary have another order */
        if (fabsf(logps[ids.n + t] - k->logps[t]) > 2e-5f)
            fail_msg("%s: token %zu of %zu has %.9g, expected %.9g", prompt, t, k->n, (double)k->logps[t],
                     (double)logps[ids.n + t]);
    nrl_token_ids_free(&ids);
}

/* Prompts of unequal length, some with a common prefix, get the same tokens and the same bits of their log-probs alone,
 * together, in another order, and from what is cached; so do several texts of one prompt. */
static void texts_together_are_those_alone(void **state)
{
    test_place *p = *state;
    static const char *const asked[N_TOGETHER] = {"Hello",
                                                  "One two three four five six seven eight nine ten eleven twelve",
                                                  "a",
                                                  "What is two plus two?",
                                                  "What is two plus three?",
                                                  "What",
                                                  "Hello",
                                                  "zz",
                                                  "The end of a long line that has many more words than others"};
    run *r = train(p);
    nrl_inference *m = open_or_fail(nrl_run_out(r));
    nrl_run_close(r);
    kept_text alone[N_TOGETHER] = {0};
    nrl_sample_options o = {.size = sizeof o, .top_p = 1, .token = keep, .logprobs = true, .top_logprobs = 3};
    char *texts[2 * N_TOGETHER];
    for (int i = 0; i < N_TOGETHER; i++) {
        o.max_tokens = 5 + 3 * i;
        o.token_user = &alone[i];
        if (nrl_inference_sample(m, &asked[i], 1, &o, texts, NULL)) fail_msg("%s", nrl_error_text());
        assert_logps(m, asked[i], &alone[i]);
        nrl_free(texts[0]);
    }
    o.max_tokens = 5;
    for (int pass = 0; pass < 2; pass++) {
        kept_text together[2 * N_TOGETHER] = {0};
        int64_t counts[2 * N_TOGETHER];
        o.n = pass + 1;
        o.token_user = together;
        if (nrl_inference_sample(m, asked, N_TOGETHER, &o, texts, counts)) fail_msg("%s", nrl_error_text());
        for (int i = 0; i < N_TOGETHER * (int)o.n; i++) {
            const kept_text *a = &alone[i / o.n], *b = &together[i];
            assert_int_equal(b->n, counts[i]);
            assert_true(b->finish == (b->n < 5 ? NRL_FINISH_STOP : NRL_FINISH_LENGTH) || b->n == 5);
            assert_memory_equal(a->ids, b->ids, b->n * sizeof *b->ids);
            assert_memory_equal(a->logps, b->logps, b->n * sizeof *b->logps);
            nrl_free(texts[i]);
        }
    }
    nrl_inference_close(m);
}

/* Keys that were computed earlier are seen through windows, past sinks, as those of a whole text are. */
static void windows_and_sinks_hold_for_cached_keys(void **state)
{
    static const char sinks_and_windows[] =
        "{\"model_type\": \"gpt_oss\", \"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 24,"
        " \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8,"
        " \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 4, \"initializer_range\": 0.2,"
        " \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 150000, \"factor\": 32, \"truncate\": false,"
        " \"original_max_position_embeddings\": 64}, \"max_position_embeddings\": 256}";
    test_place *p = *state;
    const char *model_path = arena_printf(&p->memory, "%s/gpt_oss.json", p->folder);
    FILE *f = fopen(model_path, "w");
    assert_non_null(f);
    assert_true(fputs(sinks_and_windows, f) >= 0 && !fclose(f));
    run *r = train_model(p, model_path);
    nrl_inference *m = open_or_fail(nrl_run_out(r));
    nrl_run_close(r);
    for (int i = 0; i < 2; i++) {
        kept_text kept = {0};
        char *text;
        const nrl_sample_options o = {.size = sizeof o,
                                      .top_p = 1,
                                      .max_tokens = 24,
                                      .token = keep,
                                      .token_user = &kept,
                                      .logprobs = true,
                                      .top_logprobs = 3};
        if (nrl_inference_sample(m, &prompts[i], 1, &o, &text, NULL)) fail_msg("%s", nrl_error_text());
        assert_true(kept.n > 8);
        assert_logps(m, prompts[i], &kept);
        nrl_free(text);
    }
    nrl_inference_close(m);
}

/* Requests join and leave a generator; a conversation that goes on computes only what is new. */
static void requests_join_and_leave(void **state)
{
    test_place *p = *state;
    run *r = train(p);
    nrl_inference *m = open_or_fail(nrl_run_out(r));
    nrl_run_close(r);
    nrl_generator *g;
    const nrl_generator_options few = {.size = sizeof few, .max_sequences = 2, .max_cached = 256};
    assert_int_equal(nrl_generator_open(m, &few, &g), NRL_OK);
    kept_text kept[4] = {0};
    uint64_t ids[4];
    bool is_idle = false;
    int64_t n_prompt;
    nrl_sample_options o = {.size = sizeof o, .top_p = 1, .max_tokens = 20, .token = keep, .top_logprobs = 3};
    for (int i = 0; i < 4; i++) {
        const nrl_prompt prompt = {.size = sizeof prompt, .text = prompts[i % 2]};
        o.token_user = &kept[i];
        o.temperature = 2; /* so that no text ends soon */
        o.seed = (uint64_t)i;
        assert_int_equal(nrl_generator_add(g, &prompt, &o, &ids[i], &n_prompt), NRL_OK);
        assert_int_equal(nrl_generator_step(g, &is_idle), NRL_OK);
    }
    nrl_generator_stats stats = {.size = sizeof stats};
    nrl_generator_stats_fill(g, &stats);
    assert_int_equal(stats.n_running, 2); /* of four */
    assert_int_equal(stats.n_waiting, 2);
    nrl_generator_remove(g, ids[0]);
    const size_t n = kept[0].n;
    while (!is_idle)
        assert_int_equal(nrl_generator_step(g, &is_idle), NRL_OK);
    assert_int_equal(kept[0].n, n);
    assert_true(kept[3].n && kept[3].finish != NRL_FINISH_NONE);
    nrl_generator_remove(g, ids[3]); /* has ended: nothing happens */

    /* The ids of the last text and more: all but the last ones are cached. */
    nrl_token_ids all = {0};
    assert_int_equal(nrl_tokenizer_encode(nrl_inference_tokenizer(m), NULL, prompts[1], strlen(prompts[1]),
                                          NRL_ENCODE_ADD_SPECIAL, &all),
                     NRL_OK);
    int32_t longer[300];
    memcpy(longer, all.ids, all.n * sizeof *longer);
    memcpy(longer + all.n, kept[3].ids, kept[3].n * sizeof *longer);
    const nrl_prompt prompt = {.size = sizeof prompt, .ids = longer, .n_ids = all.n + kept[3].n};
    nrl_generator_stats before = stats;
    nrl_generator_stats_fill(g, &before);
    o.token_user = &kept[1];
    kept[1] = (kept_text){0};
    assert_int_equal(nrl_generator_add(g, &prompt, &o, &ids[1], &n_prompt), NRL_OK);
    for (is_idle = false; !is_idle;)
        assert_int_equal(nrl_generator_step(g, &is_idle), NRL_OK);
    nrl_generator_stats_fill(g, &stats);
    assert_int_equal(n_prompt, all.n + kept[3].n);
    assert_int_equal(stats.prompt_tokens_computed - before.prompt_tokens_computed, 1);
    assert_int_equal(stats.prompt_tokens_reused - before.prompt_tokens_reused, n_prompt - 1);
    nrl_token_ids_free(&all);

    const nrl_prompt wrong[] = {{.size = sizeof *wrong},
                                {.size = sizeof *wrong, .ids = (int32_t[]){1 << 20}, .n_ids = 1},
                                {.size = sizeof *wrong, .ids = longer, .n_ids = 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(nrl_generator_add(g, &wrong[i], &o, &ids[0], NULL), NRL_ERR_CONFIG);
    o.top_logprobs = -1;
    assert_int_equal(nrl_generator_add(g, &prompt, &o, &ids[0], NULL), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "top_logprobs -1: expected 0 or more"));
    nrl_generator_close(g);
    nrl_inference_close(m);
}

/* As transformers do, with top_k and without. The likeliest token is the last one. */
static void a_top_p_of_zero_keeps_the_likeliest_token(void **state)
{
    (void)state;
    enum { VOCAB = 6 };
    const float row[VOCAB] = {0, 1, 2, 3, 4, 5};
    chooser *c = chooser_create(VOCAB);
    assert_non_null(c);
    for (int64_t top_k = 0; top_k < 4; top_k += 3)
        for (int64_t t = 0; t < 50; t++) {
            const choose_options o = {.temperature = 100, .top_k = top_k, .seed = 1};
            int32_t id = -1;
            assert_true(chooser_token(c, &o, row, NULL, 0, t, &id));
            assert_int_equal(id, VOCAB - 1);
        }
    chooser_destroy(c);
}

/* A few sequences of ids, of the text of both prompts. */
static sequences encode(const nrl_open_tokenizer *t)
{
    sequences s = {0};
    for (int i = 0; i < 4; i++) {
        nrl_token_ids ids = {0};
        assert_int_equal(nrl_tokenizer_encode(t, NULL, prompts[i % 2], strlen(prompts[i % 2]), 0, &ids), NRL_OK);
        memcpy(s.ids + s.total, ids.ids, ids.n * sizeof *ids.ids);
        s.lengths[s.n++] = (int64_t)ids.n;
        s.total += (int64_t)ids.n;
        nrl_token_ids_free(&ids);
    }
    return s;
}

static void weights_stay_what_they_are(void **state)
{
    test_place *p = *state;
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    const nrl_export_options plain = {.size = sizeof plain};
    run *r = train(p);
    const sequences s = encode(nrl_run_tokenizer(r));
    float *of_run = mem_alloc((size_t)s.total * sizeof *of_run);
    if (nrl_run_logps(r, s.ids, s.lengths, s.n, of_run)) fail_msg("%s", nrl_error_text());
    assert_true(of_run[1] < 0 &&
                fabsf(of_run[1] - of_run[s.lengths[0] + s.lengths[1] + 1]) < 1e-4f); /* the same text */
    const char *out = arena_strdup(&p->memory, nrl_run_out(r)),
               *exported = arena_printf(&p->memory, "%s/model", p->folder),
               *imported = arena_printf(&p->memory, "%s/imported", p->folder);
    nrl_run_close(r);
    if (nrl_export(out, &env, exported, &plain)) fail_msg("%s", nrl_error_text());
    if (nrl_import(exported, &env, imported)) fail_msg("%s", nrl_error_text());
    assert_int_equal(nrl_export(out, &env, exported, &plain), NRL_ERR_CONFIG); /* it is there */
    assert_int_equal(nrl_import(exported, &env, imported), NRL_ERR_CONFIG);
    const char *const paths[] = {out, exported, imported};
    for (int i = 0; i < 3; i++) {
        nrl_inference *m = open_or_fail(paths[i]);
        float *logps = logps_of(m, &s);
        for (int64_t t = 0; t < s.total; t++) /* products add in another order than those of training */
            assert_true(fabsf(logps[t] - of_run[t]) < 1e-5f);
        assert_non_null(nrl_inference_tokenizer(m)); /* it travelled along */
        free(logps);
        nrl_inference_close(m);
    }
    free(of_run);
}

static void a_tokenizer_opens_by_itself(void **state)
{
    test_place *p = *state;
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    const char *path = test_source(p, "configs/models/tiny-tokenizer");
    const nrl_open_tokenizer *t;
    nrl_token_ids ids = {0};
    char *text;
    size_t size;
    if (nrl_tokenizer_open(path, "bpe", &env, &t)) fail_msg("%s", nrl_error_text());
    assert_int_equal(nrl_tokenizer_encode(t, NULL, prompts[0], strlen(prompts[0]), 0, &ids), NRL_OK);
    assert_int_equal(nrl_tokenizer_decode(t, ids.ids, ids.n, false, &text, &size), NRL_OK);
    assert_string_equal(text, prompts[0]);
    assert_int_equal(size, strlen(prompts[0]));
    nrl_free(text);
    nrl_token_ids_free(&ids);
    assert_int_equal(nrl_tokenizer_decode(t, (int32_t[]){t->info->vocab_size}, 1, false, &text, &size), NRL_ERR_DATA);
    nrl_tokenizer_close(t);
    assert_int_equal(nrl_tokenizer_open(p->folder, NULL, &env, &t), NRL_ERR_DATA);
    assert_null(t);
    nrl_tokenizer_close(NULL);
}

static void what_cannot_be_is_refused(void **state)
{
    test_place *p = *state;
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    const nrl_sample_options o = {.size = sizeof o, .max_tokens = 1, .top_p = 1};
    nrl_inference *m;
    float one[4];
    char *text;
    assert_int_equal(nrl_inference_open(arena_printf(&p->memory, "%s/nowhere", p->folder), &env, &m), NRL_ERR_CONFIG);
    assert_null(m);
    m = open_or_fail(test_source(p, "tests/data/models/llama"));
    assert_int_equal(nrl_inference_logps(m, (int32_t[]){1, -1}, (int64_t[]){2}, 1, one), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "token 2 of sequence 1 is -1, expected 0 to 95"));
    assert_int_equal(nrl_inference_logps(m, (int32_t[]){1}, (int64_t[]){1, 0}, 2, one), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "sequence 2 has 0 tokens"));
    assert_int_equal(nrl_inference_logps(m, (int32_t[]){1}, (int64_t[]){1}, 1, one), NRL_OK);
    assert_true(one[0] == 0);
    assert_int_equal(nrl_inference_sample(m, prompts, 1, &o, &text, NULL), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "no tokenizer was found beside the model\nhint: put the tokenizer.json"));
    assert_int_equal(nrl_inference_set_template(m, "chatml"), NRL_ERR_CONFIG);
    nrl_inference_close(m);
}

/* ---- without memory ---- */

typedef struct {
    nrl_inference *m;
    const char *path, *out;
} starved;

static nrl_status open_model(void *user, int64_t n)
{
    const starved *s = user;
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    nrl_inference *m;
    mem_try_fail_after(n);
    NRL_TRY(nrl_inference_open(s->path, &env, &m));
    nrl_inference_close(m);
    return NRL_OK;
}

static nrl_status sample_both(void *user, int64_t n)
{
    const starved *s = user;
    heard h = {0};
    const nrl_sample_options o = {
        .size = sizeof o, .max_tokens = 4, .temperature = 1, .top_p = 0.9, .token = hear, .token_user = &h};
    char *texts[2];
    mem_try_fail_after(n);
    nrl_status st = nrl_inference_sample(s->m, prompts, 2, &o, texts, NULL);
    mem_try_fail_after(-1);
    for (int i = 0; i < 2; i++) {
        if (st == NRL_OK) free(texts[i]);
        buffer_free(&h.text[i]);
    }
    return st;
}

static nrl_status compute_logps(void *user, int64_t n)
{
    const starved *s = user;
    const int32_t ids[] = {5, 6, 7, 8, 9};
    const int64_t lengths[] = {3, 2};
    float logps[5], *logits = malloc(5 * 4096 * sizeof *logits);
    mem_try_fail_after(n);
    nrl_status st = nrl_inference_logps(s->m, ids, lengths, 2, logps);
    if (st == NRL_OK) st = nrl_inference_logits(s->m, ids, lengths, 2, logits);
    free(logits);
    return st;
}

static nrl_status export_model(void *user, int64_t n)
{
    const starved *s = user;
    const nrl_environment env = {.size = sizeof env, .plugin_path = getenv("NRL_PLUGIN_PATH")};
    const nrl_export_options o = {.size = sizeof o, .overwrite = true};
    mem_try_fail_after(n);
    return nrl_export(s->path, &env, s->out, &o);
}

static void without_memory_each_call_is_an_error_and_the_next_one_works(void **state)
{
    test_place *p = *state;
    run *r = train(p);
    starved s = {.path = arena_printf(&p->memory, "%s/model", nrl_run_out(r)),
                 .out = arena_printf(&p->memory, "%s/exported", p->folder)};
    nrl_run_close(r);
    assert_true(test_out_of_memory(open_model, &s, 64) > 3);
    s.m = open_or_fail(s.path);
    assert_true(test_out_of_memory(sample_both, &s, 64) > 3);
    assert_true(test_out_of_memory(compute_logps, &s, 64) > 2);
    assert_true(test_out_of_memory(export_model, &s, 64) > 1);
    nrl_inference_close(s.m);
}

static int make(void **state)
{
    test_place *p = mem_alloc(sizeof *p);
    test_place_make(p);
    *state = p;
    return 0;
}

static int discard(void **state)
{
    test_place_remove(*state);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probs_and_logits_are_transformers),
        cmocka_unit_test_setup_teardown(tokens_add_up_to_texts, make, discard),
        cmocka_unit_test_setup_teardown(texts_together_are_those_alone, make, discard),
        cmocka_unit_test_setup_teardown(windows_and_sinks_hold_for_cached_keys, make, discard),
        cmocka_unit_test_setup_teardown(requests_join_and_leave, make, discard),
        cmocka_unit_test(a_top_p_of_zero_keeps_the_likeliest_token),
        cmocka_unit_test_setup_teardown(weights_stay_what_they_are, make, discard),
        cmocka_unit_test_setup_teardown(a_tokenizer_opens_by_itself, make, discard),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, make, discard),
        cmocka_unit_test_setup_teardown(without_memory_each_call_is_an_error_and_the_next_one_works, make, discard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
