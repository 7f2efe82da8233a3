/*
 * backend.h - a backend and a context for tests that compute: opens
 * $NRL_PLUGIN_PATH/backends/cpu.so directly, so that tests of core/tensor need neither a config nor
 * a plugin host. $NRL_TEST_BACKEND names another file to run the same tests on.
 */
#ifndef SUPPORT_BACKEND_H
#define SUPPORT_BACKEND_H
#include "config/config.h"
#include "config/options.h"
#include "tensor/ctx.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The table as the host passes it on: zero beyond the members that the plugin has. */
static inline bool test_backend_table(const char *name, nrl_backend *fill)
{
    const char *folder = getenv("NRL_PLUGIN_PATH"), *other = getenv("NRL_TEST_BACKEND");
    char path[4096];
    snprintf(path, sizeof path, "%s/backends/%s.so", folder ? folder : ".", name);
    if (other) snprintf(path, sizeof path, "%s", other);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("skipped: %s\n", dlerror());
        return false;
    }
    const nrl_plugin *(*entry)(void);
    *(void **)&entry = dlsym(library, "nrl_plugin_entry");
    if (!entry) {
        printf("skipped: %s has no nrl_plugin_entry\n", path);
        return false;
    }
    const nrl_plugin *p = entry();
    memset(fill, 0, sizeof *fill);
    memcpy(fill, p, p->size < sizeof *fill ? p->size : sizeof *fill);
    return true;
}

/* The defaults of the backend, changed by $NRL_TEST_CPU: "isa=avx2 bf16=widen". */
static inline nrl_status test_backend_options(arena *a, const nrl_backend *table, void *options)
{
    const char *settings = getenv("NRL_TEST_CPU");
    const option_part part = {table->plugin.options, table->plugin.n_options, sizeof(nrl_option), options};
    config_problems problems = {0};
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    char *copy = arena_strdup(a, settings ? settings : ""), *rest = NULL;
    for (char *s = strtok_r(copy, " ", &rest); s; s = strtok_r(NULL, " ", &rest))
        config_override(a, &problems, map, s);
    options_fill(a, &problems, "NRL_TEST_CPU", map, &part, 1);
    return problems_report(&problems);
}

static inline bool test_device_open(device *fill)
{
    nrl_backend table;
    arena memory = {0};
    if (!test_backend_table("cpu", &table)) return false;
    void *options = calloc(1, table.plugin.options_size + 1);
    nrl_status st = test_backend_options(&memory, &table, options);
    if (st == NRL_OK) st = device_open(&table, options, 0, fill);
    free(options);
    arena_free(&memory);
    if (st) printf("skipped: %s\n", nrl_error_text());
    return st == NRL_OK;
}

/* An instance of the cpu backend for one instruction set, the value of its option isa; NULL: this CPU lacks it. */
static inline void *test_open_isa(const nrl_backend *cpu, int64_t isa)
{
    char *options = calloc(1, cpu->plugin.options_size + 1);
    void *self;
    for (uint32_t i = 0; i < cpu->plugin.n_options; i++) {
        const nrl_option *o = &cpu->plugin.options[i];
        if (!strcmp(o->name, "isa")) memcpy(options + o->offset, &isa, sizeof isa);
    }
    nrl_status st = cpu->open(options, 0, &self);
    free(options);
    return st == NRL_OK ? self : NULL;
}

/* Deterministic values in [-1, 1), the same in make_reference.py: x = 6364136223846793005 x +
 * 1442695040888963407 modulo 2^64, the upper 24 bits. */
static inline double test_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / 8388608.0 - 1;
}

#endif
