/*
 * plan.c - epochs, global batches and micro-batches. A plan caches the order of one epoch and the assignment of one
 * step; any step can be requested at any time.
 */
#include "data/data.h"
#include "base/arena.h"
#include "data/order.h"
#include "data/pack.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_EPOCH = 1, KEY_ENTRY = 2 };

/* Where an example belongs in an even order. */
struct placed {
    double at;
    int32_t example;
};

struct data_plan {
    const dataset *data;
    data_plan_options o;
    int64_t n_epoch, n_steps;      /* examples and steps of an epoch */
    int64_t epoch;                 /* the epoch of `order`, -1 = none */
    int32_t *order;                /* [n_epoch] examples */
    int64_t step, n_micro_batches; /* the step of the assignment, -1 = none */
    int64_t n_batch;               /* examples of that step */
    int32_t n_shards;              /* of a global batch, on all ranks */
    /* Everything is allocated with the plan, so a step never lacks memory. */
    int64_t *lengths, *place; /* [global_batch] */
    int64_t *micro_batch;     /* [global_batch] result of data_plan_micro_batch */
    int64_t *scratch;         /* of data_pack, with a budget */
    struct placed *spread;    /* [n_epoch], with `even` */
    int32_t *permuted;        /* [examples of the largest entry whose weight is not whole] */
};

/* ---- creating ---- */

/* A group must be complete in every global batch except the last one of an epoch. */
static nrl_status check_group(const data_plan_options *o)
{
    if (o->group <= 1) return NRL_OK;
    if (o->global_batch % o->group)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.global_batch %" PRId64 ": the loss couples groups of %" PRId64 ", expected a multiple",
                        o->global_batch, o->group);
    if (!o->micro_batch_tokens && o->micro_batch % o->group)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.micro_batch %" PRId64 ": the loss couples groups of %" PRId64 ", expected a multiple",
                        o->micro_batch, o->group);
    return NRL_OK;
}

static int by_falling_length(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

/* Any examples can be in one group, so the longest ones must fit together. */
static nrl_status check_group_lengths(const dataset *d, const data_plan_options *o)
{
    int64_t n = dataset_info(d)->n_examples, sum = 0;
    if (o->group <= 1 || !o->micro_batch_tokens) return NRL_OK;
    int64_t *lengths = mem_try((size_t)n * sizeof *lengths, "the lengths of samples");
    if (!lengths) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        lengths[i] = dataset_example_tokens(d, i);
    qsort(lengths, (size_t)n, sizeof *lengths, by_falling_length);
    for (int64_t i = 0; i < n && i < o->group; i++)
        sum += lengths[i];
    free(lengths);
    if (sum <= o->micro_batch_tokens) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "the loss couples groups of %" PRId64 ", the longest of which have %" PRId64
                    " tokens: they do not fit into train.micro_batch_tokens %" PRId64
                    "\nhint: raise it, or use smaller groups",
                    o->group, sum, o->micro_batch_tokens);
}

int64_t data_plan_entry_examples(const dataset_part *entry)
{
    return llround(entry->weight * (double)entry->n);
}

static nrl_status check_lengths(const dataset *d, const data_plan_options *o)
{
    int64_t worst = 0, longest = 0;
    for (int64_t i = 0; i < dataset_info(d)->n_examples; i++) {
        int64_t n = dataset_example_tokens(d, i);
        if (n > longest) longest = n, worst = i;
    }
    char place[512];
    dataset_place(d, worst, place, sizeof place);
    const char *what = dataset_info(d)->has_pairs      ? "pair"
                       : dataset_info(d)->n_sides == 2 ? "sample with its kl_pairs answer"
                                                       : "sample";
    if (o->micro_batch_tokens && longest > o->micro_batch_tokens)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: a %s of %" PRId64 " tokens does not fit into "
                        "train.micro_batch_tokens %" PRId64 "\nhint: raise it, or limit samples by data.max_length",
                        place, what, longest, o->micro_batch_tokens);
    if (!o->micro_batch_tokens && longest > INT32_MAX / o->micro_batch)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: %" PRId64 " samples (train.micro_batch) of up to %" PRId64
                        " tokens are too many for one micro-batch",
                        place, o->micro_batch, longest);
    return NRL_OK;
}

