/*
 * test_forged.c - manifests with a valid hash and invalid content: every field is checked for its
 * range and against the others before a run uses it, and none of them ends the process.
 */
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/index.h"
#include "support/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 4 };

static test_place place;
static const char *yaml, *manifest_path;
static char *original;

static nrl_status open_run(const char *resume, run **r)
{
    const char *overrides[] = {resume, NULL};
    *r = NULL;
    return test_run_open(&place, yaml, overrides, r);
}

/* A run of four steps, which saves the last of them and finds its best there. */
static int make_checkpoint(void **state)
{
    run *r;
    size_t size;
    (void)state;
    test_place_make(&place);
    const char *row = "{\"input_ids\": [5, 9, 12, 7, 30], \"labels\": [-100, 9, 12, 7, 30]}\n";
    const char *rows = test_file(&place, "rows.jsonl", arena_printf(&place.memory, "%s%s%s%s", row, row, row, row));
    yaml = arena_printf(&place.memory,
                        "model: {path: %s/tests/data/models/llama}\n"
                        "data: {train: %s, eval: %s, max_length: 32}\n"
                        "train: {steps: %d, global_batch: 2}\n"
                        "optimizer: {name: adamw, lr: 1.0e-3}\n"
                        "eval: {every: %d}\n"
                        "checkpoint: {export: none}\n"
                        "loggers: [jsonl]\n"
                        "out: %s/out\n",
                        getenv("NRL_TEST_SOURCE"), rows, rows, STEPS, STEPS, place.folder);
    assert_int_equal(open_run("resume=never", &r), NRL_OK);
    assert_int_equal(nrl_run_train(r), NRL_OK);
    nrl_run_close(r);
    manifest_path = arena_printf(&place.memory, "%s/out/checkpoints/step-%08d/manifest.json", place.folder, STEPS);
    return file_read(manifest_path, 1 << 20, &original, &size) == NRL_OK ? 0 : -1;
}

static int remove_all(void **state)
{
    (void)state;
    free(original);
    test_place_remove(&place);
    return 0;
}

static void write_manifest(const char *text)
{
    FILE *f = fopen(manifest_path, "w");
    assert_true(f && fputs(text, f) >= 0 && !fclose(f));
}

/* The text with the hash of all that is behind it in its place, as a forger would write it. */
static void write_sealed(const nrl_node *root)
{
    enum { BEGIN = sizeof "{\n \"xxh3\": \"" - 1, AFTER = BEGIN + FORMAT_HASH_DIGITS };
    char digits[FORMAT_HASH_DIGITS + 1], *text = json_write(root, 1);
    index_hash(text + AFTER, strlen(text + AFTER), digits);
    memcpy(text + BEGIN, digits, FORMAT_HASH_DIGITS);
    write_manifest(text);
    free(text);
}

static nrl_node *read_original(arena *a)
{
    nrl_node *root;
    assert_int_equal(json_parse(a, "manifest", original, strlen(original), &root), NRL_OK);
    return root;
}

/* The manifest with the value at `path` ("nodes.progress.step") replaced; value NULL: removed. */
static nrl_status resume_with(const char *path, const char *value)
{
    arena a = {0};
    run *r;
    nrl_node *root = read_original(&a), *at = root, *parent = NULL, *new = NULL;
    char *copy = arena_strdup(&a, path), *rest = NULL, *key = NULL, *last = NULL;
    for (key = strtok_r(copy, ".", &rest); key; key = strtok_r(NULL, ".", &rest)) {
        parent = at;
        at = (nrl_node *)nrl_node_find(at, key);
        last = key;
    }
    if (value) assert_int_equal(json_parse(&a, "value", value, strlen(value), &new), NRL_OK);
    if (new)
        node_set(&a, parent, last, new);
    else
        *parent = *node_without(&a, parent, last);
    write_sealed(root);
    nrl_status st = open_run("resume=auto", &r);
    nrl_run_close(r);
    write_manifest(original);
    arena_free(&a);
    return st;
}

