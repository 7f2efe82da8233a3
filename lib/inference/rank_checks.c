/*
 * rank_checks.c - nrl_run_services.rank_checks, for `debug: true`: who the ranks are and what each computes, and every
 * few steps whether values that must be equal on several ranks are. Each rank hashes each parameter, the ranks exchange
 * the hashes, and those are compared whose elements are the same according to the layouts.
 */
#include "inference/rank_checks.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the ranks and their work ---- */

typedef struct {
    char host[64];
    int64_t pid, local_rank, threads, parameters;
} rank_info;

static nrl_status check_group(trainer *tr)
{
    int32_t n = nrl_mesh_world(tr->parts.mesh);
    rank_info own = {
        .pid = getpid(), .local_rank = mesh_where(tr->parts.mesh)->local_rank, .threads = tr->parts.device->n_threads};
    gethostname(own.host, sizeof own.host - 1);
    for (int64_t i = 0; i < tr->n_slices; i++)
        own.parameters += tr->slices[i].n;
    rank_info *all = mem_alloc((size_t)n * sizeof *all);
    nrl_status st = mesh_exchange(tr->parts.mesh, "info of the group", &own, sizeof own, all);
    for (int32_t i = 0; i < n && st == NRL_OK && nrl_mesh_rank(tr->parts.mesh) == 0; i++)
        telemetry_log(
            tr->parts.telemetry,
            "debug      rank %d of %d: %.63s, process %lld, local rank %lld, %lld threads, updates %lld elements", i, n,
            all[i].host, (long long)all[i].pid, (long long)all[i].local_rank, (long long)all[i].threads,
            (long long)all[i].parameters);
    free(all);
    return st;
}

typedef struct {
    int64_t tokens, samples, micro_batch, empty;
} rank_share;

static nrl_status check_data(trainer *tr, const data_step *data)
{
    int32_t n = nrl_mesh_world(tr->parts.mesh);
    rank_share own = {.micro_batch = data->n_micro_batches};
    for (int64_t m = 0; m < data->n_micro_batches; m++) {
        if (data->micro_batch[m]->is_tail) {
            own.empty++;
            continue;
        }
        own.tokens += data->micro_batch[m]->n_tokens;
        own.samples += data->micro_batch[m]->n_examples;
    }
    rank_share *all = mem_alloc((size_t)n * sizeof *all);
    nrl_status st = mesh_exchange(tr->parts.mesh, "shares of the ranks", &own, sizeof own, all);
    for (int32_t i = 0; i < n && st == NRL_OK && nrl_mesh_rank(tr->parts.mesh) == 0; i++)
        telemetry_log(
            tr->parts.telemetry,
            "debug      step %lld rank %d: %lld tokens of %lld samples in %lld micro-batches, %lld of them empty",
            (long long)tr->progress.step + 1, i, (long long)all[i].tokens, (long long)all[i].samples,
            (long long)all[i].micro_batch, (long long)all[i].empty);
    free(all);
    return st;
}

/* ---- what must be equal ---- */

static nrl_status hash_tensor(trainer *tr, nrl_tensor *t, uint64_t *hash)
{
    size_t size = (size_t)nrl_tensor_numel(t) * nrl_dtype_size(nrl_tensor_dtype(t));
    void *bytes = mem_try(size ? size : 1, "a parameter that is compared between ranks");
    if (!bytes) return NRL_ERR_MEMORY;
    nrl_status st = tensor_read(tr->parts.work->ctx, t, bytes);
    *hash = XXH3_64bits(bytes, size);
    free(bytes);
    return st;
}

static nrl_status compare(trainer *tr, nrl_slot slot, const char *what, const uint64_t *all)
{
    int32_t n_params = tr->parts.work->policy->n_params;
    for (int32_t i = 0; i < n_params; i++) {
        const nrl_param *p = tr->parts.work->policy->params[i];
        for (int32_t rank = 1; rank < nrl_mesh_world(tr->parts.mesh); rank++) {
            /* Ranks that see the same box have the same WEIGHT; the other slots are equal where the layouts are. */
            int32_t other = slot == NRL_SLOT_WEIGHT ? layout_work_owner(tr->parts.mesh, rank, p)
                                                    : layout_owner(tr->parts.mesh, rank, p);
            if (all[(size_t)rank * n_params + i] == all[(size_t)other * n_params + i]) continue;
            return nrl_fail(NRL_ERR_BUG,
                            "%s of '%s' differs between rank %d and rank %d%s\n"
                            "hint: a host or device with faulty memory, or a plugin that is not "
                            "deterministic",
                            what, p->name, other, rank, slot == NRL_SLOT_WEIGHT ? " (copy in the compute dtype)" : "");
        }
    }
    return NRL_OK;
}

static nrl_status check_slot(trainer *tr, nrl_slot slot, const char *what)
{
    size_t n = (size_t)tr->parts.work->policy->n_params, ranks = (size_t)nrl_mesh_world(tr->parts.mesh);
    uint64_t *own = mem_alloc(n * (ranks + 1) * sizeof *own), *all = own + n;
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        const nrl_param *p = tr->parts.work->policy->params[i];
        nrl_tensor *t = p->packs ? NULL : nrl_param_tensor(p, slot); /* ranks have different shares of a store */
        own[i] = 0;
        if (t) st = hash_tensor(tr, t, &own[i]);
    }
    if (st == NRL_OK) st = mesh_exchange(tr->parts.mesh, what, own, n * sizeof *own, all);
    if (st == NRL_OK) st = compare(tr, slot, what, all);
    free(own);
    return st;
}

/* Local steps differ until they are averaged. */
static bool compares(const trainer *tr)
{
    return nrl_mesh_world(tr->parts.mesh) > 1 && !tr->parts.work->strategy->plan.local_steps;
}

static nrl_status check_gradients(trainer *tr)
{
    return compares(tr) ? check_slot(tr, NRL_SLOT_GRAD_SHARD, "the gradient") : NRL_OK;
}

static nrl_status check_weights(trainer *tr)
{
    if (!compares(tr)) return NRL_OK;
    NRL_TRY(check_slot(tr, NRL_SLOT_MASTER, "the weight"));
    NRL_TRY(check_slot(tr, NRL_SLOT_HI16, "the weight"));
    NRL_TRY(check_slot(tr, NRL_SLOT_LO16, "the weight"));
    /* The collective that fills WEIGHT may still be running: a strategy that reduces into slices also gathers from
     * them. */
    bool gathers = tr->parts.work->strategy->plan.gathers_weights || tr->parts.work->strategy->plan.reduces_grads;
    return gathers ? NRL_OK : check_slot(tr, NRL_SLOT_WEIGHT, "the weight");
}

const struct nrl_rank_checks rank_checks = {check_group, check_data, check_gradients, check_weights};
