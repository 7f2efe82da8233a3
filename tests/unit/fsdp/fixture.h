/*
 * fixture.h - the fsdp plugin with options from YAML text, as a run would fill them.
 */
#ifndef FSDP_FIXTURE_H
#define FSDP_FIXTURE_H
#include "config/yaml.h"
#include "fsdp/toy.h"
#include "plugin/host.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct {
    arena memory;
    plugin_host *host;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = *state = calloc(1, sizeof *f);
    f->host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

static inline nrl_status fsdp_options_of(fixture *f, const char *yaml, const nrl_parallel **table, const void **options)
{
    config_problems problems = {0};
    config_component c = {.name = "fsdp", .resolved = node_new(&f->memory, NRL_NODE_MAP)};
    nrl_node *map;
    const plugin *p;
    void *filled;
    NRL_TRY(yaml_parse(&f->memory, "test", yaml, strlen(yaml), &map));
    c.options = map;
    plugin_instance(f->host, &f->memory, &problems, NRL_KIND_PARALLEL, "parallel", &c, NULL, &p, &filled);
    NRL_TRY(problems_report(&problems));
    *table = (const void *)p->table;
    *options = filled;
    return NRL_OK;
}

/* Runs a case on `world` ranks; an error is printed. */
static inline void check(void **state, const char *yaml, int32_t world, toy_case c)
{
    if (!c.compute) c.compute = NRL_DTYPE_F32;
    assert_int_equal(fsdp_options_of(*state, yaml, &c.table, &c.options), NRL_OK);
    if (toy_run(&c, world) != NRL_OK) fail_msg("%s on %d ranks: %s", yaml, world, nrl_error_text());
}

#endif
