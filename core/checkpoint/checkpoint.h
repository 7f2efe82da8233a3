/*
 * checkpoint.h - a run's whole state on disk, written so that a crash at any moment leaves the last
 * complete one intact, and read so that damage is told and never used.
 *
 *   OUT/checkpoints/step-00000200/manifest.json   what is there: tensors, sizes, hashes, nodes
 *                                 rank-00000.bin  the tensors of one rank, end to end
 *
 * A save happens in step-00000200.tmp: data, then the manifest, each made durable, then one rename.
 * The manifest begins with the hash of the rest of itself; each tensor has a hash for every 4 MiB,
 * so damage is found while reading, before the bytes are used. Numbers are little-endian.
 *
 * One thread at a time. Errors: NRL_ERR_FULL (disk or quota full, file size limit), NRL_ERR_IO,
 * NRL_ERR_CORRUPT (names the file), NRL_ERR_DATA (a format this version does not know).
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H
#include "base/node.h"
#include <nrl/tensor.h>

enum { CHECKPOINT_FORMAT = 1, CHECKPOINT_CHUNK = 4 << 20 };

/* A named array: `slot` is "weight" or an optimizer's state ("exp_avg"). */
typedef struct {
    const char *name; /* as in Hugging Face checkpoints */
    const char *slot;
    nrl_dtype dtype;
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];
} checkpoint_tensor;

/* ---- writing ---- */

typedef struct checkpoint_writer checkpoint_writer;

/* Starts OUT/checkpoints/step-<step>.tmp and reserves room for `tensor_bytes` of tensors, so that a
 * full disk shows before anything is written. */
nrl_status checkpoint_begin(const char *out, int64_t step, int64_t tensor_bytes,
                            checkpoint_writer **w);

/* Bytes [begin, begin + size) of a tensor, in rising order, at most CHECKPOINT_CHUNK at a time. */
typedef nrl_status (*checkpoint_source)(void *user, int64_t begin, size_t size, void *to);
nrl_status checkpoint_add_tensor(checkpoint_writer *w, const checkpoint_tensor *t,
                                 checkpoint_source source, void *user);
/* A tree under a key of its own ("progress", "config", "algorithm"); copied. */
void checkpoint_add_node(checkpoint_writer *w, const char *key, const nrl_node *node);
/* What checkpoint_prune compares; smaller is better. Unset = never among the best. */
void checkpoint_set_metric(checkpoint_writer *w, double value);

/* Makes everything durable and visible under its name, replacing a checkpoint of the same step.
 * *dir (malloc'd, may be NULL) is its folder. Ends w, in failure too. */
nrl_status checkpoint_commit(checkpoint_writer *w, char **dir);
/* Removes what was written and ends w; NULL is fine. */
void checkpoint_abandon(checkpoint_writer *w);

/* ---- reading ---- */

typedef struct checkpoint checkpoint;

/* Checks the manifest and the sizes of the files; the tensors' hashes are checked as they are read.
 */
nrl_status checkpoint_open(const char *dir, checkpoint **out);
void checkpoint_close(checkpoint *c);
const char *checkpoint_dir(const checkpoint *c);
int64_t checkpoint_step(const checkpoint *c);
double checkpoint_metric(const checkpoint *c);                         /* NaN = none */
const nrl_node *checkpoint_node(const checkpoint *c, const char *key); /* NULL if absent */

size_t checkpoint_n_tensors(const checkpoint *c);
const checkpoint_tensor *checkpoint_tensor_at(const checkpoint *c, size_t i);
/* Its index, or -1. */
int64_t checkpoint_find_tensor(const checkpoint *c, const char *name, const char *slot);
int64_t checkpoint_tensor_bytes(const checkpoint *c, size_t i);

/* Gets verified bytes, in rising order, at most CHECKPOINT_CHUNK at a time. */
typedef nrl_status (*checkpoint_sink)(void *user, int64_t begin, size_t size, const void *from);
nrl_status checkpoint_read_tensor(const checkpoint *c, size_t i, checkpoint_sink sink, void *user);
/* Reads everything. */
nrl_status checkpoint_verify(const checkpoint *c);

/* ---- the folder OUT/checkpoints ---- */

/* *dir (malloc'd): the complete checkpoint of the highest step, NULL where there is none.
 * Incomplete ones are named in a warning and passed over. */
nrl_status checkpoint_find_newest(const char *out, char **dir);

/* Keeps the `keep` newest (0 = all) and besides them the `keep_best` with the smallest metric;
 * removes the rest and what dead saves left. Call it after a commit: only complete ones count. */
nrl_status checkpoint_prune(const char *out, int64_t keep, int64_t keep_best);

#endif
