/*
 * plan.c - layouts of all parts, bytes of buffers, and the line in the plan. Allocates no tensor.
 */
#include "fsdp.h"
#include "../common/text.h"
#include <stdlib.h>
#include <string.h>

/* ---- layouts: flat ranges; alignment gaps belong to no rank ---- */

/* One placement: which elements of the part, which begins at `at` in the group's buffer, are in each rank's share. */
static nrl_status cut_part(const fsdp *s, const fsdp_group *g, nrl_part *part, int64_t at, int64_t *ranges)
{
    int64_t *begin = ranges, *end = ranges + s->n_ranks, n = nrl_part_numel(s->mesh, part);
    nrl_layout *l = &part->layout;
    if (l->n_placements == NRL_MAX_PLACEMENTS)
        return nrl_fail(NRL_ERR_BUG, "'%s' already has %d placements", part->name, l->n_placements);
    for (int32_t r = 0; r < s->n_ranks; r++) {
        int64_t from = r * g->share - at, to = from + g->share;
        begin[r] = from < 0 ? 0 : from > n ? n : from;
        end[r] = to < 0 ? 0 : to > n ? n : to;
    }
    l->placements[l->n_placements++] = (nrl_placement){s->axis, NRL_SHARD_FLAT, s->n_ranks, begin, end};
    return NRL_OK;
}

static int64_t count_parts(const fsdp *s)
{
    int64_t n = 0;
    for (int32_t g = 0; g < s->n_groups; g++)
        for (int32_t i = 0; i < s->groups[g].n_params; i++)
            n += nrl_param_n_parts(s->groups[g].params[i].param);
    return n;
}

static nrl_status write_layouts(fsdp *s)
{
    size_t size = 2 * (size_t)s->n_ranks;
    int64_t *at = s->ranges = calloc((size_t)count_parts(s) * size + 1, sizeof *s->ranges);
    if (!at) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    for (int32_t k = 0; k < s->n_groups; k++)
        for (int32_t i = 0; i < s->groups[k].n_params; i++) {
            fsdp_param *p = &s->groups[k].params[i];
            int64_t offset = p->offset;
            for (int part = 0; part < nrl_param_n_parts(p->param); part++, at += size) {
                int64_t n = nrl_part_numel(s->mesh, nrl_param_part(p->param, part));
                NRL_TRY(cut_part(s, &s->groups[k], nrl_param_part(p->param, part), offset, at));
                offset += n;
            }
        }
    return NRL_OK;
}

/* ---- bytes ---- */

static int64_t slots_bytes(const fsdp_slots *slots, nrl_dtype dtype)
{
    int64_t n = 0;
    for (int32_t i = 0; i < slots->n; i++)
        n += slots->numel[i];
    return n * (int64_t)nrl_dtype_size(dtype);
}

/* Bytes that bind allocates for a group's own shards and unsharded gradients. */
static int64_t taken(const fsdp *s, const fsdp_group *g)
{
    int64_t n = 0;
    if (s->options.shard == FSDP_FULL || fsdp_casts(s, g))
        n = g->share * (int64_t)nrl_dtype_size(fsdp_shard_dtype(s, g));
    if (!g->trained) return n;
    if (s->plan.split16) n += g->share * (int64_t)nrl_dtype_size(NRL_DTYPE_U16);
    if (s->options.reproducible) return n + 4 * (g->padded + fsdp_tree_levels(s) * g->share);
    return n + (int64_t)nrl_dtype_size(fsdp_grad_dtype(s)) * (fsdp_sums_whole(s) ? g->padded : g->share);
}

/* Bytes of the unsharded WEIGHT, of `n` elements: with `offload` all that stays on the device. */
static int64_t whole_bytes(const fsdp *s, int64_t n)
{
    return s->options.shard == FSDP_FULL ? 0 : n * (int64_t)nrl_dtype_size((nrl_dtype)s->plan.compute);
}

