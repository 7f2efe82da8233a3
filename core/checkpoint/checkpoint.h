/*
 * checkpoint.h - a run's whole state on disk, written by all ranks together so that a crash at any
 * moment leaves the last complete one intact, and read by any number of ranks so that damage is told
 * and never used. What lies on disk is in format.h.
 *
 * A save has two halves. The snapshot copies what this rank holds into memory of the writer's; the run
 * goes on after it. Then a thread compresses, writes, syncs and agrees with the other ranks' threads.
 *
 * Errors: NRL_ERR_FULL (disk or quota full, file size limit), NRL_ERR_IO, NRL_ERR_CORRUPT (names the
 * file), NRL_ERR_DATA (a format this version does not know), NRL_ERR_PEER (another rank did not write).
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H
#include "base/node.h"
#include "checkpoint/piece.h"
#include "checkpoint/sign.h"

/* A named array: `slot` is "weight", an optimizer's state ("exp_avg"), or "rank" (of one rank). */
typedef struct {
    const char *name; /* as in Hugging Face checkpoints */
    const char *slot;
    nrl_dtype dtype;
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];
} checkpoint_tensor;

/* ---- writing ---- */

/* How the ranks' threads agree, beside whatever the run's own threads say to each other: words under
 * keys that are set once. [any] */
typedef struct {
    int32_t rank, world;
    double timeout_s; /* longest wait for another rank */
    void *user;
    nrl_status (*set)(void *user, const char *key, const void *value, size_t size);
    /* NRL_ERR_PEER where the key is not there after timeout_s; *value is malloc'd. */
    nrl_status (*get)(void *user, const char *key, double timeout_s, void **value, size_t *size);
    nrl_status (*remove)(void *user, const char *key); /* a word that all have read */
} checkpoint_ranks;

typedef struct {
    const char *out;               /* holds checkpoints/ */
    const checkpoint_ranks *ranks; /* NULL: one rank; copied */
    /* Whether `out` is still the caller's: asked before a save makes its folder and before that gets its name, and of
     * what failed. NULL: it is. [any] */
    nrl_status (*check)(const void *check_user);
    const void *check_user;
    int threads;                /* that compress: at least 1 */
    bool async;                 /* checkpoint_submit returns after the snapshot */
    int64_t keep, keep_best;    /* as checkpoint_prune, after every commit; keep 0 = all */
    bool is_signed;             /* the same on all ranks */
    const sign_secret_key *key; /* rank 0's where is_signed; outlives the writer */
} checkpoint_writer_options;

typedef struct checkpoint_writer checkpoint_writer;
nrl_status checkpoint_writer_open(const checkpoint_writer_options *o, checkpoint_writer **out); /* [step] */
/* Waits for a save that is being written; give_up ends its waits for other ranks. NULL is fine. [step] */
void checkpoint_writer_close(checkpoint_writer *w, bool give_up);

/* Before the first save: this rank will save `bytes`. Where try_disk, room on the disk is taken and given
 * back. An async writer gets its memory and touches it; where that does not fit, it is async no longer,
 * and says so. [step] */
nrl_status checkpoint_prepare(checkpoint_writer *w, int64_t bytes, bool try_disk);

/* One save at a time: the earlier one's outcome must have been polled. Then the tensors, in the same
 * order in every save, then checkpoint_submit or checkpoint_abandon. Every rank does the same. [step] */
void checkpoint_begin(checkpoint_writer *w, int64_t step);
/* A piece of t in host memory that stays as it is until checkpoint_submit returns. */
void checkpoint_add_tensor(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                           const void *host);
/* The same for what is not in host memory: *room (of the writer) is for the caller to fill at once. */
nrl_status checkpoint_add_copy(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                               void **room);
/* A tree under a key of its own ("progress", "config"); copied. Rank 0's is saved. */
void checkpoint_add_node(checkpoint_writer *w, const char *key, const nrl_node *node);
/* One that belongs to this rank ("parallel"). */
void checkpoint_add_rank_node(checkpoint_writer *w, const char *key, const nrl_node *node);
/* What checkpoint_prune compares; smaller is better. Unset = never among the best. */
void checkpoint_set_metric(checkpoint_writer *w, double value);
/* Makes the snapshot and starts writing; not async: writes. Errors come by checkpoint_poll. */
void checkpoint_submit(checkpoint_writer *w);
/* This rank failed (its error text is kept): no rank's part becomes a checkpoint. Poll as after a
 * submit. */
void checkpoint_abandon(checkpoint_writer *w, nrl_status why);

/* Of a finished save. `dir` is the writer's until the next begin. */
typedef struct {
    const char *dir;
    int64_t step;
    double write_s;                  /* of the second half, until it was durable */
    int64_t raw_bytes, stored_bytes; /* this rank's */
} checkpoint_outcome;
/* Whether the submitted save has ended (`wait`: waits for that); its status, once. *done false: none is
 * on its way, or it is still being written. After an error no trace of it is left. [step] */
nrl_status checkpoint_poll(checkpoint_writer *w, bool wait, checkpoint_outcome *out, bool *done);
bool checkpoint_is_writing(checkpoint_writer *w); /* a poll without wait would find it unfinished */

/* ---- reading ---- */

