/*
 * save.h - writes a directory of weights in any format (nrl/format.h), with accompanying files such as the tokenizer.
 */
#ifndef MODEL_SAVE_H
#define MODEL_SAVE_H
#include "base/inputs.h"
#include "model/format.h"
#include "model/weights.h"

typedef struct {
    const nrl_format *format;
    nrl_dtype dtype;             /* of the files: f32, bf16, f16 */
    const char *encoding;        /* one of the format's `encodings` for matrices; NULL = dtype */
    int64_t max_shard_bytes;     /* 0 = one file */
    bool discard;                /* read every value from the source and write nothing: for ranks that take part in
                                    collective reads while another rank writes */
    const char *copy_from;       /* directory whose tokenizer, generation_config and template files are copied;
                                    NULL = none */
    const char *const *files;    /* further names of that directory that are copied, NULL-ended; NULL = none */
    nrl_format_file replaced[6]; /* accompanying files with other contents; ends with a NULL name */
    const char *adapter_base;    /* for a format that holds adapters: path of their base model; NULL = unknown */
    bool overwrite;              /* replace the model files of an existing directory, of whatever format */
    const format_scope *formats; /* finds that format; NULL: it is `format` */
    const inputs *inputs;        /* files that must not be replaced, because they are read; NULL = none */
} save_options;

/* Writes the model's own parameters to DIR, or its adapters if the format holds adapters. The files are written to a
 * temporary directory that replaces DIR when it is complete; other files of DIR are kept. NRL_ERR_CONFIG: this would
 * replace an input or, without `overwrite`, a file. NRL_ERR_FULL gives the bytes that the file needs. [main] */
nrl_status model_save(const char *dir, const model *m, weights_source source, void *user, const save_options *options);

/* Removes a directory written by model_save; its format is found as for reading. Files that the format does not write
 * are kept, with a warning that names them. [main] */
nrl_status model_remove(const format_scope *scope, const char *dir);

#endif
