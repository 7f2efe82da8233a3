/*
 * auto.h - `auto` in a config: values that `nrl plan --auto` chooses for this machine before a run is opened.
 */
#ifndef CLI_COMMON_AUTO_H
#define CLI_COMMON_AUTO_H
#include "base/arena.h"
#include <nrl/run.h>

typedef struct {
    const char *file;   /* of the config */
    char *const *words; /* [n_words] as typed; those without '=' and those with a '-' in front are ignored */
    int n_words;
    int32_t ranks; /* on this machine */
    bool trains;   /* else the defaults are taken */
    bool quiet;    /* says nothing */
} auto_request;

/* *words: an override for each key of `config` (the file with the words) that says `auto`, ended by NULL. A resumed run
 * keeps its original values. Prints a line for each choice on standard error. The errors are those of `nrl plan`;
 * NRL_ERR_MEMORY: nothing fits. */
nrl_status auto_choose(arena *a, nrl_config *config, const auto_request *r, const char *const **words);

#endif
