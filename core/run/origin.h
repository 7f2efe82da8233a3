/*
 * origin.h - where a model's first weights come from: a Hugging Face directory, a checkpoint (weights
 * alone; its optimizer, data and progress are another run's), or a seed. The policy and a reference that
 * starts as it does share one.
 */
#ifndef RUN_ORIGIN_H
#define RUN_ORIGIN_H
#include "checkpoint/checkpoint.h"
#include "run/storage.h"

typedef struct {
    const char *hf_dir;     /* NULL: the next */
    const char *checkpoint; /* NULL: by seed */
    uint64_t seed;
} model_origin;

/* Finds what `path` names: a checkpoint, a run's folder (its newest complete one), a Hugging Face directory
 * or org/name of the local cache; and its config.json. Both live in `a`. [main] */
nrl_status origin_find(const char *path, const char *hf_home, arena *a, model_origin *out,
                       const nrl_node **config);
/* Folder with the tokenizer that belongs to it, NULL = none known; in `a`. */
nrl_status origin_tokenizer(const model_origin *o, arena *a, const char **folder);
/* Names, shapes and sizes fit the model; reads no weight. [main] */
nrl_status origin_check(const model_origin *o, const model *m);
/* Fills what lies on this rank. [main] */
nrl_status origin_load(const model_origin *o, nrl_ctx *ctx, model *m, const nrl_mesh *mesh);
/* Tells weights apart in the name of a file: 32 hex digits, or the seed. */
nrl_status origin_key(const model_origin *o, char key[33]);

/* A checkpoint's weights, a tensor at a time: an hf_source whose user is one of these. `raw` is freed by the
 * caller. */
typedef struct {
    checkpoint *c;
    void *raw;
    size_t room;
} origin_stream;
nrl_status origin_read(void *stream, const nrl_param *p, int64_t begin, int64_t n, float *out);

/* The checkpoint that a path names, a run standing for its newest complete one; *dir NULL: it names none.
 * NRL_ERR_CONFIG: a run without any. */
nrl_status origin_checkpoint(const char *path, arena *a, const char **dir);

#endif
