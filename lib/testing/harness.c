/*
 * harness.c - nrl/harness.h: contexts, batches and stores without a run.
 */
#include "run/state/state_io.h"
#include "mesh/store.h"
#include "tensor/ctx.h"
#include "tokens/written.h"
#include <nrl/harness.h>
#include <stdlib.h>
#include <string.h>

struct nrl_harness {
    device device;
    nrl_ctx *ctx;
    tape *tape; /* recorded, or NULL */
    bool records;
    const ctx_metric *metrics; /* the context's */
};

nrl_status nrl_harness_open(const nrl_backend *backend, const void *options, nrl_harness **out)
{
    nrl_harness *h = mem_alloc(sizeof *h);
    *out = NULL;
    nrl_status st = device_open(backend, options, 0, &h->device);
    if (st == NRL_OK) {
        st = ctx_create(&h->device, &h->ctx);
        if (st != NRL_OK) device_close(&h->device);
    }
    if (st == NRL_OK)
        *out = h;
    else
        free(h);
    return st;
}

void nrl_harness_close(nrl_harness *h)
{
    if (!h) return;
    nrl_harness_forget(h);
    ctx_destroy(h->ctx);
    device_close(&h->device);
    free(h);
}

nrl_ctx *nrl_harness_ctx(nrl_harness *h)
{
    return h->ctx;
}

size_t nrl_harness_live_bytes(const nrl_harness *h)
{
    ctx_memory m;
    ctx_memory_use(h->ctx, &m);
    return m.live_bytes;
}

/* ---- batches ---- */

static void harness_copy(void *to, const void *from, int64_t n, size_t width)
{
    if (from && n) memcpy(to, from, (size_t)n * width);
}

nrl_status nrl_harness_batch_create(const nrl_harness_batch *spec, nrl_batch **out)
{
    *out = NULL;
    if (spec->n_extra > BATCH_MAX_EXTRA)
        return nrl_fail(NRL_ERR_CONFIG, "cannot make a batch with %d extra values: expected at most %d", spec->n_extra,
                        BATCH_MAX_EXTRA);
    nrl_batch *b = batch_new(spec->n_tokens, spec->n_rows, spec->n_segments);
    if (!b) return NRL_ERR_MEMORY;
    b->n_examples = spec->n_examples;
    harness_copy(b->tokens, spec->tokens, spec->n_tokens, sizeof *b->tokens);
    harness_copy(b->cu_seqlens, spec->cu_seqlens, spec->n_segments + 1, sizeof *b->cu_seqlens);
    harness_copy(b->row_token, spec->row_token, spec->n_rows, sizeof *b->row_token);
    harness_copy(b->row_target, spec->row_target, spec->n_rows, sizeof *b->row_target);
    harness_copy(b->row_segment, spec->row_segment, spec->n_rows, sizeof *b->row_segment);
    harness_copy(b->row_weight, spec->row_weight, spec->n_rows, sizeof *b->row_weight);
    harness_copy(b->segment_example, spec->segment_example, spec->n_segments, sizeof *b->segment_example);
    harness_copy(b->segment_side, spec->segment_side, spec->n_segments, sizeof *b->segment_side);
    for (int64_t s = 0; s < spec->n_segments; s++) {
        b->segment_sample[s] = (int32_t)s;
        for (int32_t t = b->cu_seqlens[s]; t < b->cu_seqlens[s + 1]; t++)
            b->positions[t] = t - b->cu_seqlens[s];
    }
    b->n_extra = spec->n_extra;
    for (int32_t i = 0; i < spec->n_extra; i++) {
        b->extra[i].name = arena_strdup(&b->memory, spec->extra_names[i]);
        b->extra[i].values = arena_alloc(&b->memory, (size_t)spec->n_segments * sizeof *b->extra[i].values);
        harness_copy(b->extra[i].values, spec->extra_values[i], spec->n_segments, sizeof *b->extra[i].values);
    }
    *out = b;
    return NRL_OK;
}

nrl_status nrl_harness_batch_rows(const nrl_batch *b, int64_t begin, int64_t end, nrl_batch **out)
{
    *out = NULL;
    if (begin < 0 || begin > end || end > b->n_rows)
        return nrl_fail(NRL_ERR_CONFIG, "cannot take rows %lld to %lld of a batch: expected 0 to %lld",
                        (long long)begin, (long long)end, (long long)b->n_rows);
    *out = mem_alloc(sizeof **out);
    batch_rows(b, begin, end, *out);
    return NRL_OK;
}

void nrl_harness_batch_free(nrl_batch *b)
{
    if (b && b->parent)
        free(b); /* a view of rows borrows its arrays */
    else if (b)
        batch_free(b);
}

void nrl_harness_batch_set_column(nrl_batch *b, const char *name, nrl_tensor *column)
{
    batch_set_column(b, name, column);
}

nrl_status nrl_harness_use_batch(nrl_harness *h, nrl_batch *b)
{
    return ctx_set_batch(h->ctx, b);
}

/* ---- gradients ---- */

void nrl_harness_leaf(nrl_tensor *t)
{
    tensor_set_leaf(t);
}

void nrl_harness_record(nrl_harness *h)
{
    nrl_harness_forget(h);
    h->tape = tape_create();
    h->records = true;
    ctx_tape_begin(h->ctx, h->tape);
}

void nrl_harness_stop(nrl_harness *h)
{
    if (h->records) ctx_tape_end(h->ctx);
    h->records = false;
}

