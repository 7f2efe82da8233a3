/*
 * save.h - writes a folder of weights in any format (nrl/format.h), with the files that travel along.
 */
#ifndef MODEL_SAVE_H
#define MODEL_SAVE_H
#include "base/inputs.h"
#include "model/weights.h"

/* A travelling file that is written with this text in the place of the copy; NULL: omitted. */
typedef struct {
    const char *name, *text;
} save_file;

typedef struct {
    const nrl_format *format;
    nrl_dtype dtype;          /* of the files: f32, bf16, f16 */
    int64_t max_shard_bytes;  /* 0 = one file */
    bool discard;             /* reads every value from the source and writes nothing: a rank beside the
                                 one that writes, where ranks read together */
    const char *copy_from;    /* folder whose tokenizer, generation_config, template files travel
                                 along; NULL = none */
    save_file replaced[4];    /* of those; ended by one without a name */
    const char *adapter_base; /* with a format that holds adapters: where their base model is; NULL = unknown */
    bool overwrite;           /* of a directory that exists the files of a model are replaced */
    const inputs *inputs;     /* what is read here, which no file takes the place of; NULL = nothing */
} save_options;

/* Writes the model's own parameters, or with a format that holds adapters those of its adapters, to DIR. The files are
 * written to a temporary directory beside it that takes its place, with whatever else was in DIR, when everything is
 * complete. NRL_ERR_CONFIG where that would replace an input, or without `overwrite` a file.
 * NRL_ERR_FULL names the bytes that were needed. [main] */
nrl_status model_save(const char *dir, const model *m, weights_source source, void *user, const save_options *options);

/* Removes a directory that model_save wrote; formats are tried as for reading. Files that it does not write stay
 * there, and are named in a warning. [main] */
nrl_status model_remove(const format_scope *scope, const char *dir);

#endif
