/*
 * harness.h - for programs that test plugins: a context on a backend without a run, hand-made batches, gradients, the
 * metrics and the state of an algorithm, text and spans, a store for rendezvous, and a check of the gradient of a loss.
 * The functions are in libnrl-testing (pkg-config nrl-testing, CMake nrl::libnrl-testing), which `nrl plugins test` and
 * nrl.gradcheck of Lua and Python use.
 *
 *     nrl_harness *h;
 *     double value, grad[N_TARGETS];
 *     nrl_harness_open(backend, options, &h);
 *     nrl_scope_begin(nrl_harness_ctx(h));
 *     nrl_harness_use_batch(h, batch);
 *     nrl_harness_batch_set_column(batch, "logps", logps);
 *     nrl_harness_loss(h, algorithm, self, batch, logps, &sum);
 *     nrl_harness_loss_values(h, &sum, 1, logps, &value, grad);
 *     nrl_harness_forget(h);
 *     nrl_scope_end(nrl_harness_ctx(h));
 *     nrl_harness_close(h);
 *
 * Threads: a harness belongs to the thread that opened it; several may be open. A store may be used by any thread.
 * Growth: the caller sets `size` of a struct to its sizeof.
 */
#ifndef NRL_HARNESS_H
#define NRL_HARNESS_H
#include <nrl/algorithm.h>
#include <nrl/backend.h>
#include <nrl/batch.h>
#include <nrl/collective.h>
#include <nrl/host.h>
#include <nrl/node.h>
#include <nrl/store.h>
#include <nrl/template.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a context ---- */

typedef struct nrl_harness nrl_harness;

/* Opens the first device of a backend; `options` is the backend's filled options struct. Both must outlive the harness.
 * NRL_ERR_DEVICE, NRL_ERR_MEMORY. */
NRL_API nrl_status nrl_harness_open(const nrl_backend *backend, const void *options, nrl_harness **out);
NRL_API void nrl_harness_close(nrl_harness *h); /* h may be NULL */
NRL_API nrl_ctx *nrl_harness_ctx(nrl_harness *h);
NRL_API size_t nrl_harness_live_bytes(const nrl_harness *h); /* bytes of all live tensors */

/* ---- batches ---- */

/* A packed batch, with the legend of nrl/batch.h. Arrays are copied; positions restart at 0 in each segment. */
typedef struct {
    uint32_t size;
    int32_t n_extra;
    int64_t n_tokens, n_rows, n_segments, n_examples;
    const int32_t *tokens;            /* [n_tokens]; NULL = all 0 */
    const int32_t *cu_seqlens;        /* [n_segments + 1] */
    const int32_t *row_token;         /* [n_rows] the token that predicts the row's target */
    const int32_t *row_target;        /* [n_rows] token id */
    const int32_t *row_segment;       /* [n_rows] ascending */
    const float *row_weight;          /* [n_rows] */
    const int32_t *segment_example;   /* [n_segments] ascending */
    const int32_t *segment_side;      /* [n_segments] 0, or 1 = rejected; NULL = all 0 */
    const char *const *extra_names;   /* [n_extra] as data.extra names them; "label" of labelled examples */
    const float *const *extra_values; /* [n_extra][n_segments] */
} nrl_harness_batch;
/* NRL_ERR_CONFIG if there are more extra columns than a batch can have. */
NRL_API nrl_status nrl_harness_batch_create(const nrl_harness_batch *spec, nrl_batch **out);
/* A view of rows [begin, end) that borrows the arrays of b, like the batches that a tokenwise loss receives. */
NRL_API nrl_status nrl_harness_batch_rows(const nrl_batch *b, int64_t begin, int64_t end, nrl_batch **out);
NRL_API void nrl_harness_batch_free(nrl_batch *b); /* b may be NULL */
/* Sets the column that nrl_batch_column returns for this name. The tensor must outlive the use of the batch. */
NRL_API void nrl_harness_batch_set_column(nrl_batch *b, const char *name, nrl_tensor *column);
/* Sets the batch of subsequent operations; NULL = none. */
NRL_API nrl_status nrl_harness_use_batch(nrl_harness *h, nrl_batch *b);

/* ---- gradients ---- */

NRL_API void nrl_harness_leaf(nrl_tensor *t); /* marks t as a leaf that needs a gradient */
/* Starts recording operations, until nrl_harness_backward or nrl_harness_forget. */
NRL_API void nrl_harness_record(nrl_harness *h);
/* Runs the backward from outputs[i] with the gradient grad_outputs[i] (NULL = none). input_grads[i] becomes the
 * gradient of inputs[i], or NULL if it has none; free each with nrl_tensor_free. */