static int64_t epoch_examples(const data_plan *p, const dataset_part *entry)
{
    return p->o.whole ? entry->n : data_plan_entry_examples(entry);
}

static nrl_status count_epoch(data_plan *p)
{
    const int64_t g = p->o.global_batch;
    double wanted = 0;
    for (int64_t i = 0; i < dataset_info(p->data)->n_parts;) {
        const dataset_part entry = dataset_entry_at(p->data, &i);
        wanted += p->o.whole ? (double)entry.n : entry.weight * (double)entry.n;
        if (wanted > INT32_MAX)
            return nrl_fail(NRL_ERR_CONFIG, "data: the weights give an epoch of %.3g samples; expected at most %d",
                            wanted, INT32_MAX);
        const int64_t n = epoch_examples(p, &entry);
        if (!n && entry.n && entry.weight > 0)
            return nrl_fail(NRL_ERR_CONFIG,
                            "data.train: weight %g of %s takes none of its %" PRId64 " samples, expected at least %.3g",
                            entry.weight, entry.path, entry.n, 0.5 / (double)entry.n);
        p->n_epoch += n;
    }
    p->n_steps = p->o.drop_last ? p->n_epoch / g : (p->n_epoch + g - 1) / g;
    if (p->n_steps) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "an epoch of %" PRId64 " samples holds no full train.global_batch of %" PRId64
                    " (data.last_batch: drop)",
                    p->n_epoch, g);
}

/* Copies the options and counts of a plan into one with its own memory. */
static nrl_status allocate(const data_plan *from, data_plan **out)
{
    static const char what[] = "the plan of steps";
    data_plan *p = mem_alloc(sizeof *p);
    int64_t most = from->o.global_batch < from->n_epoch ? from->o.global_batch : from->n_epoch, largest = 0;
    *p = (data_plan){.data = from->data, .o = from->o, .n_epoch = from->n_epoch, .n_steps = from->n_steps};
    p->epoch = p->step = -1;
    p->o.shards.n += !p->o.shards.n;
    p->n_shards = p->o.ranks * p->o.shards.n;
    for (int64_t i = 0; i < dataset_info(p->data)->n_parts;) {
        const dataset_part entry = dataset_entry_at(p->data, &i);
        if (epoch_examples(p, &entry) % entry.n && entry.n > largest) largest = entry.n;
    }
    int64_t n_scratch = p->o.micro_batch_tokens ? data_pack_scratch(most, p->n_shards) : 0;
    if ((p->order = mem_try((size_t)p->n_epoch * sizeof *p->order, what)) &&
        (p->permuted = mem_try((size_t)largest * sizeof *p->permuted, what)) &&
        (p->lengths = mem_try((size_t)most * sizeof *p->lengths, what)) &&
        (p->place = mem_try((size_t)most * sizeof *p->place, what)) &&
        (p->micro_batch = mem_try((size_t)most * sizeof *p->micro_batch, what)) &&
        (!p->o.even || (p->spread = mem_try((size_t)p->n_epoch * sizeof *p->spread, what))) &&
        (p->scratch = mem_try((size_t)n_scratch * sizeof *p->scratch, what))) {
        *out = p;
        return NRL_OK;
    }
    data_plan_destroy(p);
    return NRL_ERR_MEMORY;
}

nrl_status data_plan_create(const dataset *d, const data_plan_options *options, data_plan **out)
{
    data_plan p = {.data = d, .o = *options};
    if (options->global_batch < 1 || options->global_batch > INT32_MAX)
        return nrl_fail(NRL_ERR_CONFIG, "train.global_batch %" PRId64 ": expected 1 to %d", options->global_batch,
                        INT32_MAX);
    if (options->micro_batch_tokens < 0 || options->micro_batch_tokens > INT32_MAX)
        return nrl_fail(NRL_ERR_CONFIG, "train.micro_batch_tokens %" PRId64 ": expected 1 to %d",
                        options->micro_batch_tokens, INT32_MAX);
    if (!options->micro_batch_tokens && (options->micro_batch < 1 || options->micro_batch > INT32_MAX))
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.micro_batch %" PRId64 ": expected 1 to %d where "
                        "train.micro_batch_tokens is not set",
                        options->micro_batch, INT32_MAX);
    NRL_ASSERT(options->ranks, >, 0);
    NRL_ASSERT(options->rank, <, options->ranks);
    NRL_TRY(check_group(options));
    NRL_TRY(check_lengths(d, options));
    NRL_TRY(check_group_lengths(d, options));
    NRL_TRY(count_epoch(&p));
    return allocate(&p, out);
}