/* Bytes of shards that the layouts describe. The core counts them itself. */
static int64_t described(const fsdp *s, const fsdp_group *g)
{
    int64_t n = 0;
    if (s->options.shard == FSDP_FULL || fsdp_casts(s, g))
        n = g->local * (int64_t)nrl_dtype_size(fsdp_shard_dtype(s, g));
    if (!g->trained) return n;
    if (s->plan.split16) n += g->local * (int64_t)nrl_dtype_size(NRL_DTYPE_U16);
    return n + (int64_t)nrl_dtype_size(fsdp_grad_dtype(s)) * g->local;
}

/* ---- text ---- */

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void write_text(fsdp *s, int64_t gathered, int64_t reduced)
{
    static const char *const modes[] = {"full shard", "gradients and optimizer sharded", "optimizer sharded"};
#define append(...) text_append(s->text, sizeof s->text, __VA_ARGS__)
    *s->text = 0;
    append("%s over %d rank%s", modes[s->options.shard], s->n_ranks, s->n_ranks == 1 ? "" : "s");
    if (s->n_replicas > 1) append(", %d replicas", s->n_replicas);
    append(", %d units", s->n_runs);
    if (s->options.reproducible)
        append(", %lld shards of the batch added in one tree", (long long)s->options.reproducible);
    if (gathered) append("; at most %d gathered, %.1f MiB", s->work_slots.n, mib(gathered));
    if (reduced) append("; gradients in %d buffers, %.1f MiB", s->acc_slots.n + s->wire_slots.n, mib(reduced));
    if (s->options.offload) append("; shards %s", s->options.offload == FSDP_ON_DISK ? "on disk" : "on the host");
#undef append
}

static void answer(fsdp *s, nrl_parallel_plan *plan)
{
    int64_t gathered = slots_bytes(&s->work_slots, (nrl_dtype)plan->compute);
    int64_t reduced = slots_bytes(&s->acc_slots, NRL_DTYPE_F32) + slots_bytes(&s->wire_slots, fsdp_wire_dtype(s));
    plan->gathers_weights = s->options.shard == FSDP_FULL;
    plan->reduces_grads = plan->train;
    plan->buffer_bytes = gathered + reduced;
    for (int32_t g = 0; g < s->n_groups; g++) {
        const fsdp_group *group = &s->groups[g];
        plan->buffer_bytes += whole_bytes(s, group->padded - group->whole);
        if (s->options.offload)
            plan->offloaded_bytes += described(s, group);
        else
            plan->buffer_bytes += taken(s, group) - described(s, group);
    }
    write_text(s, gathered, reduced);
    plan->text = s->text;
}

/* ---- the call ---- */

/* The least multiple of FSDP_ALIGN that keeps the optimizer's blocks together. */
static int64_t alignment(uint32_t block)
{
    int64_t align = FSDP_ALIGN;
    while (block && align % block)
        align += FSDP_ALIGN;
    return align;
}

/* Unsharded gradients sum micro-batches in f32. */
static nrl_status refuse_bf16(const fsdp *s)
{
    if (!s->plan.bf16_gradients || !fsdp_sums_whole(s)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "train.gradients: bf16 is not supported: %s sums micro-batches in unsharded fp32 gradients; "
                    "expected shard: grads or full, and no `reproducible`",
                    s->options.reproducible ? "reproducible" : "shard: optimizer");
}

/* Nothing to shard: the core binds whole tensors as it does without a strategy. */
static bool is_idle(const fsdp *s)
{
    if (!s->plan.train && s->options.shard != FSDP_FULL) return true;
    return s->n_ranks == 1 && !s->options.offload && !(s->plan.train && s->options.reproducible);
}

nrl_status fsdp_plan(void *self, nrl_parallel_plan *plan)
{
    fsdp *s = self;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    s->plan = *plan;
    s->align = alignment(plan->block);
    s->idle = is_idle(s);
    if (s->idle) {
        snprintf(s->text, sizeof s->text, "%s", s->n_ranks == 1 ? "one rank, nothing to shard" : "whole on every rank");
        plan->text = s->text;
        return NRL_OK;
    }
    NRL_TRY(refuse_bf16(s));
    NRL_TRY(fsdp_build_groups(s));
    NRL_TRY(fsdp_assign_slots(s));
    NRL_TRY(write_layouts(s));
    answer(s, plan);
    return NRL_OK;
}
