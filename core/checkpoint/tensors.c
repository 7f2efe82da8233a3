/*
 * tensors.c - combines the shards of all files to tensors and checks that each element exists exactly once.
 */
#include "checkpoint/reader.h"
#include "checkpoint/tiling.h"
#include <stdlib.h>
#include <string.h>

/* An entry with its order of appearance. */
typedef struct {
    const index_entry *entry;
    size_t at;
} met;

static int by_name(const checkpoint_tensor *a, const checkpoint_tensor *b)
{
    int order = strcmp(a->name, b->name);
    return order ? order : strcmp(a->slot, b->slot);
}

static int by_name_then_place(const void *a, const void *b)
{
    const met *x = a, *y = b;
    int order = by_name(&x->entry->tensor, &y->entry->tensor);
    return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

static bool shards_cover(const saved_tensor *t)
{
    const layout_shard **shards = mem_alloc((t->n_shards + 1) * sizeof *shards);
    for (size_t i = 0; i < t->n_shards; i++)
        shards[i] = &t->shards[i]->piece;
    bool exact = tiling_is_exact(shards, t->n_shards);
    free(shards);
    return exact;
}

static bool is_alike(const checkpoint_tensor *a, const checkpoint_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims);
}

static nrl_status check_shards(const checkpoint *c, const saved_tensor *t)
{
    for (size_t i = 0; i < t->n_shards; i++)
        if (!is_alike(&t->tensor, &t->shards[i]->tensor))
            return nrl_fail(NRL_ERR_CORRUPT, "%s: %s of '%.200s' is %s in one file and %s in another", c->dir,
                            t->tensor.slot, t->tensor.name, tensor_describe(&t->tensor).text,
                            tensor_describe(&t->shards[i]->tensor).text);
    if (shards_cover(t)) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: the shards of %s of '%.200s' do not cover the tensor exactly once", c->dir,
                    t->tensor.slot, t->tensor.name);
}

static size_t meet_all(const checkpoint *c, met **out)
{
    size_t n = 0;
    for (int32_t r = 0; r < c->m.world; r++)
        n += c->files[r].n_entries;
    *out = mem_alloc((n + 1) * sizeof **out);
    n = 0;
    for (int32_t r = 0; r < c->m.world; r++)
        for (size_t i = 0; i < c->files[r].n_entries; i++)
            if (strcmp(c->files[r].entries[i].tensor.slot, FORMAT_RANK_SLOT)) {
                (*out)[n] = (met){&c->files[r].entries[i], n};
                n++;
            }
    return n;
}

/* A tensor with the order of appearance of its first shard. */
typedef struct {
    saved_tensor t;
    size_t at;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Makes one tensor of each run of equal names. */
static size_t group(checkpoint *c, const met *all, size_t n, placed *out)
{
    const index_entry **shards = arena_alloc(&c->memory, (n + 1) * sizeof *shards);
    size_t n_tensors = 0;
    for (size_t i = 0; i < n; i++) {
        shards[i] = all[i].entry;
        if (i == 0 || by_name(&all[i].entry->tensor, &all[i - 1].entry->tensor))
            out[n_tensors++] = (placed){{all[i].entry->tensor, 0, &shards[i]}, all[i].at};
        out[n_tensors - 1].t.n_shards++;
    }
    return n_tensors;
}

static int sort_names(const void *a, const void *b, void *user)
{
    const saved_tensor *tensors = user;
    return by_name(&tensors[*(const size_t *)a].tensor, &tensors[*(const size_t *)b].tensor);
}

nrl_status reader_collect(checkpoint *c)
{
    met *all;
    size_t n = meet_all(c, &all);
    placed *groups = mem_alloc((n + 1) * sizeof *groups);
    qsort(all, n, sizeof *all, by_name_then_place);
    c->n_tensors = group(c, all, n, groups);
    qsort(groups, c->n_tensors, sizeof *groups, by_place);
    c->tensors = arena_alloc(&c->memory, (c->n_tensors + 1) * sizeof *c->tensors);
    c->by_name = arena_alloc(&c->memory, (c->n_tensors + 1) * sizeof *c->by_name);
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < c->n_tensors; i++) {
        c->tensors[i] = groups[i].t;
        c->by_name[i] = i;
        if (st == NRL_OK) st = check_shards(c, &c->tensors[i]);
    }
    qsort_r(c->by_name, c->n_tensors, sizeof *c->by_name, sort_names, c->tensors);
    free(groups);
    free(all);
    return st;
}

int64_t checkpoint_find_tensor(const checkpoint *c, const char *name, const char *slot)
{
    checkpoint_tensor wanted = {.name = name, .slot = slot};
    size_t low = 0, high = c->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = by_name(&wanted, &c->tensors[c->by_name[middle]].tensor);
        if (order == 0) return (int64_t)c->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}
