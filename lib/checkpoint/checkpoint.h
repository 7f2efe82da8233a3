/*
 * checkpoint.h - the complete state of a run on disk. All ranks write it together, and a crash at any moment leaves
 * the last complete checkpoint intact. Any number of ranks can read it; damage is reported and damaged data is never
 * used. format.h describes the files.
 *
 * A save has two halves. The snapshot copies what this rank holds into the writer's memory, and then the run
 * continues. A thread compresses, writes and syncs the snapshot and agrees with the threads of the other ranks.
 *
 * Errors: NRL_ERR_FULL (disk or quota full, file size limit), NRL_ERR_IO, NRL_ERR_CORRUPT (names the file),
 * NRL_ERR_DATA (a format that this version does not know), NRL_ERR_PEER (another rank did not write its part).
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H
#include "base/node.h"
#include "base/piece.h"
#include "base/sign.h"
#include "base/staging.h"

/* A named array. The slot is "weight", the name of an optimizer state ("exp_avg"), or "rank" for state of one rank. */
typedef struct {
    const char *name; /* as in Hugging Face checkpoints */
    const char *slot;
    nrl_dtype dtype;
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];
} checkpoint_tensor;

/* ---- writing ---- */

/* How the writer threads of all ranks agree: a key-value store in which each key is set once. The keys do not
 * collide with those of the run's other threads. [any] */
typedef struct {
    int32_t rank, world;
    double timeout_s; /* the longest wait for another rank */
    void *user;
    nrl_status (*set)(void *user, const char *key, const void *value, size_t size);
    /* NRL_ERR_PEER if the key is still missing after timeout_s. *value is malloc'd. */
    nrl_status (*get)(void *user, const char *key, double timeout_s, void **value, size_t *size);
    nrl_status (*remove)(void *user, const char *key); /* all ranks have read the value */
} checkpoint_ranks;

typedef struct {
    const char *out;               /* the directory that holds checkpoints/ */
    const checkpoint_ranks *ranks; /* NULL: one rank; copied */
    /* Fails if `out` no longer belongs to the caller. Called before a save creates its directory, before it renames
     * the directory, and after a failure. NULL: `out` always belongs to the caller. [any] */
    nrl_status (*check)(const void *check_user);
    const void *check_user;
    staging_source source;      /* of the memory for snapshots; zero: the system's */
    int threads;                /* compression threads, at least 1 */
    bool async;                 /* checkpoint_submit returns after the snapshot */
    int64_t keep, keep_best;    /* arguments of checkpoint_prune after every commit; keep 0 = all */
    bool is_signed;             /* the same on all ranks */
    const sign_secret_key *key; /* rank 0 with is_signed: the signing key; it outlives the writer */
} checkpoint_writer_options;

typedef struct checkpoint_writer checkpoint_writer;
nrl_status checkpoint_writer_open(const checkpoint_writer_options *o, checkpoint_writer **out); /* [step] */
/* Waits for a save in progress. With give_up the save stops waiting for other ranks. NULL is allowed. [step] */
void checkpoint_writer_close(checkpoint_writer *w, bool give_up);

/* Call before the first save, with the bytes that this rank will save. With try_disk, reserves that much disk space
 * until checkpoint_prepared, which is called after all ranks have reserved theirs. An async writer allocates and
 * touches its memory; if there is not enough, it warns and becomes synchronous. [step] */
nrl_status checkpoint_prepare(checkpoint_writer *w, int64_t bytes, bool try_disk);
void checkpoint_prepared(checkpoint_writer *w); /* releases what checkpoint_prepare reserved, also after its failure */

/* Begins a save. Only one save exists at a time: poll the outcome of the previous one first. Then add the tensors, in
 * the same order in every save, and call checkpoint_submit or checkpoint_abandon. Every rank does the same. The writer
 * remembers a call that lacks memory: checkpoint_submit then abandons the save with NRL_ERR_MEMORY. [step] */
