/*
 * reference.c - the second model, and the three ways to its log-probs; reference_cache.c has the file of cached ones.
 */
#include "run/weights/reference.h"
#include "model/find.h"
#include "run/weights/reference_cache.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const nrl_option reference_rows[] = {
    NRL_OPT_ENUM(reference_options, reference, "online", "online|cached|none",
                 "log-probs of the reference model: computed in each step, once before training, or zero"),
    NRL_OPT_PATH(reference_options, reference_model, "",
                 "the reference model, with the values of model.path; unset: the initial model"),
    NRL_OPT_BOOL(reference_options, check_initial_loss, "true",
                 "stop if the first loss is not the value of the loss for an equal policy and reference"),
};
const size_t reference_n_rows = sizeof reference_rows / sizeof *reference_rows;
const nrl_option teacher_rows[] = {
    {"teacher_model", "", NULL, "the teacher, with the values of model.path and the same vocabulary; required", 0, 0,
     NRL_OFFSET(reference_options, reference_model, const char *), NRL_TYPE_PATH},
};
const size_t teacher_n_rows = sizeof teacher_rows / sizeof *teacher_rows;

bool reference_is_teacher(const nrl_algorithm *a)
{
    return work_needs(a, "teacher_logps") || work_needs(a, "teacher_logits");
}

bool reference_is_needed(const nrl_algorithm *a)
{
    return work_needs(a, "ref_logps") || reference_is_teacher(a);
}

const char *reference_key(const nrl_algorithm *a)
{
    return reference_is_teacher(a) ? "algorithm.teacher_model" : "algorithm.reference_model";
}

struct reference {
    reference_setup setup;
    model *model; /* NULL once nothing is computed any more, and where it is shared */
    bool computes;
    strategy strategy;
    storage storage;
    work work;
    reference_cache **caches; /* [n_caches], one of each data set; NULL = it has none */
    size_t n_caches;
};

static nrl_status open_weights(reference *r)
{
    const reference_setup *s = &r->setup;
    NRL_TRY(model_create(s->table, s->config, &r->model));
    if (r->model->drops_head && !s->policy->drops_head)
        return nrl_fail(NRL_ERR_CONFIG, "it has a score head instead of an output layer; expected a language model");
    /* Checks that log-probs of the two models can be compared, and that the second model was trained with such
     * positions. */
    const nrl_model_info *own = &r->model->info, *policy = &r->setup.policy->info;
    /* Some families pad the vocabulary of larger models further: a teacher's additional logits are dropped. */
    bool fits = s->is_teacher ? own->vocab_size >= policy->vocab_size : own->vocab_size == policy->vocab_size;
    if (!fits)
        return nrl_fail(NRL_ERR_CONFIG, "its vocabulary is %lld, that of the policy %lld; expected equal sizes%s",
                        (long long)own->vocab_size, (long long)policy->vocab_size, s->is_teacher ? " or more" : "");
    if (own->max_positions > 0 && r->setup.max_length > own->max_positions)
        return nrl_fail(NRL_ERR_CONFIG, "data.max_length %lld is more than its %lld positions",
                        (long long)r->setup.max_length, (long long)own->max_positions);
    const strategy_setup setup = {
        .choices = s->choices, .mesh = s->mesh, .m = r->model, .instance = 1, .quiet = true, .compute = s->compute};
    NRL_TRY(strategy_open(&setup, &r->strategy));
    NRL_TRY(strategy_bind(&r->strategy, s->ctx));
    const storage_spec spec = strategy_storage(&r->strategy, &setup);
    NRL_TRY(storage_bind(s->ctx, r->model, &spec, &r->storage));
    r->work.ctx = s->ctx;
    r->work.policy = r->model;
    r->work.instance = 1;
    r->work.strategy = &r->strategy;
    r->work.stage = strategy_stage(&r->strategy, &setup);
    work_open(&r->work);
    NRL_TRY(origin_check(&s->origin, r->model));
    NRL_TRY(origin_load(&s->origin, s->ctx, r->model, s->mesh));
    return strategy_updated(&r->strategy, s->ctx, 0);
}

static void close_weights(reference *r)
{
    r->computes = false;
    if (!r->model) return;
    work_close(&r->work);
    strategy_close(&r->strategy, r->setup.ctx);
    storage_free(r->setup.ctx, r->model, &r->storage);
    model_destroy(r->model);
    r->model = NULL;
    r->work = (work){0};
}

typedef struct {
    reference *r;
    nrl_batch *batch;
    nrl_tensor **column;
} head_call;

work *reference_walk(reference *r)
{
    return r->setup.shared ? r->setup.shared : &r->work;
}

static nrl_status log_probs(void *user, nrl_tensor *hidden)
{
    const head_call *c = user;
    head_tensors v;
    const head_spec *head = &reference_walk(c->r)->policy->head;
    if (c->batch->is_tail) return NRL_OK;
    NRL_TRY(head_columns(c->r->setup.ctx, head, hidden, HEAD_LOGP, 1.0, &v));
    const nrl_batch *own = ctx_batch(c->r->setup.ctx);
    if (own->whole)
        NRL_TRY(strategy_whole(reference_walk(c->r)->strategy, c->r->setup.ctx, own->row_number, own->n_rows,
                               c->batch->n_rows, &v.logps));
    *c->column = tensor_retain(v.logps);
    return NRL_OK;
}

