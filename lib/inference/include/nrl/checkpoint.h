/*
 * checkpoint.h - for programs: reads and verifies checkpoints, lists and removes those of a run. These functions do not
 * write checkpoints; runs do (nrl/run.h). They are in libnrl-inference (nrl/inference.h).
 *
 *     nrl_checkpoint *c;
 *     nrl_status st = nrl_checkpoint_open("runs/first", NULL, &c);
 *     nrl_checkpoint_info info = {.size = sizeof info};
 *     if (st == NRL_OK) nrl_checkpoint_info_fill(c, &info);
 *     ...
 *     nrl_checkpoint_close(c);
 *
 * Ownership: texts and trees are borrowed from the checkpoint until it is closed.
 * Threads: one call at a time on a checkpoint; several checkpoints may be open in several threads.
 * Errors: NRL_ERR_CORRUPT (names the file), NRL_ERR_DATA (a format that this version does not know), NRL_ERR_IO,
 * NRL_ERR_MEMORY, and NRL_ERR_CONFIG if the named checkpoint does not exist.
 * Growth: the caller sets `size` of a struct to its sizeof; members that the library does not know stay zero.
 */
#ifndef NRL_CHECKPOINT_H
#define NRL_CHECKPOINT_H
#include <nrl/node.h>
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_checkpoint nrl_checkpoint;

/* Opens the checkpoint `path`, or the newest complete checkpoint of the run `path`. Checks the manifest, the sizes of
 * all files and their indices; hashes of data are checked when the data is read. With `public_key` (a file; NULL = any
 * key or none) the checkpoint must be signed by that key, and each part is checked against the signature as it is
 * read. */
NRL_API nrl_status nrl_checkpoint_open(const char *path, const char *public_key, nrl_checkpoint **out);
NRL_API void nrl_checkpoint_close(nrl_checkpoint *c); /* c may be NULL */

typedef struct {
    uint32_t size;
    int32_t world; /* number of ranks that wrote the checkpoint */
    const char *dir;
    int64_t step;
    int64_t bytes; /* of all files */
    int64_t n_tensors;
    double metric;  /* the value for keep_best: smaller is better; NaN = none */
    bool is_signed; /* by any key, or by the key given to nrl_checkpoint_open */
} nrl_checkpoint_info;
NRL_API void nrl_checkpoint_info_fill(const nrl_checkpoint *c, nrl_checkpoint_info *fill);

/* A tree that the run saved under a key: "config", "progress", "model", "fingerprints", "time", "nrl", "script_path";
 * NULL = no such key. */
NRL_API const nrl_node *nrl_checkpoint_node(const nrl_checkpoint *c, const char *key);

/* ---- tensors ---- */

typedef struct {
    uint32_t size;
    uint32_t dtype;           /* nrl_dtype */
    const char *name;         /* as in Hugging Face checkpoints */
    const char *slot;         /* "weight", or an optimizer's state, "exp_avg" */
    int32_t n_dims, n_shards; /* n_shards: the number of files that have parts of it */
    int64_t dims[NRL_MAX_DIMS];
    int64_t bytes, stored_bytes; /* uncompressed; on disk */
} nrl_checkpoint_tensor;
/* Tensors are numbered 0 .. n_tensors-1 in the order of their models. */
NRL_API void nrl_checkpoint_tensor_fill(const nrl_checkpoint *c, int64_t i, nrl_checkpoint_tensor *fill);
NRL_API int64_t nrl_checkpoint_find(const nrl_checkpoint *c, const char *name, const char *slot); /* -1 = none */
/* Elements [begin, end) of tensor i, counted over all its dimensions, to host memory. Reads only the parts of files
 * that hold some of them. */
NRL_API nrl_status nrl_checkpoint_read(nrl_checkpoint *c, int64_t i, int64_t begin, int64_t end, void *to);

/* Reads everything, and checks that the saved trees make sense. `damaged` is called for each damaged part; NULL = the
 * first damage is the error. `threads` >= 1 threads decode. */
NRL_API nrl_status nrl_checkpoint_verify(nrl_checkpoint *c, int threads, void (*damaged)(void *user, const char *text),
                                         void *user);

/* ---- the folder of a run ---- */

/* Paths of all checkpoints of the run in `out`, newest first, complete or damaged; *dirs is given back by
 * nrl_checkpoint_list_free. */
NRL_API nrl_status nrl_checkpoint_list(const char *out, char ***dirs, size_t *n);
NRL_API void nrl_checkpoint_list_free(char **dirs, size_t n);
/* Keeps the `keep` newest complete checkpoints (0 = all) and in addition the `keep_best` with the smallest metric;
 * removes all others and the remains of interrupted saves. NRL_ERR_CONFIG while a run writes to `out`. */
NRL_API nrl_status nrl_checkpoint_prune(const char *out, int64_t keep, int64_t keep_best);

/* ---- keys ---- */

/* Creates a key pair: the files `path` (secret, for checkpoint.sign) and `path`.pub, which must not exist yet. */
NRL_API nrl_status nrl_checkpoint_make_keys(const char *path);

#ifdef __cplusplus
}
#endif
#endif
