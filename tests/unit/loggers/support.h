/*
 * support.h - a logger plugin opened as a run opens it, with options in YAML.
 */
#ifndef LOGGERS_SUPPORT_H
#define LOGGERS_SUPPORT_H
#include "base/json.h"
#include "config/yaml.h"
#include "plugin/host.h"
#include <math.h>
#include <nrl/logger.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    arena memory;
    plugin_host *host;
    const nrl_logger *table;
    void *options, *self;
} test_logger;

static inline nrl_status test_logger_open(test_logger *l, const char *name, const char *yaml,
                                          const nrl_logger_run *run)
{
    *l = (test_logger){.host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL)};
    config_problems problems = {0};
    config_component c = {.name = name, .resolved = node_new(&l->memory, NRL_NODE_MAP)};
    nrl_node *options = NULL;
    const plugin *p;
    if (*yaml)
        assert_int_equal(yaml_parse(&l->memory, "test", yaml, strlen(yaml), &options), NRL_OK);
    c.options = options;
    plugin_instance(l->host, &l->memory, &problems, NRL_KIND_LOGGER, "loggers", &c, NULL, &p,
                    &l->options);
    nrl_status st = problems_report(&problems);
    if (st != NRL_OK) return st;
    l->table = (const void *)p->table;
    return l->table->open(l->options, run, &l->self);
}

static inline void test_logger_close(test_logger *l)
{
    if (l->self) l->table->close(l->self);
    plugin_host_destroy(l->host);
    arena_free(&l->memory);
}

#endif