void checkpoint_begin(checkpoint_writer *w, int64_t step);
/* Adds a shard of t in host memory. The memory must not change until checkpoint_submit returns. */
void checkpoint_add_tensor(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                           const void *host);
/* Adds a shard of t that is not in host memory. The caller fills *room, which the writer owns, before it submits. */
nrl_status checkpoint_add_copy(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                               void **room);
/* Adds a tree under a key of its own ("progress", "config"). Copies it. Only rank 0's tree is saved. */
void checkpoint_add_node(checkpoint_writer *w, const char *key, const nrl_node *node);
/* Adds a tree that belongs to this rank ("parallel"). */
void checkpoint_add_rank_node(checkpoint_writer *w, const char *key, const nrl_node *node);
/* Sets the value that checkpoint_prune compares; smaller is better. A save without a metric is never a best one. */
void checkpoint_set_metric(checkpoint_writer *w, double value);
/* Takes the snapshot and starts to write; a synchronous writer writes now. checkpoint_poll returns the errors. */
void checkpoint_submit(checkpoint_writer *w);
/* Reports that this rank failed, with its current error text, so that the save fails on all ranks. Poll afterwards,
 * as after checkpoint_submit. */
void checkpoint_abandon(checkpoint_writer *w, nrl_status why);

/* The outcome of a finished save. `dir` is valid until the next checkpoint_begin. */
typedef struct {
    const char *dir;
    int64_t step;
    double write_s;                  /* duration of the second half, until the checkpoint was durable */
    int64_t raw_bytes, stored_bytes; /* of this rank */
} checkpoint_outcome;
/* Sets *done if the submitted save has ended (with `wait`: waits for that) and returns its status, once. *done is false
 * if no save is in progress or it is still being written. A failed save leaves no files. [step] */
nrl_status checkpoint_poll(checkpoint_writer *w, bool wait, checkpoint_outcome *out, bool *done);
bool checkpoint_is_writing(checkpoint_writer *w); /* a save is still being written */

/* ---- reading ---- */

typedef struct checkpoint checkpoint;

/* Checks the manifest, the sizes of all files and their indices. The hashes of the chunks are checked when the chunks
 * are read. */
nrl_status checkpoint_open(const char *dir, checkpoint **out);
/* Like checkpoint_open, but returns NRL_ERR_CORRUPT unless this key signed the checkpoint (NULL: do not check). The
 * signature is checked first, then each part when it is read. The key outlives the checkpoint. */
nrl_status checkpoint_open_signed(const char *dir, const sign_public_key *key, checkpoint **out);
const sign_public_key *checkpoint_signer(const checkpoint *c); /* the key it was opened with, or NULL */
bool checkpoint_is_signed(const char *dir);                    /* a signature exists, by any key */
void checkpoint_close(checkpoint *c);
const char *checkpoint_dir(const checkpoint *c);
int64_t checkpoint_step(const checkpoint *c);
int32_t checkpoint_world(const checkpoint *c);                         /* number of ranks that wrote it */
double checkpoint_metric(const checkpoint *c);                         /* NaN = none */
const nrl_node *checkpoint_node(const checkpoint *c, const char *key); /* NULL if absent */
const nrl_node *checkpoint_rank_node(const checkpoint *c, int32_t rank, const char *key);

/* The tensors except those of slot "rank", each once, in the order of the model. */
size_t checkpoint_n_tensors(const checkpoint *c);
const checkpoint_tensor *checkpoint_tensor_at(const checkpoint *c, size_t i);
/* Returns the index of the tensor, or -1. */
int64_t checkpoint_find_tensor(const checkpoint *c, const char *name, const char *slot);
/* *i: the tensor of this name and slot. NRL_ERR_CONFIG: there is none, or it has another dtype or shape. */
nrl_status checkpoint_expect_tensor(const checkpoint *c, const checkpoint_tensor *expected, size_t *i);
int64_t checkpoint_tensor_bytes(const checkpoint *c, size_t i);  /* uncompressed */
int64_t checkpoint_tensor_stored(const checkpoint *c, size_t i); /* on disk */
int checkpoint_tensor_pieces(const checkpoint *c, size_t i);     /* number of shards */
int64_t checkpoint_bytes(const checkpoint *c);                   /* of all files, including the manifest */

