/*
 * support.h - opens a logger plugin as a run does, with options in YAML.
 */
#ifndef LOGGERS_SUPPORT_H
#define LOGGERS_SUPPORT_H
#include "base/json.h"
#include "support/options.h"
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

static inline nrl_status test_logger_open(test_logger *l, const char *name, const char *yaml, const nrl_logger_run *run)
{
    const void *table;
    *l = (test_logger){.host = test_host()};
    NRL_TRY(test_options(l->host, &l->memory, NRL_KIND_LOGGER, "loggers", name, yaml, &table, &l->options));
    l->table = table;
    return l->table->open(l->options, run, &l->self);
}

static inline void test_logger_close(test_logger *l)
{
    if (l->self) l->table->close(l->self);
    plugin_host_destroy(l->host);
    arena_free(&l->memory);
}

#endif
