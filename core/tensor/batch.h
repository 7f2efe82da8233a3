/*
 * batch.h - the packed micro-batch behind nrl/batch.h: built by core/data, read by operations
 * (tokens, positions, cu_seqlens), by the head (rows) and by algorithms (columns, counts). Host
 * arrays are owned by the batch; device copies are made once by ctx_set_batch.
 */
#ifndef TENSOR_BATCH_H
#define TENSOR_BATCH_H
#include "base/arena.h"
#include <nrl/batch.h>

enum { BATCH_MAX_EXTRA = 16 };

typedef struct {
    const char *name; /* of a data.extra key */
    float *values;    /* [S] */
} batch_extra;

typedef struct {
    char name[32];      /* "logps", "ref_logps", ... */
    nrl_tensor *tensor; /* the context's; set by the core before `loss` */
} batch_column;

/* A prompt that both sides of a pair share is laid out once, as a segment behind the S that count:
 * it has no rows, no side and no example, and no algorithm sees it. */
struct nrl_batch {
    int64_t n_tokens, n_rows, n_segments, n_examples;
    int64_t n_prompts;        /* shared prompts: segments S to S+n_prompts-1 of the next arrays */
    int32_t *cu_seqlens;      /* [S+n_prompts+1] */
    int32_t *prefix;          /* [S+n_prompts] segment that is seen too, or -1; NULL = none at all */
    int32_t *tokens;          /* [N] */
    int32_t *positions;       /* [N] from 0 in each segment, or from its prefix's length */
    int32_t *row_token;       /* [P] the row that predicts this one, in its segment or the prefix */
    int32_t *row_target;      /* [P] token id */
    int32_t *row_segment;     /* [P] ascending */
    float *row_weight;        /* [P] */
    int32_t *segment_example; /* [S] ascending */
    int32_t *segment_side;    /* [S] */
    int32_t *segment_sample;  /* [S] index in the data set, for messages and random keys */
    int32_t n_extra;
    batch_extra extra[BATCH_MAX_EXTRA];
    const nrl_batch *parent; /* of a view of rows (batch_rows), else NULL */
    int64_t row_begin;       /* the view's first row in its parent */
    bool is_tail;            /* an empty micro-batch: one weight-0 segment only */
    /* filled by the run, per step */
    int32_t n_columns;
    batch_column columns[16];
    arena memory; /* owns every host array above */
};

/* Zeroed batch with arrays for these counts, all of one arena. */
nrl_batch *batch_new(int64_t n_tokens, int64_t n_rows, int64_t n_segments);
/* The same with room for shared prompts; no segment has a prefix yet. */
nrl_batch *batch_new_shared(int64_t n_tokens, int64_t n_rows, int64_t n_segments, int64_t n_prompts);
void batch_free(nrl_batch *b);
/* Tokens that segment s sees before its own. */
int64_t batch_prefix_length(const nrl_batch *b, int64_t s);
/* Checks the invariants (ascending, in range, rows inside what their segment sees, prefixes one
 * deep); NRL_ERR_BUG names the first. */
nrl_status batch_check(const nrl_batch *b, int64_t vocab_size);
void batch_set_column(nrl_batch *b, const char *name, nrl_tensor *t);
/* Rows [begin, end) of b as a batch of their own that borrows b's arrays (no tokens are computed
 * with it); for tokenwise losses, chunk by chunk. */
void batch_rows(const nrl_batch *b, int64_t begin, int64_t end, nrl_batch *view);

#endif
