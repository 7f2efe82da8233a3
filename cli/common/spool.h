/*
 * spool.h - `data.train=-`: rows from the standard input, kept in a file, because a run reads its data again when its
 * token cache is gone or the run is resumed elsewhere.
 */
#ifndef CLI_SPOOL_H
#define CLI_SPOOL_H
#include "base/arena.h"
#include <nrl/run.h>

/* With data.streaming puts /dev/stdin in the place of `-`: the run reads it once. Otherwise: if the config's data.train
 * is `-`, or {path: -, ...}, copies the standard input to a .jsonl file in data.cache, by default in ~/.cache/nrl, and
 * puts the file's path in its place. The file is named by its content, so the same rows give the same file, and the
 * same token cache. NRL_ERR_CONFIG for several ranks and for a resume, NRL_ERR_DATA without rows, NRL_ERR_IO. *word is
 * the override that names the file, or NULL.
 */
nrl_status spool_train(arena *a, nrl_config *config, const nrl_environment *env, const char **word);

#endif
