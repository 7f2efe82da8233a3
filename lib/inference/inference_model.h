/*
 * inference_model.h - a model that is used and not trained: the struct behind nrl/inference.h.
 */
#ifndef RUN_INFERENCE_MODEL_H
#define RUN_INFERENCE_MODEL_H
#include "base/sign.h"
#include "checkpoint/checkpoint.h"
#include "model/save.h"
#include "plugin/host.h"
#include "run/walk/storage.h"
#include "run/walk/work.h"
#include "text/chat.h"
#include <nrl/inference.h>

struct nrl_inference {
    arena memory;
    plugin_host *host;
    format_scope formats;          /* by probe */
    const nrl_format *format;      /* that it was read in; NULL: a checkpoint */
    const sign_public_key *signer; /* of env->public_key; NULL = no signature is required */
    checkpoint *checkpoint;        /* that it is read from, until it is open; NULL: a model on disk */
    bool scores;                   /* it is a reward model */
    nrl_dtype precision;           /* of weights; NRL_DTYPE_NONE = their own */
    const char *backend;           /* a name or "auto"; NULL = the run's, or one that computes on the host */
    const nrl_node *run_backend;   /* of the run's config; NULL = none */
    const char *computes_on;       /* name of the open backend */
    nrl_dtype weights;             /* the precision that was chosen */
    int64_t step;                  /* of the checkpoint; -1: a model on disk */
    device device;
    nrl_ctx *ctx;
    model *model;
    storage storage;
    work work;
    tokenizer *tokenizer;         /* NULL where none was found */
    const char *path;             /* of the weights on disk; NULL: a checkpoint */
    const char *tokenizer_dir;    /* of files copied along; NULL = none */
    inputs inputs;                /* files that an export reads */
    config_choice tokenizer_from; /* model.tokenizer of the run that made it; its path is tokenizer_dir's by now */
    bool has_template;
    config_choice template;     /* data.template of that run */
    const char *jinja;          /* that template's text, where it is not the tokenizer's own; NULL = none */
    const nrl_node *new_tokens; /* model.add_tokens of that run; NULL = none */
    const chat_template *chat;  /* open; NULL = none yet */
    nrl_generator *generator;   /* of nrl_inference_sample, which reuses what is cached; NULL = none yet */
};

#endif
