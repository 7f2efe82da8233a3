/*
 * test_cache.c - the token cache: it is found again, never trusted when damaged, and may be built
 * by several processes at once.
 */
#include "unit/data/support.h"
#include <fcntl.h>
#include <sys/wait.h>

static dataset_options with_cache(fixture *f)
{
    dataset_options o = support_options(f, "data.jsonl", "{\"text\": \"abc\", \"id\": 1}\n{\"text\": \"defg\"}\n");
    o.cache_dir = arena_printf(&f->memory, "%s/some/cache", f->dir);
    return o;
}

/* Path of the only file in the cache folder that ends like this, freed by the caller; NULL = none.
 */
static char *cache_file(fixture *f, const char *end)
{
    char *dir = mem_printf("%s/some/cache", f->dir), *found = NULL;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name), m = strlen(end);
        if (n < m || strcmp(e->d_name + n - m, end)) continue;
        assert_null(found);
        found = mem_printf("%s/%s", dir, e->d_name);
    }
    if (d) closedir(d);
    free(dir);
    return found;
}

static void check_opens(const dataset_options *o, bool from_cache)
{
    dataset *d = support_open(o);
    assert_int_equal(dataset_info(d)->from_cache, from_cache);
    assert_int_equal(dataset_info(d)->n_examples, 2);
    assert_int_equal(dataset_example_tokens(d, 0), 5);
    assert_int_equal(dataset_example_tokens(d, 1), 6);
    assert_string_equal(dataset_info(d)->format, "text");
    ASSERT_OK(dataset_verify(d, 0));
    ASSERT_OK(dataset_verify(d, 1));
    dataset_close(d);
}

static void a_second_run_tokenises_nothing(void **state)
{
    dataset_options o = with_cache(*state);
    check_opens(&o, false);
    check_opens(&o, true);
    char *rest = cache_file(*state, ".lock");
    assert_null(rest);
    rest = cache_file(*state, ".part");
    assert_null(rest);
}

static void info_from_the_cache_are_those_of_the_first_run(void **state)
{
    dataset_options o = with_cache(*state);
    dataset *d = support_open(&o), *again = support_open(&o);
    dataset_report x = *dataset_info(d), y = *dataset_info(again);
    assert_string_equal(x.format, y.format);
    assert_string_equal(dataset_info(d)->hash, dataset_info(again)->hash);
    x.format = y.format = NULL;
    memset(x.extra, 0, sizeof x.extra);
    memset(y.extra, 0, sizeof y.extra);
    x.from_cache = y.from_cache = false;
    assert_memory_equal(&x, &y, sizeof x);
    dataset_close(d);
    dataset_close(again);
}

/* Each change must give another key; the data and its place alone must not. */
static void what_tokens_depend_on_makes_the_key(void **state)
{
    fixture *f = *state;
    dataset_options o = with_cache(f), changed[6];
    for (int i = 0; i < 6; i++)
        changed[i] = o;
    changed[0].max_length = 100;
    changed[1].train_on_all = true;
    changed[2].vocab_size = 1000;
    support_template(&changed[3], "plain");
    changed[4].columns = support_json(f, "{\"text\": \"text\"}");
    changed[5].max_length = 100;
    changed[5].overlong = DATA_OVERLONG_DROP;
    check_opens(&o, false);
    for (int i = 0; i < 6; i++)
        check_opens(&changed[i], false);
    for (int i = 0; i < 6; i++)
        check_opens(&changed[i], true);
    char *copy = support_write(f, "copy.jsonl", "{\"text\": \"abc\", \"id\": 1}\n{\"text\": \"defg\"}\n");
    o.source = node_string(&f->memory, copy, strlen(copy));
    check_opens(&o, true);
    free(copy);
    o = support_options(f, "data.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"defh\"}\n");
    o.cache_dir = changed[0].cache_dir;
    check_opens(&o, false);
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(c ^ 0x10, file);
    fclose(file);
}

static void a_damaged_header_or_index_is_built_again(void **state)
{
    dataset_options o = with_cache(*state);
    const long places[] = {0, 8, 16, 30, 120, 200, -1, -60};
    check_opens(&o, false);
    char *path = cache_file(*state, ".tokens");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(path, places[i]);
        check_opens(&o, false);
        check_opens(&o, true);
    }
    free(path);
}

