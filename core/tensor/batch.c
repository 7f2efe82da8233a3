/*
 * batch.c - creates, checks and reads packed batches.
 */
#include "tensor/batch.h"
#include "tensor/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes n elements of 4 bytes from the batch's block; arrays begin at multiples of 16 bytes. */
static void *array(char **at, int64_t n)
{
    char *begin = *at;
    *at += (size_t)(n + 3) / 4 * 16;
    return begin;
}

nrl_batch *batch_new_shared(int64_t n_tokens, int64_t n_rows, int64_t n_segments, int64_t n_prompts)
{
    enum { MOST_ARRAYS = 11 };
    int64_t n_all = n_segments + n_prompts;
    int64_t n = 2 * n_tokens + 4 * n_rows + 3 * n_segments + 2 * n_all + 1 + 3 * MOST_ARRAYS;
    nrl_batch *b = mem_alloc(sizeof *b);
    char *at = arena_try(&b->memory, (size_t)n * sizeof(int32_t), "a micro-batch");
    if (!at) {
        batch_free(b);
        return NULL;
    }
    b->n_tokens = n_tokens;
    b->n_rows = n_rows;
    b->n_segments = n_segments;
    b->n_prompts = n_prompts;
    b->tokens = array(&at, n_tokens);
    b->positions = array(&at, n_tokens);
    b->cu_seqlens = array(&at, n_all + 1);
    if (n_prompts) b->prefix = array(&at, n_all);
    for (int64_t s = 0; n_prompts && s < n_all; s++)
        b->prefix[s] = -1;
    b->row_token = array(&at, n_rows);
    b->row_target = array(&at, n_rows);
    b->row_segment = array(&at, n_rows);
    b->row_weight = array(&at, n_rows);
    b->segment_example = array(&at, n_segments);
    b->segment_side = array(&at, n_segments);
    b->segment_sample = array(&at, n_segments);
    return b;
}

nrl_batch *batch_new(int64_t n_tokens, int64_t n_rows, int64_t n_segments)
{
    return batch_new_shared(n_tokens, n_rows, n_segments, 0);
}

void batch_free(nrl_batch *b)
{
    if (!b) return;
    batch_free(b->own);
    arena_free(&b->memory);
    free(b);
}

nrl_status batch_add_extra(nrl_batch *b, const char *name, bool of_rows, float **values)
{
    const int64_t n = of_rows ? b->n_rows : b->n_segments;
    if (b->n_extra == BATCH_MAX_EXTRA)
        return nrl_fail(NRL_ERR_CONFIG, "a batch cannot have more than %d columns of data and rollouts",
                        BATCH_MAX_EXTRA);
    *values = arena_try(&b->memory, (size_t)n * sizeof **values, "a column of a micro-batch");
    if (!*values) return NRL_ERR_MEMORY;
    b->extra[b->n_extra++] = (batch_extra){name, *values, of_rows};
    return NRL_OK;
}

static int64_t length_of(const nrl_batch *b, int64_t s)
{
    return b->cu_seqlens[s + 1] - b->cu_seqlens[s];
}

int64_t batch_prefix_length(const nrl_batch *b, int64_t s)
{
    return b->prefix && b->prefix[s] >= 0 ? length_of(b, b->prefix[s]) : 0;
}

void batch_rows(const nrl_batch *b, int64_t begin, int64_t end, nrl_batch *view)
{
    *view = *b;
    view->parent = b;
    view->row_begin = begin;
    view->n_rows = end - begin;
    view->row_token += begin;
    view->row_target += begin;
    view->row_segment += begin;
    view->row_weight += begin;
    if (b->whole) { /* what a loss reads of tokens and segments */
        view->row_number += begin;
        view->n_tokens = b->whole->n_tokens;
        view->tokens = b->whole->tokens;
    }
    view->own = NULL;
    view->memory = (arena){0};
    view->packing = NULL;
}