void nrl_harness_forget(nrl_harness *h)
{
    nrl_harness_stop(h);
    if (h->tape) tape_destroy(h->ctx, h->tape);
    h->tape = NULL;
}

nrl_status nrl_harness_backward(nrl_harness *h, nrl_tensor *const *outputs, nrl_tensor *const *grad_outputs,
                                int n_outputs, nrl_tensor *const *inputs, nrl_tensor **input_grads, int n_inputs)
{
    if (!h->tape)
        return nrl_fail(NRL_ERR_CONFIG, "cannot walk back: nothing was recorded; nrl_harness_record comes first");
    nrl_harness_stop(h);
    return tape_backward(h->ctx, h->tape, outputs, grad_outputs, n_outputs, inputs, input_grads, n_inputs);
}

/* ---- a loss, and what it leaves ---- */

nrl_status nrl_harness_loss(nrl_harness *h, const nrl_algorithm *loss, void *self, nrl_batch *batch, nrl_tensor *logps,
                            nrl_tensor **terms)
{
    nrl_harness_leaf(logps);
    nrl_harness_record(h);
    nrl_status st = loss->loss(self, h->ctx, batch, terms);
    nrl_harness_stop(h);
    return st;
}

nrl_status nrl_harness_loss_values(nrl_harness *h, nrl_tensor *const *terms, uint32_t n_terms, nrl_tensor *logps,
                                   double *values, double *grad)
{
    const int64_t one = 1, n = nrl_tensor_numel(logps);
    const float unit = 1;
    nrl_tensor *units[NRL_MAX_TERMS], *gradient;
    for (uint32_t k = 0; k < n_terms; k++) {
        NRL_TRY(nrl_tensor_fetch(h->ctx, terms[k], &values[k], 1));
        NRL_TRY(nrl_tensor_from_host(h->ctx, NRL_DTYPE_F32, 1, &one, &unit, &units[k]));
    }
    if (!grad) return NRL_OK;
    memset(grad, 0, (size_t)n * sizeof *grad); /* where no gradient reaches the log-probs */
    NRL_TRY(nrl_harness_backward(h, terms, units, (int)n_terms, &logps, &gradient, 1));
    nrl_status st = gradient ? nrl_tensor_fetch(h->ctx, gradient, grad, n) : NRL_OK;
    nrl_tensor_free(h->ctx, gradient);
    return st;
}

nrl_status nrl_harness_take_metrics(nrl_harness *h, int64_t *n)
{
    return ctx_take_metrics(h->ctx, &h->metrics, n);
}

void nrl_harness_metric(const nrl_harness *h, int64_t i, uint32_t *index, double *value, double *weight)
{
    *index = h->metrics[i].index;
    *value = h->metrics[i].value;
    *weight = h->metrics[i].weight;
}

nrl_status nrl_harness_save_state(nrl_status (*state)(void *self, nrl_state_io *v), void *self, nrl_arena *memory,
                                  nrl_node **map)
{
    *map = node_new(memory, NRL_NODE_MAP);
    return state(self, &(nrl_state_io){.a = memory, .into = *map});
}

nrl_status nrl_harness_load_state(nrl_status (*state)(void *self, nrl_state_io *v), void *self, const nrl_node *map)
{
    return state(self, &(nrl_state_io){.from = map});
}

/* ---- what tokenizers and templates write into ---- */

nrl_text *nrl_harness_text_create(void)
{
    return mem_alloc(sizeof(nrl_text));
}

void nrl_harness_text_free(nrl_text *text)
{
    if (text) buffer_free(&text->b);
    free(text);
}

const char *nrl_harness_text_bytes(const nrl_text *text, size_t *size)
{
    *size = text->b.size;
    return text->b.text ? text->b.text : "";
}

nrl_spans *nrl_harness_spans_create(void)
{
    return mem_alloc(sizeof(nrl_spans));
}

void nrl_harness_spans_free(nrl_spans *spans)
{
    if (spans) free(spans->at);
    free(spans);
}

size_t nrl_harness_spans_n(const nrl_spans *spans)
{
    return spans->n;
}

void nrl_harness_spans_at(const nrl_spans *spans, size_t i, size_t *begin, size_t *end)
{
    *begin = spans->at[i].begin;
    *end = spans->at[i].end;
}

/* ---- a store ---- */

struct nrl_harness_store {
    store_server *server;
    nrl_store *client;
};

nrl_status nrl_harness_store_open(const nrl_store_plugin *store, const void *options, const char *address,
                                  double timeout_s, nrl_harness_store **out)
{
    const store_kind kind = {store, options};
    store_setup setup = {.address = address, .job = "", .timeout_s = timeout_s};
    nrl_harness_store *s = mem_alloc(sizeof *s);
    *out = NULL;
    nrl_status st = store->serve ? store_serve(&kind, &setup, &s->server) : NRL_OK;
    if (s->server) setup.address = store_server_address(s->server);
    if (st == NRL_OK) st = store_open(&kind, &setup, &s->client);
    if (st == NRL_OK)
        *out = s;
    else
        nrl_harness_store_close(s);
    return st;
}

nrl_store *nrl_harness_store_client(nrl_harness_store *s)
{
    return s->client;
}

void nrl_harness_store_close(nrl_harness_store *s)
{
    if (!s) return;
    store_close(s->client);
    store_server_close(s->server);
    free(s);
}
