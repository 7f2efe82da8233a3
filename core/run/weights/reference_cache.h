/*
 * reference_cache.h - reference log-probs of a whole data set in one memory-mapped file.
 *
 * The file's name is a hash of everything the numbers depend on: data, tokenizer, template and limits
 * (the data set's own hash), the weights, their config.json, the rounding and which rows are scored. Inside
 * (lib/base/float_rows.h): a row for each example, one f32 a target position, side after side.
 */
#ifndef RUN_REFERENCE_CACHE_H
#define RUN_REFERENCE_CACHE_H
#include "data/data.h"
#include "mesh/mesh.h"

typedef struct {
    const char *folder, *weights_key;
    const nrl_node *config; /* config.json of the weights */
    const char *rounding;   /* dtypes and settings that round values */
    const dataset *data;
    bool prompt_targets;
    int64_t micro_batch_tokens;
    data_shards shards; /* of the batches, as in training */
    nrl_mesh *mesh;     /* its ranks share the computing; the first rank of a node writes the file; NULL = one */
    /* Writes log-probs of a batch's target positions to host memory; also called for empty batches, whose rows do not
     * count, so that all ranks run the same actions. */
    nrl_status (*compute)(void *user, nrl_batch *batch, float *logps);
    void *user;
    const volatile int *signal; /* number of a signal that requests a stop, 0 = none yet; may be NULL */
} reference_cache_setup;

typedef struct reference_cache reference_cache;

/* Maps a valid file, or computes it on all ranks if one of them lacks it. Warns about a damaged file and computes it
 * again. [main] */
nrl_status reference_cache_open(const reference_cache_setup *setup, reference_cache **out);
void reference_cache_close(reference_cache *c); /* NULL is fine */

/* values[P] of a batch's rows by their data set's example and side. NRL_ERR_BUG when a segment has
 * another number of rows than the file. [step] */
nrl_status reference_cache_fill(const reference_cache *c, const nrl_batch *batch, float *values);

#endif
