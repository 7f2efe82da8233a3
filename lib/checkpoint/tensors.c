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

static bool is_alike(const checkpoint_tensor *a, const checkpoint_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims);
}

/* `scratch` has room for the shards of the tensor. */
static nrl_status check_shards(const checkpoint *c, const saved_tensor *t, const layout_shard **scratch)
{
    bool exact;
    for (size_t i = 0; i < t->n_shards; i++) {
        scratch[i] = &t->shards[i]->piece;
        if (!is_alike(&t->tensor, &t->shards[i]->tensor))
            return nrl_fail(NRL_ERR_CORRUPT, "%s: %s of '%.200s' is %s in one file and %s in another", c->dir,
                            t->tensor.slot, t->tensor.name, tensor_describe(&t->tensor).text,
                            tensor_describe(&t->shards[i]->tensor).text);
    }
    NRL_TRY(tiling_check(scratch, t->n_shards, &exact));
    if (exact) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: the shards of %s of '%.200s' do not cover the tensor exactly once", c->dir,
                    t->tensor.slot, t->tensor.name);
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
static size_t group(const met *all, size_t n, const index_entry **shards, placed *out)
{
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
    arena scratch = {0};
    size_t n = 1;
    for (int32_t r = 0; r < c->m.world; r++)
        n += c->files[r].n_entries;
    met *all = arena_try(&scratch, n * sizeof *all, c->dir);
    placed *groups = arena_try(&scratch, n * sizeof *groups, c->dir);
    const layout_shard **pieces = arena_try(&scratch, n * sizeof *pieces, c->dir);
    const index_entry **shards = arena_try(&c->memory, n * sizeof *shards, c->dir);
    nrl_status st = all && groups && pieces && shards ? NRL_OK : NRL_ERR_MEMORY;
    if (st == NRL_OK) {
        n = 0; /* the entries of all files but those of slot "rank" */
        for (int32_t r = 0; r < c->m.world; r++)
            for (size_t i = 0; i < c->files[r].n_entries; i++)
                if (strcmp(c->files[r].entries[i].tensor.slot, FORMAT_RANK_SLOT)) {
                    all[n] = (met){&c->files[r].entries[i], n};
                    n++;
                }
        qsort(all, n, sizeof *all, by_name_then_place);
        c->n_tensors = group(all, n, shards, groups);
        qsort(groups, c->n_tensors, sizeof *groups, by_place);
        c->tensors = arena_try(&c->memory, (c->n_tensors + 1) * sizeof *c->tensors, c->dir);
        c->by_name = arena_try(&c->memory, (c->n_tensors + 1) * sizeof *c->by_name, c->dir);
        if (!c->tensors || !c->by_name) st = NRL_ERR_MEMORY;
    }
    for (size_t i = 0; i < c->n_tensors && st == NRL_OK; i++) {
        c->tensors[i] = groups[i].t;
        c->by_name[i] = i;
        st = check_shards(c, &c->tensors[i], pieces);
    }
    if (st == NRL_OK) qsort_r(c->by_name, c->n_tensors, sizeof *c->by_name, sort_names, c->tensors);
    arena_free(&scratch);
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

nrl_status checkpoint_expect_tensor(const checkpoint *c, const checkpoint_tensor *t, size_t *i)
{
    const int64_t found = checkpoint_find_tensor(c, t->name, t->slot);
    if (found < 0)
        return nrl_fail(NRL_ERR_CONFIG, "%s: has no %s of '%s': the checkpoint belongs to another model or optimizer",
                        checkpoint_dir(c), t->slot, t->name);
    *i = (size_t)found;
    const checkpoint_tensor *saved = checkpoint_tensor_at(c, *i);
    if (saved->dtype == t->dtype && saved->n_dims == t->n_dims &&
        !memcmp(saved->dims, t->dims, (size_t)t->n_dims * sizeof *t->dims))
        return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: %s of '%s' is %s, expected %s", checkpoint_dir(c), t->slot, t->name,
                    tensor_describe(saved).text, tensor_describe(t).text);
}
