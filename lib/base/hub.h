/*
 * hub.h - the local cache of the Hugging Face hub, in the layout of its own tools: where it is, and the directory of a
 * model or a data set in it. Nothing here uses the network; `nrl download` fills the cache.
 *
 *     CACHE/models--org--name/refs/main                  the commit of a branch
 *     CACHE/models--org--name/snapshots/COMMIT/FILE      a link to
 *     CACHE/models--org--name/blobs/HASH                 the contents
 */
#ifndef BASE_HUB_H
#define BASE_HUB_H
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>

#define HUB_SCHEME "hf://"

/* An environment variable; NULL if it is unset. */
typedef const char *(*hub_variable)(const char *name);

/* ORG/NAME: one slash, only letters, digits and ._- ; `size` bytes. */
bool hub_is_name(const char *name, size_t size);

/* The directory for the hub's tools: HF_HOME, else huggingface in XDG_CACHE_HOME or ~/.cache. */
const char *hub_home(arena *a, hub_variable variable);
/* The cache: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, its former name, else `hub` in that directory. */
const char *hub_cache(arena *a, hub_variable variable);
/* CACHE/models--org--name; `kind` is "models" or "datasets". */
const char *hub_repository(arena *a, const char *cache, const char *kind, const char *name, size_t size);
/* The files of a branch, a tag or a commit in a repository's directory; NULL if they are not in the cache. */
const char *hub_snapshot(arena *a, const char *repository, const char *revision);

/* The path in the cache of hf://ORG/NAME[@REVISION][/FILE], a data set (also hf://datasets/ORG/NAME...); FILE may be a
 * pattern and is not checked. *path is in `a`. NRL_ERR_CONFIG: not of this form, or not in the cache. */
nrl_status hub_data(arena *a, const char *address, hub_variable variable, const char **path);

#endif