/* Runs one forward without a tape; the column is [P] f32, none for an empty batch. */
static nrl_status compute(reference *r, nrl_batch *batch, nrl_tensor **column)
{
    head_call call = {r, batch, column};
    *column = NULL;
    ctx_settings_of(r->setup.ctx)->adapters_off = r->setup.shared;
    nrl_status st = strategy_divide(reference_walk(r)->strategy, batch);
    if (st == NRL_OK) st = work_hidden(reference_walk(r), batch_own(batch), log_probs, &call);
    ctx_settings_of(r->setup.ctx)->adapters_off = false;
    return st;
}

static nrl_status compute_to_host(void *user, nrl_batch *batch, float *logps)
{
    reference *r = user;
    nrl_tensor *column;
    NRL_TRY(compute(r, batch, &column));
    if (!column) return NRL_OK;
    nrl_status st = tensor_read(r->setup.ctx, column, logps);
    tensor_release(r->setup.ctx, column);
    return st;
}

static nrl_status open_caches(reference *r, const dataset *const *sets, size_t n)
{
    const reference_setup *s = &r->setup;
    char key[33];
    if (!s->cache_dir)
        return nrl_fail(NRL_ERR_CONFIG, "algorithm.reference: cached needs a directory for its file: set data.cache");
    NRL_TRY(origin_key(&s->origin, key));
    if (s->mesh) { /* the key covers all bytes, whichever of them this rank loaded */
        char *line = mem_printf("weights of the reference: %s\n", key);
        nrl_status st =
            mesh_compare(s->mesh, "reference", line, "every node must have the same files under the same path");
        free(line);
        NRL_TRY(st);
    }
    r->caches = mem_alloc((n + 1) * sizeof(reference_cache *));
    r->n_caches = n;
    for (size_t i = 0; i < n; i++) {
        if (!sets[i]) continue;
        const reference_cache_setup c = {.folder = s->cache_dir,
                                         .weights_key = key,
                                         .config = s->config,
                                         .rounding = s->rounding,
                                         .data = sets[i],
                                         .prompt_targets = s->prompt_targets,
                                         .micro_batch_tokens = s->micro_batch_tokens,
                                         .shards = s->shards,
                                         .mesh = s->mesh,
                                         .compute = compute_to_host,
                                         .user = r,
                                         .signal = s->signal};
        NRL_TRY(reference_cache_open(&c, &r->caches[i]));
    }
    return NRL_OK;
}

nrl_status reference_open(const reference_setup *setup, const dataset *const *sets, size_t n_sets, reference **out)
{
    reference *r = mem_alloc(sizeof *r);
    nrl_status st = NRL_OK;
    r->setup = *setup;
    *out = r;
    if (setup->options->reference != REFERENCE_NONE) {
        r->computes = true;
        st = r->setup.shared ? NRL_OK : open_weights(r);
    }
    if (st == NRL_OK && setup->options->reference == REFERENCE_CACHED) {
        st = open_caches(r, sets, n_sets);
        close_weights(r); /* from here on values come from the file */
    }
    if (st == NRL_OK) return NRL_OK;
    nrl_add_context(setup->is_teacher ? "algorithm.teacher_model" : "reference model");
    reference_close(r);
    *out = NULL;
    return st;
}

void reference_close(reference *r)
{
    if (!r) return;
    close_weights(r);
    for (size_t i = 0; i < r->n_caches; i++)
        reference_cache_close(r->caches[i]);
    free(r->caches);
    free(r);
}

nrl_status reference_column(reference *r, size_t set, nrl_batch *batch, nrl_tensor **column)
{
    nrl_status st = NRL_OK;
    *column = NULL;
    if (r->computes)
        st = compute(r, batch, column);
    else if (!batch->is_tail) {
        int64_t n = batch->n_rows;
        float *values = mem_try((size_t)n * sizeof *values, "reference log-probs"); /* zeros: the reference-free form */
        if (!values) st = NRL_ERR_MEMORY;
        if (st == NRL_OK && set < r->n_caches && r->caches[set])
            st = reference_cache_fill(r->caches[set], batch, values);
        if (st == NRL_OK) st = tensor_persistent(r->setup.ctx, NRL_DTYPE_F32, 1, &n, false, column);
        if (st == NRL_OK) st = tensor_write(r->setup.ctx, *column, values);
        free(values);
    }
    if (st != NRL_OK)
        nrl_add_context("log-probs of the %s", r->setup.is_teacher ? "teacher" : "reference");
    else if (*column)
        batch_set_column(batch, r->setup.is_teacher ? "teacher_logps" : "ref_logps", *column);
    return st;
}

bool reference_is_start(const reference *r)
{
    return r->setup.options->reference != REFERENCE_NONE && !*r->setup.options->reference_model;
}

bool reference_is_shared(const reference *r)
{
    return r->setup.shared;
}

int64_t reference_bytes(const reference *r)
{
    return r->model ? r->storage.work_bytes + r->strategy.plan.buffer_bytes : 0;
}