nrl_status data_plan_copy(const data_plan *p, data_plan **out)
{
    return allocate(p, out);
}

void data_plan_destroy(data_plan *p)
{
    if (!p) return;
    free(p->order);
    free(p->lengths);
    free(p->place);
    free(p->micro_batch);
    free(p->scratch);
    free(p->permuted);
    free(p->spread);
    free(p);
}

/* ---- the order of an epoch ---- */

static int by_number(const void *x, const void *y)
{
    return *(const int32_t *)x - *(const int32_t *)y; /* both are not negative */
}

static int by_place(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    return a->at != b->at ? (a->at > b->at) - (a->at < b->at) : (a->example > b->example) - (a->example < b->example);
}

/* The k-th of n examples of an entry gets the place (k + 1/2) / n of the epoch, so any consecutive examples have the
 * shares of the entries. */
static void spread_evenly(data_plan *p)
{
    int64_t at = 0;
    for (int64_t i = 0; i < dataset_info(p->data)->n_parts;) {
        const dataset_part entry = dataset_entry_at(p->data, &i);
        const int64_t n = epoch_examples(p, &entry);
        int64_t k = 0;
        for (int64_t e = 0; e < p->n_epoch; e++)
            if (p->order[e] >= entry.first && p->order[e] < entry.first + entry.n)
                p->spread[at++] = (struct placed){((double)k++ + 0.5) / (double)n, p->order[e]};
    }
    qsort(p->spread, (size_t)p->n_epoch, sizeof *p->spread, by_place);
    for (int64_t e = 0; e < p->n_epoch; e++)
        p->order[e] = p->spread[e].example;
}

static void set_epoch(data_plan *p, int64_t epoch)
{
    int32_t *out = p->order;
    if (p->epoch == epoch) return;
    for (int64_t k = 0; k < dataset_info(p->data)->n_parts;) {
        const uint64_t key = data_order_key(p->o.seed, KEY_ENTRY, (uint64_t)k);
        const dataset_part entry = dataset_entry_at(p->data, &k);
        int64_t n = epoch_examples(p, &entry);
        for (; n >= entry.n; n -= entry.n)
            for (int64_t i = 0; i < entry.n; i++)
                *out++ = (int32_t)(entry.first + i);
        if (n) {
            /* Takes the window of the entry's own permutation for the fractional part of its weight. */
            int32_t *all = p->permuted;
            for (int64_t i = 0; i < entry.n; i++)
                all[i] = (int32_t)(entry.first + i);
            data_order_shuffle(key, all, entry.n);
            int64_t start = (int64_t)((unsigned __int128)epoch * (uint64_t)n % (uint64_t)entry.n);
            for (int64_t i = 0; i < n; i++)
                out[i] = all[(start + i) % entry.n];
            qsort(out, (size_t)n, sizeof *out, by_number);
        }
        out += n;
    }
    if (p->o.shuffle) data_order_shuffle(data_order_key(p->o.seed, KEY_EPOCH, (uint64_t)epoch), p->order, p->n_epoch);
    if (p->o.even) spread_evenly(p);
    p->epoch = epoch;
}

/* ---- steps ---- */

/* Without a budget, each run of `micro_batch` consecutive examples is a micro-batch; the first R runs are micro-batch 0
 * of each rank. */
static int64_t cut_runs(const data_plan *p, int64_t n, int64_t *place)
{
    for (int64_t i = 0; i < n; i++)
        place[i] = i / p->o.micro_batch;
    return (place[n - 1] + p->n_shards) / p->n_shards;
}

