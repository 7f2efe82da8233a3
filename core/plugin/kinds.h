/*
 * kinds.h - the kinds of plugins: directory, name in messages, size of the table.
 */
#ifndef PLUGIN_KINDS_H
#define PLUGIN_KINDS_H
#include <nrl/plugin.h>

typedef struct {
    uint32_t kind;      /* nrl_kind */
    const char *folder; /* "algorithms" */
    const char *name;   /* "algorithm" */
    size_t table_size;  /* of the kind's struct as this core knows it */
} plugin_kind;

extern const plugin_kind plugin_kinds[]; /* ended by kind NRL_KIND_NONE */

const plugin_kind *plugin_kind_find(uint32_t kind);       /* NULL = unknown */
const plugin_kind *plugin_kind_by_name(const char *word); /* folder or name; NULL = unknown */

#endif