static void a_cut_cache_is_built_again(void **state)
{
    dataset_options o = with_cache(*state);
    struct stat st;
    check_opens(&o, false);
    char *path = cache_file(*state, ".tokens");
    assert_int_equal(stat(path, &st), 0);
    for (off_t size = 0; size < st.st_size; size += 37) {
        assert_int_equal(truncate(path, size), 0);
        check_opens(&o, false);
    }
    check_opens(&o, true);
    free(path);
}

static void damaged_tokens_are_noticed_where_they_are_used(void **state)
{
    dataset_options o = with_cache(*state);
    check_opens(&o, false);
    char *path = cache_file(*state, ".tokens");
    dataset *d = support_open(&o);
    const int32_t *tokens;
    const uint8_t *trained;
    dataset_segment(d, 1, 0, &tokens, &trained);
    int32_t wanted[2] = {tokens[0], tokens[1]};
    dataset_close(d);
    size_t size;
    char *bytes;
    ASSERT_OK(file_read(path, 1 << 20, &bytes, &size));
    char *at = memmem(bytes, size, wanted, sizeof wanted);
    assert_non_null(at);
    flip(path, at - bytes);
    d = support_open(&o);
    ASSERT_OK(dataset_verify(d, 0));
    ASSERT_FAILS(dataset_verify(d, 1), NRL_ERR_CORRUPT, "data.jsonl:2 are damaged");
    dataset_close(d);
    free(bytes);
    free(path);
}

static void a_failed_build_leaves_nothing(void **state)
{
    dataset_options o = with_cache(*state);
    dataset *d;
    o.vocab_size = 100;
    assert_int_equal(dataset_open(&o, &d), NRL_ERR_DATA);
    assert_null(cache_file(*state, ".tokens"));
    assert_null(cache_file(*state, ".part"));
    assert_null(cache_file(*state, ".lock"));
}

static void what_a_killed_builder_left_is_overwritten(void **state)
{
    fixture *f = *state;
    dataset_options o = with_cache(f);
    check_opens(&o, false);
    char *path = cache_file(f, ".tokens"), *part = mem_printf("%s.part", path);
    assert_int_equal(rename(path, part), 0);
    check_opens(&o, false);
    assert_int_equal(access(part, F_OK), -1);
    free(part);
    free(path);
}

static void a_folder_that_cannot_be_made_is_an_error(void **state)
{
    fixture *f = *state;
    dataset_options o = with_cache(f);
    dataset *d;
    o.cache_dir = arena_printf(&f->memory, "%s/data.jsonl/cache", f->dir);
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "data.cache: cannot create the directory");
}

/* Eight processes at once: all see the same data, and no more than one cache is made. */
static void builders_do_not_disturb_each_other(void **state)
{
    enum { PROCESSES = 8 };
    fixture *f = *state;
    buffer rows = {0};
    for (int i = 0; i < 20000; i++)
        buffer_print(&rows, "{\"text\": \"row number %d\"}\n", i);
    dataset_options o = support_options(f, "data.jsonl", rows.text);
    buffer_free(&rows);
    o.cache_dir = arena_printf(&f->memory, "%s/some/cache", f->dir);
    pid_t child[PROCESSES];
    for (int k = 0; k < PROCESSES; k++) {
        child[k] = fork();
        if (child[k]) continue;
        dataset *d = NULL;
        bool good = dataset_open(&o, &d) == NRL_OK && dataset_info(d)->n_examples == 20000 &&
                    dataset_verify(d, 19999) == NRL_OK;
        _exit(!good ? 9 : dataset_info(d)->from_cache);
    }
    int built = 0;
    for (int k = 0; k < PROCESSES; k++) {
        int status;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        built += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(built, 1);
    assert_null(cache_file(f, ".lock"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_second_run_tokenises_nothing),
        TEST(info_from_the_cache_are_those_of_the_first_run),
        TEST(what_tokens_depend_on_makes_the_key),
        TEST(a_damaged_header_or_index_is_built_again),
        TEST(a_cut_cache_is_built_again),
        TEST(damaged_tokens_are_noticed_where_they_are_used),
        TEST(a_failed_build_leaves_nothing),
        TEST(what_a_killed_builder_left_is_overwritten),
        TEST(a_folder_that_cannot_be_made_is_an_error),
        TEST(builders_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
