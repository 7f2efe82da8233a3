/*
 * format.h - which format plugin serves a path.
 */
#ifndef MODEL_FORMAT_H
#define MODEL_FORMAT_H
#include "plugin/host.h"
#include <nrl/format.h>

/* Where to look for formats. */
typedef struct {
    plugin_host *host;
    const char *(*variable)(const char *name); /* reads an environment variable; NULL: no variable is set */
    const char *name;                          /* the format to use without probing; NULL = probe */
} format_scope;

/* Finds the format of a path. `holds` is an nrl_holds. NRL_ERR_CONFIG: the named format does not exist or holds
 * something else, or no format recognises the path. The table lives as long as the host. [main] */
nrl_status format_find(const format_scope *scope, uint32_t holds, const char *path, const nrl_format **out);
/* Finds a format that can write: `read` if possible, else of those that hold the same the one with the highest
 * priority, of equals the first by name. [main] */
nrl_status format_for_writing(const format_scope *scope, uint32_t holds, const nrl_format *read,
                              const nrl_format **out);

nrl_format_host format_host(const format_scope *scope);

#endif
