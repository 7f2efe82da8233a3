/*
 * assemble.c - lays blocks end to end. A target at position i of its segment (i >= 1) is scored off
 * token row i - 1.
 */
#include "data/assemble.h"
#include <string.h>

typedef struct {
    int64_t tokens, rows, segments;
} sizes;

static bool is_scored(const uint8_t *trained, int64_t i, bool prompt_rows)
{
    return trained[i] || prompt_rows;
}

static sizes measure(const dataset *d, const int64_t *blocks, int64_t n, bool prompt_rows)
{
    sizes s = {0};
    const int32_t *tokens;
    const uint8_t *trained;
    for (int64_t b = 0; b < n; b++)
        for (int side = 0; side < dataset_n_sides(d); side++) {
            int64_t length = dataset_segment(d, blocks[b], side, &tokens, &trained);
            for (int64_t i = 1; i < length; i++)
                s.rows += is_scored(trained, i, prompt_rows);
            s.tokens += length;
            s.segments++;
        }
    return s;
}

static void add_rows(nrl_batch *b, sizes *at, const int32_t *tokens, const uint8_t *trained,
                     int64_t length, bool prompt_rows)
{
    for (int64_t i = 1; i < length; i++) {
        if (!is_scored(trained, i, prompt_rows)) continue;
        b->row_token[at->rows] = (int32_t)(at->tokens + i - 1);
        b->row_target[at->rows] = tokens[i];
        b->row_segment[at->rows] = (int32_t)at->segments;
        b->row_weight[at->rows++] = trained[i] ? 1.0f : 0.0f;
    }
}

static void add_segment(const dataset *d, nrl_batch *b, sizes *at, int64_t block, int side,
                        bool prompt_rows)
{
    const int32_t *tokens;
    const uint8_t *trained;
    int64_t length = dataset_segment(d, block, side, &tokens, &trained);
    memcpy(b->tokens + at->tokens, tokens, (size_t)length * sizeof *tokens);
    for (int64_t i = 0; i < length; i++)
        b->positions[at->tokens + i] = (int32_t)i;
    add_rows(b, at, tokens, trained, length, prompt_rows);
    b->segment_side[at->segments] = side;
    b->segment_sample[at->segments] = (int32_t)block;
    for (int32_t k = 0; k < b->n_extra; k++)
        b->extra[k].values[at->segments] = dataset_extra(d, block, k);
    at->tokens += length;
    b->cu_seqlens[++at->segments] = (int32_t)at->tokens;
}

static void add_extra_columns(const dataset *d, nrl_batch *b)
{
    b->n_extra = (int32_t)dataset_n_extra(d);
    for (int32_t k = 0; k < b->n_extra; k++) {
        b->extra[k].name = dataset_extra_name(d, k);
        b->extra[k].values = arena_alloc(&b->memory, (size_t)b->n_segments * sizeof(float));
    }
}

static nrl_batch *tail(const dataset *d)
{
    nrl_batch *b = batch_new(1, 1, 1);
    add_extra_columns(d, b);
    b->cu_seqlens[1] = 1;
    b->n_blocks = 1;
    b->segment_sample[0] = -1;
    b->is_tail = true;
    return b;
}

nrl_status data_assemble(const dataset *d, const int64_t *blocks, int64_t n, bool prompt_rows,
                         nrl_batch **out)
{
    sizes size = measure(d, blocks, n, prompt_rows), at = {0};
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(dataset_verify(d, blocks[i]));
    if (!n) {
        *out = tail(d);
        return NRL_OK;
    }
    nrl_batch *b = *out = batch_new(size.tokens, size.rows, size.segments);
    add_extra_columns(d, b);
    b->n_blocks = n;
    for (int64_t i = 0; i < n; i++)
        for (int side = 0; side < dataset_n_sides(d); side++) {
            b->segment_block[at.segments] = (int32_t)i;
            add_segment(d, b, &at, blocks[i], side, prompt_rows);
        }
    return NRL_OK;
}