nrl_status batch_divide(nrl_batch *b, const int32_t *numbers, int64_t n, bool rows)
{
    arena memory = {0};
    int32_t *at = arena_try(&memory, (size_t)b->n_tokens * sizeof *at, "tokens of this rank");
    nrl_batch *own = at ? batch_new(n, b->n_rows, 0) : NULL;
    int32_t *kept = own ? arena_try(&own->memory, (size_t)(n + b->n_rows) * sizeof *kept, "tokens of this rank") : NULL;
    if (!kept) {
        arena_free(&memory);
        batch_free(own);
        return NRL_ERR_MEMORY;
    }
    const nrl_batch arrays = *own;
    *own = *b;
    own->whole = b;
    own->is_copy = !rows;
    own->own = NULL;
    own->packing = NULL;
    own->n_columns = 0; /* nrl_batch_column takes them from the whole */
    own->memory = arrays.memory;
    own->n_tokens = n;
    own->n_rows = 0;
    own->tokens = arrays.tokens;
    own->positions = arrays.positions;
    own->row_token = arrays.row_token;
    own->row_target = arrays.row_target;
    own->row_segment = arrays.row_segment;
    own->row_weight = arrays.row_weight;
    own->token_number = kept;
    own->row_number = kept + n;
    for (int64_t i = 0; i < n; i++) {
        at[numbers[i]] = (int32_t)i + 1; /* 0: another rank's */
        own->token_number[i] = numbers[i];
        own->tokens[i] = b->tokens[numbers[i]];
        own->positions[i] = b->positions[numbers[i]];
    }
    for (int64_t i = 0; rows && i < b->n_rows; i++) {
        const int64_t to = own->n_rows;
        if (!at[b->row_token[i]]) continue;
        own->row_number[to] = (int32_t)i;
        own->row_token[to] = at[b->row_token[i]] - 1;
        own->row_target[to] = b->row_target[i];
        own->row_segment[to] = b->row_segment[i];
        own->row_weight[to] = b->row_weight[i];
        own->n_rows++;
    }
    arena_free(&memory);
    nrl_status st = NRL_OK;
    for (int32_t k = 0; k < b->n_extra && st == NRL_OK; k++) {
        if (!b->extra[k].of_rows) continue;
        float *values = arena_try(&own->memory, (size_t)own->n_rows * sizeof *values, "a column of a micro-batch");
        for (int64_t i = 0; values && i < own->n_rows; i++)
            values[i] = b->extra[k].values[own->row_number[i]];
        own->extra[k].values = values;
        if (!values) st = NRL_ERR_MEMORY;
    }
    batch_free(b->own);
    b->own = own;
    return st;
}

/* ---- columns ---- */

void batch_set_column(nrl_batch *b, const char *name, nrl_tensor *t)
{
    batch_column *c = b->columns, *end = b->columns + b->n_columns;
    while (c < end && strcmp(c->name, name))
        c++;
    if (c == end) {
        NRL_ASSERT(b->n_columns, <, (int)(sizeof b->columns / sizeof *b->columns));
        NRL_ASSERT(strlen(name), <, sizeof c->name);
        strcpy(c->name, name);
        b->n_columns++;
    }
    c->tensor = t;
}

nrl_status nrl_batch_column(nrl_ctx *ctx, const nrl_batch *b, const char *name, nrl_tensor **column)
{
    if (!strcmp(name, "weights")) return tensor_of_host(ctx, NRL_DTYPE_F32, b->n_rows, b->row_weight, true, column);
    for (int32_t i = 0; i < b->n_columns; i++) {
        nrl_tensor *t = b->columns[i].tensor;
        if (strcmp(b->columns[i].name, name) || !t) continue;
        *column = t;
        /* Columns set on a view have its size; columns of the parent are sliced to the rows of the view. */
        if (!b->parent || t->dims[0] == b->n_rows) return NRL_OK;
        return nrl_op_slice_rows(ctx, t, b->row_begin, b->row_begin + b->n_rows, column);
    }
    for (int32_t i = 0; b->whole && i < b->whole->n_columns; i++)
        if (!strcmp(b->whole->columns[i].name, name))
            return nrl_op_gather_rows(ctx, b->whole->columns[i].tensor, b->row_number, b->n_rows, column);
    for (int32_t i = 0; i < b->n_extra; i++) {
        const batch_extra *e = &b->extra[i];
        if (!strcmp(e->name, name))
            return tensor_of_host(ctx, NRL_DTYPE_F32, e->of_rows ? b->n_rows : b->n_segments,
                                  e->values + (e->of_rows ? b->row_begin : 0), true, column);
    }
    char list[512] = "weights";
    size_t used = strlen(list);
    for (int32_t i = 0; i < b->n_columns && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, ", %s", b->columns[i].name);
    for (int32_t i = 0; i < b->n_extra && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, ", %s", b->extra[i].name);
    return nrl_fail(NRL_ERR_CONFIG,
                    "the batch has no column '%s'; expected one of: %s\nhint: an algorithm lists computed columns in "
                    "'needs', the config lists columns of the data in data.extra",
                    name, list);
}

