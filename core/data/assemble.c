/*
 * assemble.c - concatenates examples. A target at position i of its sequence (i >= 1) is predicted by the row of token
 * i - 1. Prompts that the sides of a pair share follow after all segments, so that rows and segments have the same
 * numbers as without sharing.
 */
#include "data/data.h"
#include <string.h>

typedef struct {
    int64_t own, shared; /* tokens: of the segments, of shared prompts */
    int64_t rows, segments, prompts;
} sizes;

typedef struct {
    const int32_t *tokens;
    const uint8_t *trained;
    int64_t length, shared; /* the first `shared` tokens are the example's prompt */
} sequence;

static sequence sequence_of(const dataset *d, int64_t example, int side)
{
    sequence q = {.shared = dataset_shared_tokens(d, example)};
    q.length = dataset_segment(d, example, side, &q.tokens, &q.trained);
    return q;
}

static bool is_scored(const sequence *q, int64_t i, bool prompt_targets)
{
    return q->trained[i] || prompt_targets;
}

static sizes measure(const dataset *d, const int64_t *examples, int64_t n, bool prompt_targets)
{
    sizes s = {0};
    for (int64_t b = 0; b < n; b++) {
        int64_t shared = dataset_shared_tokens(d, examples[b]);
        for (int side = 0; side < dataset_info(d)->n_sides; side++) {
            sequence q = sequence_of(d, examples[b], side);
            for (int64_t i = 1; i < q.length; i++)
                s.rows += is_scored(&q, i, prompt_targets);
            s.own += q.length - shared;
            s.segments++;
        }
        s.shared += shared;
        s.prompts += shared > 0;
    }
    return s;
}

/* Tokens [begin, end) of a sequence from batch row `to` on. */
static void copy_tokens(nrl_batch *b, int64_t to, const sequence *q, int64_t begin, int64_t end)
{
    memcpy(b->tokens + to, q->tokens + begin, (size_t)(end - begin) * sizeof *q->tokens);
    for (int64_t i = begin; i < end; i++)
        b->positions[to + i - begin] = (int32_t)i;
}

static void add_segment(const dataset *d, nrl_batch *b, sizes *at, int64_t example, int side, bool prompt_targets)
{
    sequence q = sequence_of(d, example, side);
    copy_tokens(b, at->own, &q, q.shared, q.length);
    for (int64_t i = 1; i < q.length; i++) {
        if (!is_scored(&q, i, prompt_targets)) continue;
        bool in_prompt = i - 1 < q.shared;
        b->row_token[at->rows] = (int32_t)(i - 1 + (in_prompt ? at->shared : at->own - q.shared));
        b->row_target[at->rows] = q.tokens[i];
        b->row_segment[at->rows] = (int32_t)at->segments;
        b->row_weight[at->rows++] = q.trained[i] ? 1.0f : 0.0f;
    }
    if (q.shared) b->prefix[at->segments] = (int32_t)(b->n_segments + at->prompts);
    b->segment_side[at->segments] = side;
    b->segment_sample[at->segments] = (int32_t)example;
    for (int32_t k = 0; k < b->n_extra; k++)
        b->extra[k].values[at->segments] = dataset_extra(d, example, k);
    at->own += q.length - q.shared;
    b->cu_seqlens[++at->segments] = (int32_t)at->own;
}

nrl_status data_assemble(const dataset *d, const int64_t *examples, int64_t n, bool prompt_targets, nrl_batch **out)
{
    sizes size = measure(d, examples, n, prompt_targets), at = {.shared = size.own};
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(dataset_verify(d, examples[i]));
    if (!n) size = (sizes){.own = 1, .rows = 1, .segments = 1};
    nrl_batch *b = batch_new_shared(size.own + size.shared, size.rows, size.segments, size.prompts);
    if (!b) return NRL_ERR_MEMORY;
    for (int64_t k = 0; k < dataset_info(d)->n_extra; k++) {
        float *values;
        nrl_status st = batch_add_extra(b, dataset_info(d)->extra[k], false, &values);
        if (st == NRL_OK) continue;
        batch_free(b);
        return st;
    }
    *out = b;
    b->n_examples = n;
    if (!n) {
        b->cu_seqlens[1] = 1;
        b->n_examples = 1;
        b->segment_sample[0] = -1;
        b->is_tail = true;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int side = 0; side < dataset_info(d)->n_sides; side++) {
            b->segment_example[at.segments] = (int32_t)i;
            add_segment(d, b, &at, examples[i], side, prompt_targets);
        }
        sequence q = sequence_of(d, examples[i], 0);
        if (!q.shared) continue;
        copy_tokens(b, at.shared, &q, 0, q.shared);
        at.shared += q.shared;
        b->cu_seqlens[b->n_segments + ++at.prompts] = (int32_t)at.shared;
    }
    return NRL_OK;
}
