/*
 * batch_check.h - the invariants of a packed batch (tensor/batch.h), which data and losses rely on.
 */
#ifndef TEST_BATCH_CHECK_H
#define TEST_BATCH_CHECK_H
#include "tensor/batch.h"

static inline nrl_status batch_wrong(const char *what, int64_t i, long long value)
{
    return nrl_fail(NRL_ERR_BUG, "batch: %s[%lld] is %lld", what, (long long)i, value);
}

static inline bool batch_is_inside(const nrl_batch *b, int32_t s, int32_t token)
{
    return s >= 0 && token >= b->cu_seqlens[s] && token < b->cu_seqlens[s + 1];
}

/* Checks the invariants: ascending, in range, rows inside their segment or its prefix, prefixes without prefixes.
 * NRL_ERR_BUG names the first violation. */
static inline nrl_status batch_check(const nrl_batch *b, int64_t vocab_size)
{
    int64_t n_all = b->n_segments + b->n_prompts;
    if (b->cu_seqlens[0]) return batch_wrong("cu_seqlens", 0, b->cu_seqlens[0]);
    for (int64_t s = 0; s < n_all; s++)
        if ((b->cu_seqlens[s + 1] - b->cu_seqlens[s]) < 0)
            return batch_wrong("cu_seqlens", s + 1, b->cu_seqlens[s + 1]);
    if (b->cu_seqlens[n_all] != b->n_tokens) return batch_wrong("cu_seqlens", n_all, b->cu_seqlens[n_all]);
    /* A prefix has no prefix itself, and the positions of a segment continue after those of its prefix. */
    for (int64_t s = 0; b->prefix && s < n_all; s++) {
        int32_t p = b->prefix[s], begin = b->cu_seqlens[s];
        if (p == -1) continue;
        if (p < 0 || p >= n_all || b->prefix[p] != -1) return batch_wrong("prefix", s, p);
        if ((b->cu_seqlens[s + 1] - b->cu_seqlens[s]) &&
            b->positions[begin] != (b->cu_seqlens[p + 1] - b->cu_seqlens[p]))
            return batch_wrong("positions", begin, b->positions[begin]);
    }
    for (int64_t s = 0; s < b->n_segments; s++) {
        int32_t before = s ? b->segment_example[s - 1] : 0;
        if (b->segment_example[s] < before || b->segment_example[s] >= b->n_examples)
            return batch_wrong("segment_example", s, b->segment_example[s]);
    }
    for (int64_t i = 0; i < b->n_tokens; i++) {
        if (b->tokens[i] < 0 || b->tokens[i] >= vocab_size) return batch_wrong("tokens", i, b->tokens[i]);
        if (b->positions[i] < 0) return batch_wrong("positions", i, b->positions[i]);
    }
    for (int64_t i = 0; i < b->n_rows; i++) {
        int32_t s = b->row_segment[i], before = i ? b->row_segment[i - 1] : 0;
        if (s < before || s >= b->n_segments) return batch_wrong("row_segment", i, s);
        if (b->row_target[i] < 0 || b->row_target[i] >= vocab_size)
            return batch_wrong("row_target", i, b->row_target[i]);
        if (!(b->row_weight[i] >= 0)) return batch_wrong("row_weight", i, (long long)b->row_weight[i]);
        /* The last token of a shared prompt predicts the first token of each segment with that prefix. */
        int32_t t = b->row_token[i];
        if (!batch_is_inside(b, s, t) && !batch_is_inside(b, b->prefix ? b->prefix[s] : -1, t))
            return batch_wrong("row_token", i, t);
    }
    return NRL_OK;
}

#endif