static void values_that_cannot_be_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"step", "-5"},
        {"step", "5"},
        {"step", "4.0"},
        {"step", "9007199254740993"},
        {"step", NULL},
        {"metric", "\"x\""},
        {"metric", "123.5"},
        {"world", "0"},
        {"world", "65537"},
        {"world", "1.0"},
        {"files", "{}"},
        {"files", "[]"},
        {"files", "[7]"},
        {"nodes", "[]"},
        {"nodes", NULL},
        {"nodes.progress", NULL},
        {"nodes.progress", "[]"},
        {"nodes.progress", "{}"},
        {"nodes.progress.step", "-5"},
        {"nodes.progress.step", "3"},
        {"nodes.progress.step", "4.0"},
        {"nodes.progress.step", "4611686018427387904"},
        {"nodes.progress.step", NULL},
        {"nodes.progress.updates", "-1"},
        {"nodes.progress.updates", "5"},
        {"nodes.progress.updates", "\"4\""},
        {"nodes.progress.tokens", "-1"},
        {"nodes.progress.tokens", "9223372036854775807"},
        {"nodes.progress.skipped_in_a_row", "-1"},
        {"nodes.progress.evals_without_best", "-1"},
        {"nodes.progress.best_step", "5"},
        {"nodes.progress.best_step", "0"},
        {"nodes.progress.best", "\"x\""},
        {"nodes.progress.best", "7.25"},
        {"nodes.progress.lr_override", "-2"},
        {"nodes.progress.lr_override", "\"NaN\""},
        {"nodes.config", "[]"},
        {"nodes.config", NULL},
        {"nodes.model", "3"},
        {"nodes.model", NULL},
        {"nodes.fingerprints", "\"x\""},
        {"nodes.fingerprints", NULL},
        {"nodes.time", "\"now\""},
        {"nodes.mesh", "7"},
        {"nodes.nrl", "{}"},
        {"nodes.script", "{}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nrl_status st = resume_with(cases[i][0], cases[i][1]);
        const char *to = cases[i][1] ? cases[i][1] : "nothing";
        if (st != NRL_ERR_CORRUPT) fail_msg("%s = %s: status %d: %s", cases[i][0], to, st, nrl_error_text());
        if (!strstr(nrl_error_text(), "manifest.json") && !strstr(nrl_error_text(), "rank-00000.nrlc"))
            fail_msg("%s = %s names no file: %s", cases[i][0], to, nrl_error_text());
    }
    run *r;
    assert_int_equal(open_run("resume=auto", &r), NRL_OK); /* the original */
    nrl_run_close(r);
}

/* Which a run that starts from it finds among the files that it must not write over. */
static void adapters_that_stand_on_themselves_are_refused(void **state)
{
    arena a = {0};
    run *r;
    nrl_node *root = read_original(&a), *nodes = (nrl_node *)nrl_node_find(root, "nodes"), *base, *adapters;
    const char *dir = arena_printf(&a, "%.*s", (int)(strlen(manifest_path) - strlen("/manifest.json")), manifest_path);
    const char *text = arena_printf(&a, "{\"path\": \"%s\", \"key\": \"x\"}", dir);
    static const char set[] =
        "{\"adapter\": \"lora\", "
        "\"modules\": [{\"module\": \"model.layers.0.self_attn.q_proj\", \"rank\": 4, \"alpha\": 1}]}";
    (void)state;
    assert_int_equal(json_parse(&a, "base", text, strlen(text), &base), NRL_OK);
    assert_int_equal(json_parse(&a, "adapters", set, strlen(set), &adapters), NRL_OK);
    node_set(&a, nodes, "base", base);
    node_set(&a, nodes, "adapters", adapters);
    write_sealed(root);
    const char *overrides[] = {arena_printf(&a, "model.path=%s", dir), arena_printf(&a, "out=%s/next", place.folder),
                               NULL};
    nrl_status st = test_run_open(&place, yaml, overrides, &r);
    if (st != NRL_ERR_CONFIG || !strstr(nrl_error_text(), "were trained on other weights"))
        fail_msg("status %d: %s", st, nrl_error_text());
    write_manifest(original);
    arena_free(&a);
}

/* Every value of the manifest in turn becomes one of these, whatever it was. */
static void try_all(const nrl_node *n, const char *path, size_t *turn)
{
    static const char *const values[] = {"-5", "4611686018427387904", "1e300", "\"x\"", "[]", "{}", "null", NULL};
    if (nrl_node_kind(n) == NRL_NODE_MAP)
        for (size_t i = 0; i < nrl_node_size(n); i++)
            if (strcmp(nrl_node_key(n, i), "xxh3"))
                try_all(nrl_node_at(n, i),
                        arena_printf(&place.memory, "%s%s%s", path, *path ? "." : "", nrl_node_key(n, i)), turn);
    if (!*path || strchr(strrchr(path, '.') ? strrchr(path, '.') : path, ' ')) return;
    size_t which = (*turn)++ % (sizeof values / sizeof *values);
    resume_with(path, values[which]);
}

static void no_value_ends_the_process(void **state)
{
    arena a = {0};
    size_t turn = 0;
    run *r;
    (void)state;
    try_all(read_original(&a), "", &turn);
    assert_true(turn > 100);
    assert_int_equal(open_run("resume=auto", &r), NRL_OK);
    nrl_run_close(r);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(adapters_that_stand_on_themselves_are_refused),
        cmocka_unit_test(no_value_ends_the_process),
    };
    return cmocka_run_group_tests(tests, make_checkpoint, remove_all);
}