static int64_t batch_begin(const data_plan *p, int64_t step)
{
    return step % p->n_steps * p->o.global_batch;
}

/* With a budget, packs complete groups and assigns each example to the micro-batch of its group. */
static int64_t pack_groups(data_plan *p, const int32_t *examples)
{
    const int64_t group = p->o.group > 1 ? p->o.group : 1, n = (p->n_batch + group - 1) / group;
    memset(p->lengths, 0, (size_t)n * sizeof *p->lengths);
    for (int64_t i = 0; i < p->n_batch; i++)
        p->lengths[i / group] += dataset_example_tokens(p->data, examples[i]);
    int64_t n_micro_batches = data_pack(p->lengths, n, p->o.micro_batch_tokens, p->n_shards, p->scratch, p->place);
    for (int64_t i = p->n_batch - 1; i > 0; i--)
        p->place[i] = p->place[i / group];
    return n_micro_batches;
}

static void set_step(data_plan *p, int64_t step)
{
    NRL_ASSERT(step, >=, 0);
    if (p->step == step) return;
    set_epoch(p, step / p->n_steps);
    const int64_t begin = batch_begin(p, step), left = p->n_epoch - begin;
    p->n_batch = left < p->o.global_batch ? left : p->o.global_batch;
    p->n_micro_batches = p->o.micro_batch_tokens ? pack_groups(p, p->order + begin) : cut_runs(p, p->n_batch, p->place);
    p->step = step;
}

int64_t data_plan_steps_per_epoch(const data_plan *p)
{
    return p->n_steps;
}

double data_plan_epoch_after(const data_plan *p, int64_t step)
{
    int64_t done = batch_begin(p, step) + p->o.global_batch, epochs = step / p->n_steps;
    if ((step + 1) % p->n_steps == 0 || done > p->n_epoch) return (double)epochs + 1;
    return (double)epochs + (double)done / (double)p->n_epoch;
}

int64_t data_plan_n_micro_batches(data_plan *p, int64_t step)
{
    set_step(p, step);
    return p->n_micro_batches * p->o.shards.n;
}

/* The number of this rank's micro-batch m among those of all ranks, as in `place`. */
static int64_t micro_batch_place(const data_plan *p, int64_t m)
{
    const int64_t own = m / p->n_micro_batches, n = p->o.shards.n;
    const int64_t shard = p->o.shards.strided ? own * p->o.ranks + p->o.rank : p->o.rank * n + own;
    return m % p->n_micro_batches * p->n_shards + shard;
}

int64_t data_plan_micro_batch(data_plan *p, int64_t step, int64_t m, const int64_t **examples)
{
    set_step(p, step);
    const int64_t wanted = micro_batch_place(p, m);
    const int32_t *batch = p->order + batch_begin(p, step);
    int64_t found = 0;
    for (int64_t i = 0; i < p->n_batch; i++)
        if (p->place[i] == wanted) p->micro_batch[found++] = batch[i];
    *examples = p->micro_batch;
    return found;
}

int64_t data_plan_repeats(data_plan *p, int64_t step, int64_t m, int64_t i)
{
    set_step(p, step);
    const int64_t wanted = micro_batch_place(p, m);
    const int32_t *batch = p->order + batch_begin(p, step);
    int64_t at = 0, n = 0;
    while (p->place[at] != wanted || i-- > 0)
        at++;
    for (int64_t k = 0; k < at; k++)
        n += batch[k] == batch[at];
    return n;
}

int64_t data_plan_largest_step(data_plan *p, int64_t n_steps)
{
    int64_t best = 0, most = 0;
    for (int64_t s = 0; s < n_steps; s++)
        for (int64_t m = data_plan_n_micro_batches(p, s); m-- > 0;) {
            const int64_t *examples, n = data_plan_micro_batch(p, s, m, &examples);
            int64_t tokens = 0;
            for (int64_t i = 0; i < n; i++)
                tokens += dataset_example_tokens(p->data, examples[i]);
            if (tokens <= most) continue;
            most = tokens;
            best = s;
        }
    return best;
}
