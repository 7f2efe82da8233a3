/*
 * batch.h - the packed micro-batch of nrl/batch.h. core/data builds it; operations read tokens, positions and
 * cu_seqlens, the head reads rows, algorithms read columns and counts. The batch owns its host arrays; ctx_set_batch
 * copies them to the device once.
 */
#ifndef TENSOR_BATCH_H
#define TENSOR_BATCH_H
#include "base/arena.h"
#include <nrl/batch.h>

enum { BATCH_MAX_EXTRA = 16 };

typedef struct {
    const char *name; /* of a data.extra key, or of a column of a rollout */
    float *values;    /* [S]; [P] if of_rows */
    bool of_rows;
} batch_extra;

typedef struct {
    char name[32];      /* "logps", "ref_logps", ... */
    nrl_tensor *tensor; /* borrowed from the context; set by the core before `loss` */
} batch_column;

/* S, P, N: segments, rows (target positions) and tokens. A prompt that both sides of a pair share is stored once, as an
 * additional segment after the first S. It has no rows, no side and no example, and algorithms do not see it. */
struct nrl_batch {
    int64_t n_tokens, n_rows, n_segments, n_examples;
    int64_t n_prompts;        /* shared prompts: segments S to S+n_prompts-1 of the next arrays */
    int32_t *cu_seqlens;      /* [S+n_prompts+1] */
    int32_t *prefix;          /* [S+n_prompts] segment that this one also attends to, or -1; NULL = no prefixes */
    int32_t *tokens;          /* [N] */
    int32_t *positions;       /* [N] from 0 in each segment, or from the length of its prefix */
    int32_t *row_token;       /* [P] token whose hidden state predicts the target, in the segment or its prefix */
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
    int32_t *packing;        /* the arrays of nrl_packing, made by op_custom.c; NULL until first use */
    bool is_tail;            /* a padding micro-batch: a single segment of weight 0 */
    /* Of tokens divided among ranks, this rank's: batch_divide. Segments are those of the whole micro-batch. */
    nrl_batch *own;        /* in the whole: owned; NULL = not divided */
    nrl_batch *whole;      /* in this rank's: the whole, else NULL */
    int32_t *token_number; /* [N] ascending: number in the whole; NULL = the same */
    int32_t *row_number;   /* [P] likewise */
    bool is_copy;          /* of a micro-batch that is not divided, and that another rank counts */
    /* set by the run in each step */
    int32_t n_columns;
    batch_column columns[16];
    arena memory; /* owns every host array above */
};

/* Allocates a zeroed batch with arrays for these counts. NULL: NRL_ERR_MEMORY. */
nrl_batch *batch_new(int64_t n_tokens, int64_t n_rows, int64_t n_segments);
/* The same with room for shared prompts; no segment has a prefix yet. */
nrl_batch *batch_new_shared(int64_t n_tokens, int64_t n_rows, int64_t n_segments, int64_t n_prompts);
void batch_free(nrl_batch *b);
/* Adds a zeroed member of b->extra; *values [P] with of_rows, else [S]. NRL_ERR_CONFIG: there are BATCH_MAX_EXTRA. */
nrl_status batch_add_extra(nrl_batch *b, const char *name, bool of_rows, float **values);
/* The length of the prefix of segment s; 0 without one. */
int64_t batch_prefix_length(const nrl_batch *b, int64_t s);
void batch_set_column(nrl_batch *b, const char *name, nrl_tensor *t);
/* Sets b->own to the n tokens `numbers` of b (ascending) and, with `rows`, the target positions that they predict. */
nrl_status batch_divide(nrl_batch *b, const int32_t *numbers, int64_t n, bool rows);
/* What operations compute on this rank. */
static inline nrl_batch *batch_own(nrl_batch *b)
{
    return b->own ? b->own : b;
}
/* The number of token i in the whole micro-batch. */
static inline int64_t batch_token_number(const nrl_batch *b, int64_t i)
{
    return b->token_number ? b->token_number[i] : i;
}
/* Makes a view of rows [begin, end) of b that borrows b's arrays, for tokenwise losses, which run chunk by chunk. */
void batch_rows(const nrl_batch *b, int64_t begin, int64_t end, nrl_batch *view);

#endif
