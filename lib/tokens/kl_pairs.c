/*
 * kl_pairs.c - turns examples with one side into examples with two sides, one sample behind the input.
 */
#include "tokens/kl_pairs.h"
#include <string.h>

static nrl_status set_sample(data_mismatch_sample *s, const char *body, const data_cache_segment *seg, int n_extra)
{
    int64_t extra_bytes = n_extra * (int64_t)sizeof(float);
    s->body.size = 0;
    s->body.what = "the tokens of a sample";
    s->head = *seg;
    s->head.offset = extra_bytes;
    buffer_add(&s->body, body + seg->offset - extra_bytes, (size_t)extra_bytes + (size_t)seg->n_tokens * 5);
    return buffer_check(&s->body);
}

static const char *tokens_of(const data_mismatch_sample *s)
{
    return s->body.text + s->head.offset;
}

static const char *marks_of(const data_mismatch_sample *s)
{
    return tokens_of(s) + (size_t)s->head.n_tokens * sizeof(int32_t);
}

/* The prompt of `s` (`shared` tokens) with the answer of `next`. */
static nrl_status add_mismatched(data_mismatch *m, const data_mismatch_sample *s, const data_mismatch_sample *next,
                                 data_cache_segment *seg)
{
    int32_t prompt = s->head.shared, at = next->head.shared, n = next->head.n_tokens - at;
    const char *marks = marks_of(next) + at;
    if (m->max_length && prompt + (int64_t)n > m->max_length) n = (int32_t)m->max_length - prompt;
    *seg = (data_cache_segment){
        .offset = (int64_t)m->out.size, .n_tokens = prompt + n, .shared = prompt, .line = s->head.line};
    for (int32_t i = 0; i < n; i++)
        seg->n_trained += marks[i];
    buffer_add(&m->out, tokens_of(s), (size_t)prompt * sizeof(int32_t));
    buffer_add(&m->out, tokens_of(next) + (size_t)at * sizeof(int32_t), (size_t)n * sizeof(int32_t));
    buffer_add(&m->out, marks_of(s), (size_t)prompt);
    buffer_add(&m->out, marks, (size_t)n);
    return data_cache_end_segment(&m->out, seg);
}

static nrl_status write_example(data_mismatch *m, data_cache_writer *w, const data_mismatch_sample *next)
{
    const data_mismatch_sample *s = &m->last;
    data_cache_segment sides[2] = {s->head};
    if ((int64_t)s->head.n_tokens + next->head.n_tokens > INT32_MAX)
        return nrl_fail(NRL_ERR_DATA, "line %lld: a prompt and the next row's answer are too long",
                        (long long)s->head.line);
    m->out.size = 0;
    m->out.what = "the tokens of a sample";
    buffer_add(&m->out, s->body.text, s->body.size);
    NRL_TRY(data_cache_end_segment(&m->out, &sides[0]));
    NRL_TRY(add_mismatched(m, s, next, &sides[1]));
    return data_cache_append(w, m->out.text, 0, m->out.size, sides, 2);
}

nrl_status data_mismatch_append(data_mismatch *m, data_cache_writer *w, const char *body,
                                const data_cache_segment *segments, size_t n)
{
    data_mismatch_sample next = {0};
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        st = set_sample(&next, body, &segments[i], m->n_extra);
        if (st == NRL_OK)
            st = m->any ? write_example(m, w, &next) : set_sample(&m->first, body, &segments[i], m->n_extra);
        m->any = true;
        data_mismatch_sample written = m->last; /* the next sample reuses its memory */
        m->last = next;
        next = written;
    }
    buffer_free(&next.body);
    return st;
}

nrl_status data_mismatch_restart(data_mismatch *m)
{
    m->first.head = m->last.head;
    m->first.body.size = 0;
    m->first.body.what = "the tokens of a sample";
    buffer_add(&m->first.body, m->last.body.text, m->last.body.size);
    return buffer_check(&m->first.body);
}

nrl_status data_mismatch_finish(data_mismatch *m, data_cache_writer *w)
{
    const bool any = m->any;
    m->any = false;
    return any ? write_example(m, w, &m->first) : NRL_OK;
}

void data_mismatch_free(data_mismatch *m)
{
    buffer_free(&m->first.body);
    buffer_free(&m->last.body);
    buffer_free(&m->out);
}
