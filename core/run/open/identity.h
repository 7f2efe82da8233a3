/*
 * identity.h - what each rank runs and reads, made comparable: the build and plugins before the ranks join,
 * files once they are open. Ranks that read different bytes under one path would train replicas that never
 * agree, or wait for each other for ever; here all of them end before the first step, and the message names
 * what differs and on which ranks.
 *
 * Data, tokenizer, template, adapters and plugins are compared by all their bytes, which are read anyway;
 * weights by the headers and samples of every tensor, and by what ranks read while they load (read_check.h).
 */
#ifndef RUN_IDENTITY_H
#define RUN_IDENTITY_H
#include "run/open/session.h"

/* Malloc'd "key: value" lines about the build and the plugins of the config. NRL_ERR_IO. [main] */
nrl_status identity_of_code(session *se, char **lines);

/* Compares the files of all ranks once they are open. NRL_ERR_CONFIG, the same on every rank. [main] */
nrl_status identity_check_files(session *se);

#endif
