/*
 * run.h - runs opened from YAML text in a temporary directory of the test, for tests of core/run.
 */
#ifndef SUPPORT_RUN_H
#define SUPPORT_RUN_H
#include "config/config.h"
#include "run/internal.h"
#include "support/shared.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char folder[256];
    arena memory;
} test_place;

static inline void test_place_make(test_place *p)
{
    *p = (test_place){.folder = "/tmp/nrl-test-XXXXXX"};
    if (!mkdtemp(p->folder)) abort();
}

static inline void test_place_remove(test_place *p)
{
    char command[320];
    snprintf(command, sizeof command, "rm -rf '%s'", p->folder);
    if (system(command)) fprintf(stderr, "left behind: %s\n", p->folder);
    arena_free(&p->memory);
}

static inline const char *test_file(test_place *p, const char *name, const char *text)
{
    const char *path = arena_printf(&p->memory, "%s/%s", p->folder, name);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) abort();
    return path;
}

/* NRL_TEST_CPU, for example "isa=avx2 bf16=widen": options of the cpu backend if the config does
 * not select another. */
static inline void test_run_cpu_options(test_place *p, config_problems *problems, nrl_node *root)
{
    const nrl_node *backend = nrl_node_find(root, "backend"), *name = backend ? nrl_node_find(backend, "name") : NULL;
    const char *settings = getenv("NRL_TEST_CPU"), *word = nrl_node_string(name ? name : backend, "cpu");
    if (strcmp(word, "cpu")) return;
    char *copy = arena_strdup(&p->memory, settings ? settings : ""), *rest = NULL;
    for (char *s = strtok_r(copy, " ", &rest); s; s = strtok_r(NULL, " ", &rest))
        config_override(&p->memory, problems, root, arena_printf(&p->memory, "backend.%s", s));
}

/* Opens a run from YAML text and key=value overrides (NULL-terminated) in the given environment. */
static inline nrl_status test_run_open_in(test_place *p, const nrl_environment *env, const char *yaml,
                                          const char *const *overrides, run **out)
{
    config_problems problems = {0};
    nrl_node *root;
    NRL_TRY(config_read(&p->memory, test_file(p, "config.yaml", yaml), &root));
    for (; overrides && *overrides; overrides++)
        config_override(&p->memory, &problems, root, *overrides);
    test_run_cpu_options(p, &problems, root);
    return run_open(root, &problems, env, out);
}

/* The same with the plugins of the build; quiet. */
static inline nrl_status test_run_open(test_place *p, const char *yaml, const char *const *overrides, run **out)
{
    const char *bin =
        arena_printf(&p->memory, "%s/bin", getenv("NRL_TEST_BUILD")); /* its plugins are the default ones */
    nrl_environment env = {.size = sizeof env, .exe_dir = bin, .plugin_path = getenv("NRL_PLUGIN_PATH"), .quiet = true};
    return test_run_open_in(p, &env, yaml, overrides, out);
}

/* A path relative to the repository or to the shared data (NULL if those are absent). */
static inline const char *test_source(test_place *p, const char *name)
{
    return arena_printf(&p->memory, "%s/%s", getenv("NRL_TEST_SOURCE"), name);
}

/* Rows of random tokens, as pre-tokenized JSONL; lengths from `least` to `most`, the same for the
 * same seed; most <= 1024. */
static inline const char *test_rows(test_place *p, const char *name, int n, int least, int most, int vocab,
                                    unsigned seed)
{
    const char *path = arena_printf(&p->memory, "%s/%s", p->folder, name);
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (int i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        int length = least + (int)((seed >> 16) % (unsigned)(most - least + 1));
        int ids[1024];
        for (int t = 0; t < length; t++) {
            seed = seed * 1103515245u + 12345u;
            ids[t] = 3 + (int)((seed >> 16) % (unsigned)(vocab - 3));
        }
        fputs("{\"input_ids\":[", f);
        for (int t = 0; t < length; t++)
            fprintf(f, "%s%d", t ? "," : "", ids[t]);
        fputs("],\"labels\":[", f);
        for (int t = 0; t < length; t++) /* the prompt, a third of the row, is not trained */
            fprintf(f, "%s%d", t ? "," : "", t <= length / 3 ? -100 : ids[t]);
        fputs("]}\n", f);
    }
    fclose(f);
    return path;
}

static inline void test_write_ids(FILE *f, const char *key, int n, int vocab, unsigned *seed)
{
    fprintf(f, "\"%s\":[", key);
    for (int t = 0; t < n; t++) {
        *seed = *seed * 1103515245u + 12345u;
        fprintf(f, "%s%d", t ? "," : "", 3 + (int)((*seed >> 16) % (unsigned)(vocab - 3)));
    }
    fputc(']', f);
}

/* Pre-tokenized pairs of random tokens: prompts and answers of 2 to `most` tokens each. */
static inline const char *test_pairs(test_place *p, const char *name, int n, int most, int vocab, unsigned seed)
{
    static const char *const keys[] = {"{", "prompt_input_ids", ",", "chosen_input_ids", ",", "rejected_input_ids"};
    const char *path = arena_printf(&p->memory, "%s/%s", p->folder, name);
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 6; k += 2) {
            seed = seed * 1103515245u + 12345u;
            fputs(keys[k], f);
            test_write_ids(f, keys[k + 1], 2 + (int)((seed >> 16) % (unsigned)(most - 1)), vocab, &seed);
        }
        fputs("}\n", f);
    }
    fclose(f);
    return path;
}

#endif
