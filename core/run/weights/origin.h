/*
 * origin.h - where a model's first weights come from: a model on disk in any format, a checkpoint (weights
 * alone; its optimizer, data and progress are another run's), or a seed. The policy and a reference that starts from
 * the same weights share one. A checkpoint that contains only adapters names the origin of their base; its weights are
 * the sum of both.
 */
#ifndef RUN_ORIGIN_H
#define RUN_ORIGIN_H
#include "base/hash.h"
#include "base/inputs.h"
#include "base/quantize.h"
#include "checkpoint/checkpoint.h"
#include "model/weights.h"
#include "run/walk/storage.h"

typedef struct {
    const char *dir; /* of a model in `format`; NULL: the next */
    const nrl_format *format;
    int64_t rows;           /* of the vocabulary in `dir`; 0 = as many as the model's, else the others are their mean */
    const char *companions; /* folder of the files that belong to it; NULL = none */
    const char *checkpoint; /* NULL: by seed */
    uint64_t seed;
    const nrl_format *adapter_format; /* of the next */
    const char *adapter_dir;          /* NULL = none: values of the model's adapters, else by seed; added to
                                         the weights of a model that carries none */
    quantize_kind quantized;          /* of its linear weights, before adapters are added */
    int depth;                        /* number of nested checkpoints of adapters above it */
    const format_scope *formats;      /* for the format of its base; set by the caller of origin_find */
    const sign_public_key *signer;    /* that must have signed every checkpoint in it; NULL = not required. Set by the
                                         caller of origin_find */
} model_origin;

/* Finds what `path` names: a checkpoint, a run's folder (its newest complete one), or what a format of out->formats
 * serves; and its config. Both live in `a`. [main] */
nrl_status origin_find(const char *path, arena *a, model_origin *out, const nrl_node **config);
/* Folder with the tokenizer that belongs to it, NULL = none known, and tokens beside those of the folder; in `a`. */
nrl_status origin_tokenizer(const model_origin *o, arena *a, const char **folder, nrl_node **new_tokens);
/* Names, shapes and sizes fit the model; reads no weight. [main] */
nrl_status origin_check(const model_origin *o, const model *m);
/* Loads what this rank holds. The ranks compare what they read (read_check.h), so all of them call it. mesh NULL: one
 * rank. [main] */
nrl_status origin_load(const model_origin *o, nrl_ctx *ctx, model *m, nrl_mesh *mesh);
/* Identifies weights in the name of a file: 32 hex digits, or the seed. */
nrl_status origin_key(const model_origin *o, char key[33]);
/* The same of its adapter_dir alone. */
nrl_status origin_adapter_key(const model_origin *o, char key[HASH_TEXT]);

/* Malloc'd "key: value" lines that identify it without reading all of it: for weights a line per tensor, for a
 * checkpoint the hash of its manifest, which covers the rest. Keys begin with `whose`. */
nrl_status origin_identity(const model_origin *o, const char *whose, char **lines);
/* The same as one text in `a`, for weights that a run reads beside its own: weights by their headers and samples, a
 * checkpoint by its manifest, an adapter by all its bytes. */
nrl_status origin_sampled_key(const model_origin *o, arena *a, const char **key);

/* Adds the files that it consists of, including those of the base of its adapters; files that cannot be found are
 * omitted. */
void origin_add_inputs(const model_origin *o, const char *name, inputs *in);

/* Reads its values in order; origin_read is a weights_source whose user is an origin_reader. The model outlives it. */
typedef struct origin_reader origin_reader;
nrl_status origin_open(const model_origin *o, const model *m, origin_reader **out);
/* Whether it contains the parameter; a parameter that an algorithm added may be new, and is then initialised. */
bool origin_has(const origin_reader *r, const nrl_param *p);
void origin_close(origin_reader *r); /* NULL is fine */
nrl_status origin_read(void *reader, const nrl_param *p, int64_t begin, int64_t n, float *out);

/* The checkpoint that a path names, for a run its newest complete one; *dir NULL: the path is neither.
 * NRL_ERR_CONFIG: a run without checkpoints. */
nrl_status origin_checkpoint(const char *path, arena *a, const char **dir);

/* Hash of a checkpoint's manifest, which holds the hashes of everything else. */
nrl_status origin_checkpoint_key(const char *dir, char key[HASH_TEXT]);

/* ---- adapters of a checkpoint ---- */

/* The adapters of the checkpoint, in `a`; none (n 0) in a checkpoint of full weights. */
nrl_status origin_adapters(const checkpoint *c, plugin_host *host, arena *a, adapter_set *out);
/* Those of an adapter on disk, in `a`. */
nrl_status origin_adapter_set(const weight_files *w, plugin_host *host, arena *a, adapter_set *out);
/* Writes the base of adapters as a checkpoint stores it, {path, seed, key}, and reads it back, which checks that the
 * base still has that key. */
nrl_node *origin_base_node(arena *a, const model_origin *base, const char *key);
nrl_status origin_base(const checkpoint *c, arena *a, model_origin *out); /* out->formats is the caller's */
/* A and B from a checkpoint: a weights_source for parameters of adapters; user is an origin_stream. */
typedef struct {
    checkpoint *c;
    void *raw; /* freed by the caller */
    size_t room;
} origin_stream;
nrl_status origin_stream_read(void *stream, const nrl_param *p, int64_t begin, int64_t n, float *out);

/* ---- merged adapters ----
 *
 * Weights with their adapters merged: a weights_source around the source of W. The parameters of a weight's adapter are
 * completely in memory while elements of the weight are read; W never is. */

typedef struct {
    weights_source base; /* W, of every parameter of the model's own */
    void *base_user;
    const adapter_set *set;
    /* the n elements of the adapter's parameter called `name`, all of it */
    nrl_status (*matrix)(void *user, const char *name, int64_t n, float *out);
    void *user;
    /* the merger's own */
    const nrl_param *held; /* whose parameters are in `values` */
    int32_t module;        /* -1: it has no adapter */
    float *values[NRL_ADAPTER_MAX_PARAMS];
} merge;

/* A weights_source whose user is a merge; also for models without adapters. */
nrl_status merge_read(void *merge, const nrl_param *p, int64_t begin, int64_t n, float *out);
void merge_free(merge *m); /* its own memory */

#endif
