/*
 * test_memory.c - the n-th allocation while data is read, planned and packed fails, for every n: the error is
 * NRL_ERR_MEMORY, it names the file where there is one, and no token cache is left that a later run would take.
 */
#include "data/data.h"
#include "unit/data/support.h"
#include <dirent.h>

enum { N_ROWS = 40, MOST_ALLOCATIONS = 100000 };

/* Rows of each kind that is encoded in its own way. */
static dataset_options options_of(fixture *f, int kind)
{
    static const char *const rows[] = {
        ("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"q%d\"}]}, "
         "{\"role\": \"assistant\", \"content\": \"answer %d\"}], \"score\": 1}\n"),
        "{\"prompt\": \"question %d\", \"chosen\": \" a%d\", \"rejected\": \" no\", \"score\": 2}\n",
        "{\"instruction\": \"do %d\", \"input\": \"it %d\", \"output\": \"done\", \"label\": true, \"score\": 3}\n",
        "{\"text\": \"a text %d of %d\", \"score\": 4}\n"};
    buffer b = {0};
    for (int i = 0; i < N_ROWS; i++) {
        char row[300];
        snprintf(row, sizeof row, rows[kind], i, i * i);
        buffer_puts(&b, row);
    }
    dataset_options o = support_options(f, "rows.jsonl", b.text);
    buffer_free(&b);
    o.pairs = kind == 1;
    o.labels = o.kl_pairs = kind == 2;
    o.prefix_sharing = o.pairs;
    o.extra = support_json(f, "[\"score\"]");
    o.workers = kind == 0 ? 2 : 1;
    return o;
}

/* What a run does with data, up to the last step of an epoch. */
static nrl_status use_data(const dataset_options *o)
{
    const data_plan_options plan = {
        .global_batch = 6, .micro_batch_tokens = 4096, .group = 2, .shuffle = true, .ranks = 1};
    dataset *d;
    data_plan *p = NULL;
    data_loader *l = NULL;
    data_step step;
    NRL_TRY(dataset_open(o, &d));
    nrl_status st = data_plan_create(d, &plan, &p);
    if (st == NRL_OK) st = data_loader_create(d, p, 1, false, &l);
    for (int64_t s = 0; st == NRL_OK && s < data_plan_steps_per_epoch(p); s++)
        st = data_loader_step(l, s, &step);
    data_loader_destroy(l);
    data_plan_destroy(p);
    dataset_close(d);
    return st;
}

static int n_caches(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, ".tokens") && !strstr(e->d_name, ".lock");
    if (d) closedir(d);
    return n;
}

static void data_without_memory_is_an_error(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        dataset_options o = options_of(*state, kind);
        char *cache = mem_printf("%s/cache-%d", ((const fixture *)*state)->dir, kind);
        nrl_status st = NRL_ERR_MEMORY;
        int64_t n = 0;
        o.cache_dir = cache;
        for (; n < MOST_ALLOCATIONS && st != NRL_OK; n++) {
            mem_try_fail_after(n);
            st = use_data(&o);
            mem_try_fail_after(-1);
            if (st == NRL_OK) break;
            if (st != NRL_ERR_MEMORY) fail_msg("allocation %d: %s", (int)n, nrl_error_text());
            assert_non_null(strstr(nrl_error_text(), "out of memory"));
            assert_true(n_caches(cache) <= 1);
            test_folder_remove(cache); /* the next n begins with the rows again */
        }
        assert_in_range(n, 20, MOST_ALLOCATIONS);
        assert_int_equal(n_caches(cache), 1);
        free(cache);
    }
}

static void a_row_without_memory_is_named(void **state)
{
    dataset_options o = options_of(*state, 3);
    int64_t n = 0;
    nrl_status st;
    for (;; n++) {
        mem_try_fail_after(n);
        st = use_data(&o);
        mem_try_fail_after(-1);
        if (st == NRL_OK || strstr(nrl_error_text(), "rows.jsonl:1: ")) break;
    }
    assert_int_equal(st, NRL_ERR_MEMORY);
}

static void a_failed_build_leaves_no_cache(void **state)
{
    dataset_options o = options_of(*state, 3);
    char *cache = mem_printf("%s/none", ((const fixture *)*state)->dir);
    dataset *d;
    o.cache_dir = cache;
    for (int64_t n = 0;; n++) {
        mem_try_fail_after(n);
        nrl_status st = dataset_open(&o, &d);
        mem_try_fail_after(-1);
        if (st == NRL_OK) break;
        if (strstr(nrl_error_text(), "the lengths of samples")) continue; /* after the cache was finished */
        assert_int_equal(n_caches(cache), 0);
    }
    dataset_close(d);
    free(cache);
}

static void the_first_sample_without_memory_is_not_shown(void **state)
{
    dataset_options o = options_of(*state, 0);
    dataset *d = support_open(&o);
    mem_try_fail_after(0);
    assert_null(dataset_sample_text(d, 0, o.tokenizer));
    mem_try_fail_after(-1);
    dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(data_without_memory_is_an_error, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(a_row_without_memory_is_named, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(a_failed_build_leaves_no_cache, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(the_first_sample_without_memory_is_not_shown, support_setup, support_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