typedef struct checkpoint checkpoint;

/* Checks the manifest, the sizes of all files and their indices; the chunks' hashes are checked as they
 * are read. */
nrl_status checkpoint_open(const char *dir, checkpoint **out);
/* The same, and NRL_ERR_CORRUPT where the checkpoint is not signed by this key (NULL: any is taken): the signature is
 * checked first, then each part against it as it is read. The key outlives the checkpoint. */
nrl_status checkpoint_open_signed(const char *dir, const sign_public_key *key, checkpoint **out);
const sign_public_key *checkpoint_signer(const checkpoint *c); /* the key it was opened with, NULL = none */
bool checkpoint_is_signed(const char *dir);                    /* there is a signature, by whomever */
void checkpoint_close(checkpoint *c);
const char *checkpoint_dir(const checkpoint *c);
int64_t checkpoint_step(const checkpoint *c);
int32_t checkpoint_world(const checkpoint *c);                         /* ranks that made it */
double checkpoint_metric(const checkpoint *c);                         /* NaN = none */
const nrl_node *checkpoint_node(const checkpoint *c, const char *key); /* NULL if absent */
const nrl_node *checkpoint_rank_node(const checkpoint *c, int32_t rank, const char *key);

/* Tensors but those of slot "rank", each once, in the order of their models. */
size_t checkpoint_n_tensors(const checkpoint *c);
const checkpoint_tensor *checkpoint_tensor_at(const checkpoint *c, size_t i);
/* Its index, or -1. */
int64_t checkpoint_find_tensor(const checkpoint *c, const char *name, const char *slot);
int64_t checkpoint_tensor_bytes(const checkpoint *c, size_t i);  /* as numbers */
int64_t checkpoint_tensor_stored(const checkpoint *c, size_t i); /* on disk */
int checkpoint_tensor_pieces(const checkpoint *c, size_t i);
int64_t checkpoint_bytes(const checkpoint *c); /* of all files and the manifest */

/* How many threads decode in the calls below; 1 at first. NRL_ERR_MEMORY. */
nrl_status checkpoint_use_threads(checkpoint *c, int threads);
/* The piece's elements to host memory, in the piece's order; only chunks that hold some of them are
 * read. One call at a time. */
nrl_status checkpoint_read(checkpoint *c, size_t i, const layout_shard *piece, void *to);
/* A tensor of slot "rank" of one rank, whole; *found false where there is none of that shape and dtype. */
nrl_status checkpoint_read_rank(checkpoint *c, int32_t rank, const checkpoint_tensor *t, void *to, bool *found);
/* Reads everything. `damaged` (may be NULL) hears of each piece that is not whole; without it the first
 * is the error. */
typedef void (*checkpoint_damage)(void *user, const char *text);
nrl_status checkpoint_verify(checkpoint *c, checkpoint_damage damaged, void *user);

/* ---- the folder OUT/checkpoints ---- */

/* A file that a run leaves there which dies while it tries for room (checkpoint_prepare). */
bool checkpoint_is_trial(const char *name);

/* *dirs (malloc'd, as are its texts; checkpoint_list_free): all checkpoints, newest first, complete or
 * damaged; what dead saves left does not count. */
nrl_status checkpoint_list(const char *out, char ***dirs, size_t *n);
void checkpoint_list_free(char **dirs, size_t n);
/* Folder of the checkpoint of a step, whether or not it is there; malloc'd. */
char *checkpoint_dir_of(const char *out, int64_t step);
/* Whether the manifest and the sizes of the files are right. Cheap; reads no index. */
nrl_status checkpoint_look(const char *dir, int64_t *step, double *metric);

/* The checkpoints of a run as candidates to be read, newest first. A damaged candidate is skipped; one that this
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
/* *dir (borrowed): the next candidate that looks complete; NULL where the run has no checkpoint at all. Skipped ones
 * are then named in warnings. NRL_ERR_CORRUPT, with the reason of each, where all candidates were refused. */
nrl_status checkpoint_search_next(checkpoint_search *s, const char **dir);
/* The candidate that was returned last cannot be used; the reason is nrl_error_text. */
void checkpoint_search_refuse(checkpoint_search *s);
/* *dir (malloc'd): what the first checkpoint_search_next returns. */
nrl_status checkpoint_find_newest(const char *out, char **dir);

/* What `path` names: *dir (malloc'd) is itself where it is a checkpoint, the newest complete one where it is a
 * run; NULL where it is neither. NRL_ERR_CONFIG: a run without one. */
nrl_status checkpoint_locate(const char *path, char **dir);

/* Keeps the `keep` newest (0 = all) and besides them the `keep_best` with the smallest metric;
 * removes the rest and what dead saves left. Call it after a commit: only complete ones count. A folder with
 * anything in it that no save makes stays, and is named in a warning unless `quiet`. */
nrl_status checkpoint_prune(const char *out, int64_t keep, int64_t keep_best, bool quiet);

/* Whether checkpoint_clear may: NRL_ERR_CONFIG where a checkpoint holds what no save made. */
nrl_status checkpoint_check_clear(const char *out);
/* Removes all checkpoints and what dead saves left, then the folder; what else is in it stays, in a warning. */
nrl_status checkpoint_clear(const char *out);

#endif