NRL_API nrl_status nrl_harness_backward(nrl_harness *h, nrl_tensor *const *outputs, nrl_tensor *const *grad_outputs,
                                        int n_outputs, nrl_tensor *const *inputs, nrl_tensor **input_grads,
                                        int n_inputs);
NRL_API void nrl_harness_stop(nrl_harness *h);   /* stops recording; keeps the tape for the backward */
NRL_API void nrl_harness_forget(nrl_harness *h); /* releases the tape, after a backward or instead of it */

/* ---- loss, metrics and state of an algorithm ---- */

/* Records a call of algorithm->loss on a batch whose columns are set; `logps`, the column of that name, becomes a leaf.
 * terms[n_terms] start as NULL. nrl_harness_forget comes after it. */
NRL_API nrl_status nrl_harness_loss(nrl_harness *h, const nrl_algorithm *algorithm, void *self, nrl_batch *batch,
                                    nrl_tensor *logps, nrl_tensor **terms);
/* Fetches the terms of nrl_harness_loss to values[n_terms], and the gradient of their sum with respect to logps to
 * grad[targets], zeros if none reaches it; grad may be NULL. */
NRL_API nrl_status nrl_harness_loss_values(nrl_harness *h, nrl_tensor *const *terms, uint32_t n_terms,
                                           nrl_tensor *logps, double *values, double *grad);

/* Fetches the metrics added by nrl_metric_add since the last call; nrl_harness_metric returns metric i of them. */
NRL_API nrl_status nrl_harness_take_metrics(nrl_harness *h, int64_t *n);
NRL_API void nrl_harness_metric(const nrl_harness *h, int64_t i, uint32_t *index, double *value, double *weight);

/* Saves the values that `state` (nrl_algorithm.state) passes to nrl_state_io_* to a map in `memory`; restores them. */
NRL_API nrl_status nrl_harness_save_state(nrl_status (*state)(void *self, nrl_state_io *v), void *self,
                                          nrl_arena *memory, nrl_node **map);
NRL_API nrl_status nrl_harness_load_state(nrl_status (*state)(void *self, nrl_state_io *v), void *self,
                                          const nrl_node *map);

/* ---- what tokenizers and templates write into ---- */

NRL_API nrl_text *nrl_harness_text_create(void);
NRL_API void nrl_harness_text_free(nrl_text *text); /* text may be NULL */
/* The bytes so far, NUL-terminated; valid until the text changes. */
NRL_API const char *nrl_harness_text_bytes(const nrl_text *text, size_t *size);
NRL_API nrl_spans *nrl_harness_spans_create(void);
NRL_API void nrl_harness_spans_free(nrl_spans *spans); /* spans may be NULL */
NRL_API size_t nrl_harness_spans_n(const nrl_spans *spans);
/* Span i of nrl_harness_spans_n. */
NRL_API void nrl_harness_spans_at(const nrl_spans *spans, size_t i, size_t *begin, size_t *end);

/* ---- a store ---- */

/* A store for a collective's `open`, with its server in this process if the plugin has one. `store` and `options` must
 * live as long; the installed store plugin serves the address "127.0.0.1:0". */
typedef struct nrl_harness_store nrl_harness_store;
NRL_API nrl_status nrl_harness_store_open(const nrl_store_plugin *store, const void *options, const char *address,
                                          double timeout_s, nrl_harness_store **out);
NRL_API nrl_store *nrl_harness_store_client(nrl_harness_store *s);
NRL_API void nrl_harness_store_close(nrl_harness_store *s); /* s may be NULL */

/* ---- checking a loss ---- */

typedef struct {
    uint32_t size;
    uint32_t n_extra;
    const char *backend;      /* name of a backend plugin whose memory the host can read */
    const char *const *extra; /* [n_extra] columns of data.extra that the loss reads, at most 8 */
    double tolerance;         /* of the gradient, relative to max(1, |gradient|); 0 = 0.005 */
} nrl_gradcheck_options;

/* Checks a loss on a small synthetic batch: the gradient of the log-probs must equal finite differences of the loss,
 * and loss and weight must be sums over examples, so that splitting a batch changes nothing. A correct loss may fail if
 * a value is near a kink (relu, clamp). *worst is the largest difference. NRL_ERR_CONFIG names what differs. */
NRL_API nrl_status nrl_gradcheck(const nrl_environment *env, const nrl_algorithm *loss, void *self,
                                 const nrl_gradcheck_options *options, double *worst);

#ifdef __cplusplus
}
#endif
#endif
