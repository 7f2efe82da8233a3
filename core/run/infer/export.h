/*
 * export.h - the weights of a session as a model on disk.
 */
#ifndef RUN_EXPORT_H
#define RUN_EXPORT_H
#include "model/save.h"
#include "run/open/session.h"

/* The dtype that a model's config.json names, so that an export has the size of the base model; `otherwise` if it names
 * none. */
nrl_dtype export_dtype(const model *m, nrl_dtype otherwise);

/* Whether `dir` may become the directory of a model. NRL_ERR_CONFIG: it is one of the run's own, or a checkpoint. */
nrl_status export_check(const claims *c, const char *dir);

/* Writes the current weights or, if `from` is not NULL, those of a checkpoint of this run. All ranks call it. `card`
 * becomes README.md if the format has other files beside its own; NULL = none. */
nrl_status export_to(session *se, const char *from, const char *dir, const char *card);

/* Sets o->replaced so that the model carries this chat template; `jinja` NULL, or a tokenizer whose plugin cannot
 * change its files: they stay as they are. */
nrl_status export_set_template(arena *a, const tokenizer *tok, const char *jinja, save_options *o);

#endif
