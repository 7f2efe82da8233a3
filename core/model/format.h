/*
 * format.h - which format plugin serves a path.
 */
#ifndef MODEL_FORMAT_H
#define MODEL_FORMAT_H
#include "plugin/host.h"
#include <nrl/format.h>

/* Where formats are looked for. */
typedef struct {
    plugin_host *host;
    const char *(*variable)(const char *name); /* of the environment; NULL: none is set */
    const char *name;                          /* the format that serves, whatever a probe says; NULL = probe */
} format_scope;

/* The format of a path. `holds` is an nrl_holds. NRL_ERR_CONFIG: no format of that name, or one that holds something
 * else; no format recognises the path. The table lives as long as the host. [main] */
nrl_status format_find(const format_scope *scope, uint32_t holds, const char *path, const nrl_format **out);
/* The format that writes: the given one where it can, else the first by name that holds the same and can. [main] */
nrl_status format_for_writing(const format_scope *scope, uint32_t holds, const nrl_format *read,
                              const nrl_format **out);

nrl_format_host format_host(const format_scope *scope);

#endif