/* Sets the number of threads that decode in the calls below; initially 1. NRL_ERR_MEMORY. */
nrl_status checkpoint_use_threads(checkpoint *c, int threads);
/* Reads the elements of the shard into host memory, in the order of the shard. Reads only the chunks that hold some of
 * them. One call at a time. */
nrl_status checkpoint_read(checkpoint *c, size_t i, const layout_shard *piece, void *to);
/* A list of n elements in slot "rank", whose name is OWNER/NAME, such as "parallel/residual", because plugins of two
 * kinds may use the same name. The name is in the arena. [any] */
checkpoint_tensor checkpoint_rank_tensor(arena *a, const char *owner, const char *name, nrl_dtype dtype, int64_t n);
/* Reads a whole tensor of slot "rank" of one rank. *found is false if there is none with that shape and dtype. */
nrl_status checkpoint_read_rank(checkpoint *c, int32_t rank, const checkpoint_tensor *t, void *to, bool *found);
/* Reads everything. Calls `damaged` for each damaged shard; if it is NULL, the first damage is the error. */
typedef void (*checkpoint_damage)(void *user, const char *text);
nrl_status checkpoint_verify(checkpoint *c, checkpoint_damage damaged, void *user);

/* ---- the directory OUT/checkpoints ---- */

/* Whether this is the name of the file with which checkpoint_prepare tests for disk space; a run that dies at that
 * moment leaves it behind. */
bool checkpoint_is_trial(const char *name);

/* *dirs: all checkpoints, newest first, complete or damaged, without the remains of interrupted saves. Free it with
 * checkpoint_list_free. */
nrl_status checkpoint_list(const char *out, char ***dirs, size_t *n);
void checkpoint_list_free(char **dirs, size_t n);
/* The directory of the checkpoint of a step, whether or not it exists; malloc'd. */
char *checkpoint_dir_of(const char *out, int64_t step);
/* Checks the manifest and the sizes of the files. Cheap: reads no index. */
nrl_status checkpoint_look(const char *dir, int64_t *step, double *metric);

/* The checkpoints of a run as candidates to read, newest first. A damaged candidate is skipped. A candidate that this
 * process cannot judge (an unreadable file, a newer format) is an error, because it may be good. */
typedef struct {
    char *out;
    char **dirs; /* [n] */
    size_t n, next;
    char **refused; /* [n_refused] why each skipped candidate cannot be used */
    size_t n_refused, n_warned;
} checkpoint_search;
nrl_status checkpoint_search_open(const char *out, checkpoint_search *s);
void checkpoint_search_close(checkpoint_search *s);
/* *dir (borrowed): the next candidate that looks complete; NULL if the run has no checkpoint at all. Warns about each
 * skipped candidate. NRL_ERR_CORRUPT, with each reason, if all candidates were refused. */
nrl_status checkpoint_search_next(checkpoint_search *s, const char **dir);
/* Reports that the candidate returned last cannot be used; the reason is nrl_error_text. */
void checkpoint_search_refuse(checkpoint_search *s);
/* *dir (malloc'd): what the first checkpoint_search_next returns. */
nrl_status checkpoint_find_newest(const char *out, char **dir);

/* *dir (malloc'd): `path` itself if it is a checkpoint, the newest complete checkpoint if `path` is a run, the best one
 * for RUN@best, that of a step for RUN@STEP, NULL if it is none of these. NRL_ERR_CONFIG: a run without that
 * checkpoint. */
nrl_status checkpoint_locate(const char *path, char **dir);

/* Keeps the `keep` newest checkpoints (0 = all) and the `keep_best` with the smallest metric, and removes the others
 * and the remains of interrupted saves. Only complete checkpoints count; call it after a commit. A directory that holds
 * a file which no save writes is kept, with a warning unless `quiet`. */
nrl_status checkpoint_prune(const char *out, int64_t keep, int64_t keep_best, bool quiet);

/* NRL_ERR_CONFIG if checkpoint_clear would have to keep something: a checkpoint holds a file that no save writes. */
nrl_status checkpoint_check_clear(const char *out);
/* Removes all checkpoints, the remains of interrupted saves, and the directory. Keeps other files, with a warning. */
nrl_status checkpoint_clear(const char *out);

#endif
