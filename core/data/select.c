/*
 * select.c - which rows of each part are read: those that an entry selects by number (rows) or by hash (limit), either
 * without the rows that are held out for evaluation or only these. Negative numbers, numbers that count through several
 * files, and numbers of rows to choose by hash need a pass over the files, which this file makes.
 */
#include "base/arena.h"
#include "data/part.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Counts the rows of the file; with `hashes`, appends the hashes of the rows that the part selects so far. */
static nrl_status scan(const dataset_options *o, const data_part *p, uint64_t seed, buffer *hashes, int64_t *n_rows)
{
    data_reader *r;
    data_schema schema;
    arena memory = {0};
    void *range = NULL;
    const nrl_node *row;
    const int64_t end = hashes && p->select.end ? p->select.end : INT64_MAX;
    NRL_TRY(data_part_schema(o, p, &schema));
    NRL_TRY(data_reader_open(o->host, &p->choice, p->path, 0, &r));
    nrl_status st = NRL_OK;
    *n_rows = hashes ? 0 : r->info.rows;
    for (bool more = *n_rows <= 0; more && st == NRL_OK;) {
        if (*n_rows < 0) *n_rows = 0;
        st = r->table->next_range(r->self, &range);
        more = st == NRL_OK && range && *n_rows < end;
        while (more && st == NRL_OK && *n_rows < end) {
            arena_reset(&memory);
            row = NULL;
            st = r->table->next_row(range, &memory, &row);
            if (st != NRL_OK || !row) break;
            if (hashes && !schema.format && *n_rows >= p->select.first) st = data_schema_detect(&schema, row);
            if (st != NRL_OK) {
                nrl_add_context("%s:%u", p->path, row->line);
                break;
            }
            if (hashes && *n_rows >= p->select.first && data_selection_has(&p->select, &schema, row)) {
                uint64_t hash = data_row_hash(&schema, row, seed);
                buffer_add(hashes, (const char *)&hash, sizeof hash);
            }
            ++*n_rows;
        }
        if (range) r->table->close_range(range);
        range = NULL;
        if (st == NRL_OK && o->signal && *o->signal)
            st = nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) while %s was read", *o->signal,
                          strsignal(*o->signal), p->path);
    }
    arena_free(&memory);
    data_reader_close(r);
    return st;
}

static int by_size(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* The bound below which the hashes of `wanted` rows of parts [from, to) are; 0 if there are no more rows than that.
 * Equal rows are on the same side, so there may be fewer. */
static nrl_status find_bound(const dataset_options *o, const data_parts *p, int64_t from, int64_t to, uint64_t seed,
                             int64_t wanted, uint64_t *bound)
{
    buffer hashes = {.what = "the hashes of rows"};
    nrl_status st = NRL_OK;
    int64_t n;
    for (int64_t i = from; i < to && st == NRL_OK; i++)
        if (!p->items[i].is_empty) st = scan(o, &p->items[i], seed, &hashes, &n);
    if (st == NRL_OK) st = buffer_check(&hashes);
    n = (int64_t)(hashes.size / sizeof *bound);
    if (st == NRL_OK && hashes.text && n > wanted) {
        uint64_t *list = (void *)hashes.text;
        qsort(list, (size_t)n, sizeof *list, by_size);
        *bound = list[wanted] ? list[wanted] : 1;
    }
    buffer_free(&hashes);
    return st;
}

/* Sets which rows of the parts [begin, end) of an entry are read. The numbers count through all its files. */
static nrl_status select_by_number(const dataset_options *o, data_part *begin, data_part *end)
{
    int64_t total = 0, from = begin->from, to = begin->to;
    if (!from && to == INT64_MAX) return NRL_OK;
    const bool open = from >= 0 && to >= 0 && end - begin == 1; /* no need to count */
    if (!open && o->streaming)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: data.train: rows: data.streaming cannot count the rows of %s\n"
                        "hint: rows: FIRST:END from 0, of one file",
                        begin->path, end - begin == 1 ? "a file from its end" : "several files");
    for (data_part *p = begin; p < end && !open; p++) {
        NRL_TRY(scan(o, p, 0, NULL, &p->select.end));
        total += p->select.end;
    }
    if (from < 0) from = from + total > 0 ? from + total : 0;
    if (to < 0) to = to + total > 0 ? to + total : 0;
    for (data_part *p = begin; p < end; p++) {
        const int64_t n = open ? INT64_MAX : p->select.end;
        p->select.first = from < n ? from : n;
        p->select.end = to < n ? to : n;
        p->is_empty = p->select.end <= p->select.first;
        if (p->select.end == INT64_MAX) p->select.end = 0;
        from = from > n ? from - n : 0;
        if (to != INT64_MAX) to = to > n ? to - n : 0;
    }
    return NRL_OK;
}

nrl_status data_parts_select(const dataset_options *o, data_parts *p)
{
    const double two_64 = 18446744073709551616.0;
    for (int64_t i = 0; i < p->n && o->streaming; i++)
        if (p->items[i].limit)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: data.train: limit selects from all rows, which data.streaming does not know\n"
                            "hint: rows: 0:%" PRId64 " selects the first rows",
                            p->items[i].path, p->items[i].limit);
    if (o->held_out >= 1 && o->streaming)
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.eval: %.0f rows are selected from all rows, which data.streaming does not know\n"
                        "hint: use a share, such as data.eval: 0.01, or a file",
                        o->held_out);
    uint64_t held_below = o->held_out < 1 ? (uint64_t)(o->held_out * two_64) : 0;
    for (int64_t i = 0, j = 0; i < p->n; i = j) {
        data_part *first = &p->items[i];
        uint64_t limit = 0;
        while (j < p->n && p->items[j].entry == first->entry)
            j++;
        NRL_TRY(select_by_number(o, first, p->items + j));
        if (first->limit) NRL_TRY(find_bound(o, p, i, j, DATA_HASH_LIMIT, first->limit, &limit));
        for (int64_t k = i; k < j; k++)
            p->items[k].select.limit_below = limit;
    }
    if (o->held_out >= 1) {
        NRL_TRY(find_bound(o, p, 0, p->n, DATA_HASH_SPLIT, (int64_t)o->held_out, &held_below));
        if (!held_below)
            return nrl_fail(NRL_ERR_CONFIG, "data.eval: %.0f rows would leave none of data.train to train on",
                            o->held_out);
    }
    for (int64_t i = 0; i < p->n; i++) {
        p->items[i].select.held_below = held_below;
        p->items[i].select.is_held_out = o->is_held_out;
    }
    return NRL_OK;
}
