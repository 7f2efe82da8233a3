/*
 * inference_model.h - a model to use, not to train: what `nrl sample`, `nrl export` and `nrl import` call SRC: a
 * model on disk in any format, a run's folder (its newest complete checkpoint) or one checkpoint.
 */
#ifndef RUN_INFERENCE_MODEL_H
#define RUN_INFERENCE_MODEL_H
#include "checkpoint/sign.h"
#include "model/save.h"
#include <nrl/run.h>
#include "run/walk/storage.h"
#include "run/walk/work.h"
#include "plugin/host.h"
#include "text/chat.h"

typedef struct {
    arena memory;
    plugin_host *host;
    format_scope formats;          /* by probe */
    const nrl_format *format;      /* that it was read in; NULL: a checkpoint */
    const sign_public_key *signer; /* of env->public_key; NULL = none is demanded */
    device device;
    nrl_ctx *ctx;
    model *model;
    storage storage;
    work work;
    tokenizer *tokenizer;         /* NULL where none was found */
    const char *path;             /* of the weights on disk; NULL: a checkpoint */
    const char *tokenizer_dir;    /* what travels along; NULL = nothing */
    inputs inputs;                /* what an export reads */
    config_choice tokenizer_from; /* model.tokenizer of the run that made it; its path is tokenizer_dir's by now */
    bool has_template;
    config_choice template; /* data.template of that run */
    const char *jinja;      /* that template's text, where it is not the tokenizer's own; NULL = none */
} source;

/* Weights in f32 on a backend of the host. NRL_ERR_CONFIG when path is none of the three. [main] */
nrl_status source_open(const char *path, const nrl_environment *env, source *out);
void source_close(source *s);

/* Writes what `path` names to the folder `out`; a checkpoint's weights go from file to file, a
 * tensor at a time, and are never whole in memory; adapters are added to what they stand on. `adapters`: these
 * alone. `format`: the plugin that writes; NULL = the one that reads it, else the first that can. options.format and
 * options.copy_from are found here. */
nrl_status source_export(const char *path, const nrl_environment *env, const char *out, bool adapters,
                         const char *format, const save_options *options);

/* Sets o->replaced so that the model carries this chat template; `jinja` NULL, or a tokenizer whose plugin
 * cannot say how: its files stay as they are. (export.c) */
nrl_status export_set_template(arena *a, const tokenizer *tok, const char *jinja, save_options *o);

/* Writes the source as a checkpoint of step 0, weights only, in OUT/checkpoints. */
nrl_status source_save(source *s, const char *out);

#endif