/* ---- counts ---- */

static double answer_tokens(const nrl_batch *b)
{
    double sum = 0;
    for (int64_t i = 0; i < b->n_rows; i++)
        sum += (double)b->row_weight[i];
    return sum;
}

static double prompt_tokens(const nrl_batch *b)
{
    double n = 0;
    for (int64_t i = 0; i < b->n_rows; i++)
        n += b->row_weight[i] == 0;
    return n;
}

/* Segments with a trained row; rows are in the order of their segments. */
static double sequences(const nrl_batch *b)
{
    double n = 0;
    int32_t last = -1;
    for (int64_t i = 0; i < b->n_rows; i++) {
        if (b->row_weight[i] == 0 || b->row_segment[i] == last) continue;
        last = b->row_segment[i];
        n++;
    }
    return n;
}

/* Examples with a rejected side; segments are in the order of their examples. */
static double pairs(const nrl_batch *b)
{
    double n = 0;
    int32_t last = -1;
    for (int64_t s = 0; s < b->n_segments; s++) {
        if (b->segment_side[s] != 1 || b->segment_example[s] == last) continue;
        last = b->segment_example[s];
        n++;
    }
    return n;
}

/* Examples whose label is not 0; every segment of an example has the example's label. */
static double desirable(const nrl_batch *b)
{
    const float *label = NULL;
    double n = 0;
    for (int32_t i = 0; i < b->n_extra; i++)
        if (!strcmp(b->extra[i].name, "label")) label = b->extra[i].values;
    for (int64_t s = 0; label && s < b->n_segments; s++)
        n += b->segment_side[s] == 0 && label[s] != 0;
    return n;
}

static double examples(const nrl_batch *b)
{
    return (double)b->n_examples;
}

/* Tokens of all sequences; a shared prompt counts once for each side. */
static double tokens(const nrl_batch *b)
{
    double n = 0;
    for (int64_t s = 0; s < b->n_segments; s++)
        n += (double)(length_of(b, s) + batch_prefix_length(b, s));
    return n;
}

double nrl_batch_count(const nrl_batch *b, const char *what)
{
    static const struct {
        const char *name;
        double (*count)(const nrl_batch *b);
    } counts[] = {
        {"answer_tokens", answer_tokens}, {"prompt_tokens", prompt_tokens}, {"sequences", sequences}, {"pairs", pairs},
        {"examples", examples},           {"desirable", desirable},         {"tokens", tokens}};
    if (b->is_tail) return 0; /* padding: all ranks must run the same number of micro-batches */
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strcmp(counts[i].name, what)) return counts[i].count(b);
    return (double)NAN;
}

/* ---- accessors ---- */

int64_t nrl_batch_n_tokens(const nrl_batch *b)
{
    return b->n_tokens;
}

int64_t nrl_batch_n_targets(const nrl_batch *b)
{
    return b->n_rows;
}

int64_t nrl_batch_n_segments(const nrl_batch *b)
{
    return b->n_segments;
}

int64_t nrl_batch_n_examples(const nrl_batch *b)
{
    return b->n_examples;
}

const int32_t *nrl_batch_tokens(const nrl_batch *b)
{
    return b->tokens;
}

const int32_t *nrl_batch_cu_seqlens(const nrl_batch *b)
{
    return b->cu_seqlens;
}

const int32_t *nrl_batch_target_ids(const nrl_batch *b)
{
    return b->row_target;
}

const int32_t *nrl_batch_target_segments(const nrl_batch *b)
{
    return b->row_segment;
}

const float *nrl_batch_target_weights(const nrl_batch *b)
{
    return b->row_weight;
}

const int32_t *nrl_batch_segment_example(const nrl_batch *b)
{
    return b->segment_example;
}

const int32_t *nrl_batch_segment_side(const nrl_batch *b)
{
    return b->segment_side;
}
