/*
 * text.c - the line in the plan: the number of buckets, and the bytes that a rank sends per step. An
 * all_reduce is counted as a ring, 2 (R-1) / R of the bytes; an all_gather as R-1 times the own part.
 */
#include "ddp.h"
#include "../common/text.h"
#include <math.h>

#define append(d, ...) text_append((d)->text, sizeof(d)->text, __VA_ARGS__)

static double ring(const ddp *d, double bytes)
{
    return 2 * bytes * (d->size - 1) / d->size;
}

/* Elements that are reduced whole, and elements of thin matrices. */
static void count(const ddp *d, double *whole, double *thin, double *low_rank)
{
    *whole = *thin = *low_rank = 0;
    for (int32_t i = 0; i < d->n_slots; i++) {
        const nrl_param *p = d->slots[i].param;
        double n = (double)nrl_param_numel(p), rows = (double)nrl_param_dim(p, 0);
        if (!d->slots[i].low_rank) {
            *whole += n;
            continue;
        }
        *low_rank += n;
        *thin += (rows + n / rows) * (double)ddp_low_rank(&d->o, p);
    }
}

/* Bytes that a rank sends per step, and the name of the method. Negative: depends on the gradients. */
static double bytes_of(const ddp *d)
{
    double whole, thin, low_rank;
    count(d, &whole, &thin, &low_rank);
    switch (d->o.compress) {
    case DDP_BF16:
    case DDP_FP16:
        return ring(d, 2 * whole);
    case DDP_POWERSGD:
        return ring(d, 4 * (whole + thin));
    case DDP_TOPK:
        return (d->size - 1) * 8 * ceil(d->o.topk_ratio * whole);
    case DDP_THRESHOLD:
        return -1;
    default:
        return ring(d, (double)nrl_dtype_size(d->gradients) * whole);
    }
}

/* Memory besides the gradients themselves, which are the buckets. */
static double extra_bytes(const ddp *d)
{
    double whole, thin, low_rank;
    count(d, &whole, &thin, &low_rank);
    if (d->o.reproducible) /* levels, and what is received */
        return 4 * whole * (ddp_tree_levels(d) - (d->size == 1));
    double residual = d->o.error_feedback ? 4 * (whole + low_rank) : 0;
    switch (d->o.compress) {
    case DDP_BF16:
    case DDP_FP16:
        return 4 * whole;
    case DDP_POWERSGD:
        return (d->o.error_feedback ? 4 * low_rank : 0) + 3 * 4 * thin;
    case DDP_TOPK:
        return residual + 8 * (d->size + 1) * ceil(d->o.topk_ratio * whole);
    case DDP_THRESHOLD:
        return residual + 8 * (d->size + 1) * whole;
    default:
        return 0;
    }
}

static void describe_codec(ddp *d)
{
    double whole, thin, low_rank, bytes = bytes_of(d);
    count(d, &whole, &thin, &low_rank);
    double plain = ring(d, 4 * (whole + low_rank));
    append(d, ", %d bucket%s", d->n_buckets, d->n_buckets == 1 ? "" : "s");
    if (d->o.reproducible) append(d, ", %lld shards of the batch added in one tree", (long long)d->o.reproducible);
    if (d->o.compress == DDP_BF16 || d->o.compress == DDP_FP16)
        append(d, ", sent in %s, summed in f32", d->o.compress == DDP_BF16 ? "bf16" : "fp16");
    if (d->gradients == NRL_DTYPE_BF16) append(d, " of bf16 gradients");
    if (d->o.compress == DDP_POWERSGD)
        append(d, ", rank %lld for %.0f %% of the elements", (long long)d->o.powersgd_rank,
               100 * low_rank / (whole + low_rank));
    if (d->o.compress == DDP_TOPK) append(d, ", the largest %g %%", 100 * d->o.topk_ratio);
    if (d->o.compress == DDP_THRESHOLD)
        append(d, ", elements from %g on: at most %g MiB per step and rank", d->o.threshold_value,
               (d->size - 1) * 8 * whole / MIB);
    if (d->o.compress > DDP_FP16 && d->o.start_step > 0) append(d, ", after %lld steps", (long long)d->o.start_step);
    if (bytes >= 0 && d->size > 1) append(d, ", %.3g MiB per step and rank", bytes / MIB);
    if (bytes >= 0 && d->o.compress) append(d, " (%.3g %% of f32)", 100 * bytes / plain);
}

void ddp_describe(ddp *d, nrl_parallel_plan *plan)
{
    double whole, thin, low_rank;
    count(d, &whole, &thin, &low_rank);
    if (d->size == 1)
        append(d, "one rank%s", d->o.reproducible ? "" : ", nothing to sum");
    else
        append(d, d->train ? "data parallel over %d ranks" : "a copy on each of %d ranks", d->size);
    if (d->buckets_used) {
        describe_codec(d);
        plan->buffer_bytes = (int64_t)extra_bytes(d);
    } else if (d->train && d->size > 1 && d->n_slots) {
        append(d, ", with independent updates, averaged every %lld updates (%.3g MiB each time)",
               (long long)d->o.sync_every, ring(d, 4 * whole * (1 + (d->o.sync_states ? d->n_states : 0))) / MIB);
        if (ddp_has_outer(d)) append(d, ", outer steps of lr %g and momentum %g", d->o.outer_lr, d->o.outer_momentum);
        /* this rank's own weights, while the slots hold the mean; the last ones in common and the momentum */
        plan->buffer_bytes = (int64_t)(4 * whole * (ddp_has_outer(d) ? 3 : 1));
    }
    plan->text = d->text;
}
