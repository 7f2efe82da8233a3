/*
 * test_stories.c - a real trained model: log-probs of twenty real stories, the logits of a prompt,
 * and 256 greedy tokens, with and without the key/value cache. Needs the shared directory; skipped
 * without it.
 */
#include "harness.h"
#include "inference/kv_cache.h"
#include "support/shared.h"
#include <math.h>

enum { N_GREEDY = 256, SKIPPED = 77 };

static const char golden_file[] = "data/models/stories260K/golden.json";

/* In nats; fp32 adds up to 4e-7 a token over stories of some 300 tokens. */
static const double token_bound = 2e-5, story_bound = 1e-3, mean_bound = 2e-6;

typedef struct {
    parity p;
    const nrl_node *golden;
} fixture;

static int setup(void **state)
{
    fixture *f = mem_alloc(sizeof *f);
    nrl_node *golden;
    char *path = shared_path(golden_file), *dir = shared_path("data/models/stories260K/hf");
    parity_open(&f->p, dir, "config.json", NRL_DTYPE_F32);
    ASSERT_OK(json_read_file(&f->p.a, path, 1 << 20, &golden));
    f->golden = golden;
    free(path);
    free(dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    parity_close(&f->p);
    free(f);
    return 0;
}

static int32_t *read_ids(const nrl_node *list, int32_t *n)
{
    *n = (int32_t)nrl_node_size(list);
    int32_t *ids = mem_alloc((size_t)*n * sizeof *ids);
    for (int32_t i = 0; i < *n; i++)
        ids[i] = (int32_t)parity_item(list, (size_t)i);
    return ids;
}

static double *logps_of(fixture *f, const int32_t *ids, int32_t n)
{
    nrl_batch *b = parity_batch(1, &ids, &n);
    double *logps = parity_logps(&f->p, b);
    ctx_set_batch(f->p.ctx, NULL);
    batch_free(b);
    return logps;
}

static void twenty_stories_have_the_known_log_probs(void **state)
{
    fixture *f = *state;
    const nrl_node *stories = nrl_node_find(f->golden, "stories");
    double total = 0, n_total = 0, token = 0, story = 0;
    for (size_t s = 0; s < nrl_node_size(stories); s++) {
        const nrl_node *one = nrl_node_at(stories, s), *first = nrl_node_find(one, "first8_logprobs");
        int32_t n;
        int32_t *ids = read_ids(nrl_node_find(one, "ids"), &n);
        double *logps = logps_of(f, ids, n), sum = 0;
        for (int32_t i = 0; i < n - 1; i++)
            sum += logps[i];
        for (size_t i = 0; i < nrl_node_size(first); i++)
            token = fmax(token, fabs(logps[i] - parity_item(first, i)));
        assert_int_equal(n - 1, (int)parity_number(one, "n_pred"));
        story = fmax(story, fabs(sum - parity_number(one, "sum_logprob")));
        total -= sum;
        n_total += n - 1;
        free(ids);
        free(logps);
    }
    double mean = total / n_total, want = parity_number(f->golden, "mean_nll_first_20_stories");
    print_message("%.7f nats a token (%.7f), token %.1e/%g, story %.1e/%g\n", mean, want, token, token_bound, story,
                  story_bound);
    assert_true(fabs(mean - want) < mean_bound && token < token_bound && story < story_bound);
}

static void preference_pairs_have_the_known_log_probs(void **state)
{
    fixture *f = *state;
    static const char *const sides[] = {"chosen", "rejected"};
    const nrl_node *pairs = nrl_node_find(f->golden, "pairs");
    for (size_t i = 0; i < nrl_node_size(pairs); i++)
        for (int k = 0; k < 2; k++) {
            const nrl_node *pair = nrl_node_at(pairs, i);
            arena a = {0};
            int32_t n;
            int32_t *ids = read_ids(nrl_node_find(pair, arena_printf(&a, "%s_ids", sides[k])), &n);
            int32_t start = (int32_t)parity_number(pair, arena_printf(&a, "%s_start", sides[k]));
            double *logps = logps_of(f, ids, n), sum = 0;
            for (int32_t t = start; t < n; t++)
                sum += logps[t - 1];
            assert_true(fabs(sum - parity_number(pair, arena_printf(&a, "%s_sum_logprob", sides[k]))) < 2e-4);
            free(ids);
            free(logps);
            arena_free(&a);
        }
}

static void the_prompt_has_the_known_logits(void **state)
{
    fixture *f = *state;
    const nrl_node *want = nrl_node_find(f->golden, "prompt_logits_last");
    int32_t n;
    int32_t *ids = read_ids(nrl_node_find(f->golden, "prompt_ids"), &n), last = n - 1;
    nrl_batch *b = parity_batch(1, (const int32_t *const *)&ids, &n);
    double *logits = parity_logits(&f->p, b, &last, 1);
    for (size_t v = 0; v < nrl_node_size(want); v++)
        assert_true(fabs(logits[v] - parity_item(want, v)) < 5e-5);
    free(logits);
    free(ids);
    ctx_set_batch(f->p.ctx, NULL);
    batch_free(b);
}

static int32_t largest(const double *x, int64_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The token after ids[0..n): all of them computed, or with a cache the last alone. */
static int32_t next_token(fixture *f, const int32_t *ids, int32_t n, bool cached)
{
    const int32_t *from = cached ? ids + n - 1 : ids;
    int32_t length = cached ? 1 : n, row = length - 1;
    nrl_batch *b = parity_batch(1, &from, &length);
    if (cached) b->positions[0] = n - 1;
    double *logits = parity_logits(&f->p, b, &row, 1);
    int32_t best = largest(logits, f->p.m->info.vocab_size);
    free(logits);
    ctx_set_batch(f->p.ctx, NULL);
    batch_free(b);
    return best;
}

static void check_greedy(fixture *f, bool cached)
{
    const nrl_node *want = nrl_node_find(f->golden, "greedy_from_bos_256_ids");
    int32_t ids[N_GREEDY + 1] = {1};
    for (int32_t n = 1; n <= N_GREEDY; n++) {
        ids[n] = next_token(f, ids, n, cached);
        if (ids[n] != (int32_t)parity_item(want, (size_t)n))
            fail_msg("token %d is %d, expected %d", n, ids[n], (int)parity_item(want, (size_t)n));
    }
}

static void greedy_tokens_are_the_known_ones(void **state)
{
    check_greedy(*state, false);
}

static void greedy_tokens_through_the_cache_are_the_same(void **state)
{
    fixture *f = *state;
    kv_cache *cache;
    ASSERT_OK(kv_cache_create(f->p.ctx, N_GREEDY + 1, &cache));
    kv_cache_use(f->p.ctx, cache, (int64_t[]){0}, 1);
    check_greedy(f, true);
    kv_cache_use(f->p.ctx, NULL, NULL, 0);
    kv_cache_destroy(cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(twenty_stories_have_the_known_log_probs),
        TEST(preference_pairs_have_the_known_log_probs),
        TEST(the_prompt_has_the_known_logits),
        TEST(greedy_tokens_are_the_known_ones),
        TEST(greedy_tokens_through_the_cache_are_the_same),
    };
    char *path = shared_path(golden_file);
    bool there = path != NULL;
    free(path);
    return there ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
