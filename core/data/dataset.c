/*
 * dataset.c - combines parts to one numbered list of examples, and computes statistics.
 */
#include "base/arena.h"
#include "data/part.h"
#include "tokens/marked.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

_Static_assert((int)DATA_MAX_EXTRA == (int)BATCH_MAX_EXTRA, "rows and batches have as many columns");

struct dataset {
    data_parts parts;
    bool prefix_sharing;
    dataset_report report;
};

void dataset_close(dataset *d)
{
    if (!d) return;
    data_parts_free(&d->parts);
    for (int64_t i = 0; i < d->report.n_extra; i++)
        free((char *)d->report.extra[i]);
    free(d);
}

/* ---- info ---- */

static int64_t segments_of(const data_part *p)
{
    return p->cache.header->n_examples * p->cache.header->n_sides;
}

/* The lower median, by counting the lengths up to the longest. */
static nrl_status set_median_length(dataset *d)
{
    int64_t n = 0, seen = 0, length = 0;
    int64_t *count = mem_try(((size_t)d->report.max_length + 1) * sizeof *count, "the lengths of samples");
    if (!count) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < d->parts.n; i++) {
        const data_part *p = &d->parts.items[i];
        n += segments_of(p);
        for (int64_t j = 0; j < segments_of(p); j++)
            count[p->cache.index[j].n_tokens]++;
    }
    for (; length < d->report.max_length; length++) {
        seen += count[length];
        if (seen * 2 >= n) break;
    }
    free(count);
    d->report.median_length = length;
    return NRL_OK;
}

static void add_info(const dataset *d, const data_part *p, dataset_report *r)
{
    const data_cache_header *h = p->cache.header;
    r->rows += h->counts.rows;
    r->split += h->counts.split;
    r->empty += h->counts.outcome[DATA_EMPTY];
    r->identical += h->counts.identical;
    r->dropped_overlong += h->counts.outcome[DATA_TOO_LONG];
    r->untrainable += h->counts.outcome[DATA_UNTRAINABLE];
    r->truncated += h->counts.truncated;
    r->tokens += h->n_tokens;
    r->trained_tokens += h->n_trained;
    r->bytes += p->bytes;
    r->from_cache = r->from_cache && p->from_cache;
    if (!r->format)
        r->format = h->format;
    else if (strcmp(r->format, h->format))
        r->format = "several formats";
    for (int64_t i = 0; i < segments_of(p); i++) {
        int64_t n = p->cache.index[i].n_tokens;
        int bin = 0;
        for (int64_t k = n; k > 1 && bin < 23; k >>= 1)
            bin++;
        r->histogram[bin]++;
        if (n > r->max_length) r->max_length = n;
        if (!r->min_length || n < r->min_length) r->min_length = n;
        if (d->prefix_sharing && i % h->n_sides == 0) r->shared_tokens += p->cache.index[i].shared;
    }
}

/* ---- opening ---- */

/* Opens the parts. A part of which nothing is selected leaves the list. */
static nrl_status open_files(const dataset_options *o, dataset *d)
{
    data_part *items = d->parts.items;
    for (int64_t i = 0; i < d->parts.n; i++) {
        if (!items[i].is_empty) NRL_TRY(data_part_open(o, &items[i]));
        items[i].is_empty = items[i].is_empty || !items[i].cache.header->n_examples;
    }
    for (int64_t i = 0; i < d->parts.n;) {
        if (!items[i].is_empty) {
            i++;
            continue;
        }
        data_part_close(&items[i]);
        memmove(&items[i], &items[i + 1], (size_t)(--d->parts.n - i) * sizeof *items);
    }
    double all = 0, shares = 0;
    for (int64_t i = 0; i < d->parts.n && o->size_exponent != 0; i++) {
        double n = 0;
        for (int64_t k = 0; k < d->parts.n; k++)
            n += items[k].entry == items[i].entry ? (double)items[k].cache.header->n_examples : 0;
        all += items[i].weight * (double)items[i].cache.header->n_examples;
        shares += items[i].weight * (double)items[i].cache.header->n_examples * pow(n, o->size_exponent);
        items[i].weight *= pow(n, o->size_exponent);
    }

    /* Scales the weights, so that an epoch keeps its number of samples. */
    for (int64_t i = 0; i < d->parts.n && shares > 0; i++)
        items[i].weight *= all / shares;
    if (d->parts.n) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "data.%s: %s", o->role ? o->role : "train",
                    o->held_out > 0 ? "the split by data.eval leaves no row that can be trained on"
                                    : "rows and limit select no row that can be trained on");
}

nrl_status data_parts_open(const dataset_options *o, data_schema *schema, data_parts *out)
{
    if (o->max_length < 0 || o->max_length > INT32_MAX)
        return nrl_fail(NRL_ERR_CONFIG, "data.max_length %" PRId64 ": expected 0 (no limit) to %d", o->max_length,
                        INT32_MAX);
    if (o->overlong == DATA_OVERLONG_SPLIT && (o->pairs || o->labels))
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.overlong: split is not supported by this algorithm, which compares whole answers; "
                        "expected drop or truncate");
    NRL_TRY(data_schema_set(schema, o->columns, o->extra, o->pairs, o->labels, o->generates));
    NRL_TRY(data_parts_list(o, out));
    return data_parts_select(o, out);
}

/* Computes what follows from the parts: counts, the report, the hash. */
static nrl_status complete(const dataset_options *o, const data_schema *schema, dataset *d)
{
    dataset_report *r = &d->report;
    for (; r->n_extra < schema->n_extra; r->n_extra++)
        r->extra[r->n_extra] = mem_strdup(schema->extra[r->n_extra]);
    r->n_parts = d->parts.n;
    r->n_sides = o->pairs || o->kl_pairs ? 2 : 1;
    r->has_pairs = o->pairs;
    r->from_cache = true;
    d->prefix_sharing = o->prefix_sharing;
    for (int64_t i = 0; i < d->parts.n; i++) {
        d->parts.items[i].first = r->n_examples;
        r->n_examples += d->parts.items[i].cache.header->n_examples;
    }
    if (r->n_examples > INT32_MAX)
        return nrl_fail(NRL_ERR_DATA, "data.%s: %" PRId64 " samples, at most %d are possible",
                        o->role ? o->role : "train", r->n_examples, INT32_MAX);
    buffer keys = {0};
    for (int64_t i = 0; i < d->parts.n; i++) {
        const data_part *p = &d->parts.items[i];
        add_info(d, p, r);
        buffer_print(&keys, "%s %.17g\n", p->key, p->weight);
    }
    hash_bytes(keys.text, keys.size, r->hash);
    buffer_free(&keys);
    return set_median_length(d);
}

static nrl_status finish_open(dataset *d, nrl_status st, dataset **out)
{
    if (st == NRL_OK)
        *out = d;
    else
        dataset_close(d);
    return st;
}

nrl_status dataset_of_parts(const dataset_options *o, data_parts *parts, dataset **out)
{
    dataset *d = mem_alloc(sizeof *d);
    data_schema schema;
    d->parts = *parts;
    *parts = (data_parts){0};
    nrl_status st = data_schema_set(&schema, o->columns, o->extra, o->pairs, o->labels, o->generates);
    return finish_open(d, st == NRL_OK ? complete(o, &schema, d) : st, out);
}

nrl_status dataset_open(const dataset_options *options, dataset **out)
{
    dataset *d = mem_alloc(sizeof *d);
    data_schema schema;
    nrl_status st = data_parts_open(options, &schema, &d->parts);
    if (st == NRL_OK) st = open_files(options, d);
    return finish_open(d, st == NRL_OK ? complete(options, &schema, d) : st, out);
}

/* ---- reading ---- */

static const data_part *part_of(const dataset *d, int64_t example)
{
    int64_t low = 0, high = d->parts.n - 1;
    NRL_ASSERT(example, >=, 0);
    NRL_ASSERT(example, <, d->report.n_examples);
    while (low < high) { /* finds the last part that begins at or before the example */
        int64_t middle = (low + high + 1) / 2;
        if (d->parts.items[middle].first <= example)
            low = middle;
        else
            high = middle - 1;
    }
    return &d->parts.items[low];
}

static const data_cache_segment *segment_of(const dataset *d, int64_t example, int side, const data_part **part)
{
    NRL_ASSERT(side, <, d->report.n_sides);
    *part = part_of(d, example);
    return &(*part)->cache.index[(example - (*part)->first) * d->report.n_sides + side];
}

int64_t dataset_example_tokens(const dataset *d, int64_t example)
{
    const data_part *p;
    const data_cache_segment *s = segment_of(d, example, 0, &p);
    int64_t shared = d->prefix_sharing ? s->shared : 0;
    return (int64_t)s->n_tokens + (d->report.n_sides == 2 ? s[1].n_tokens : 0) - shared;
}

int64_t dataset_shared_tokens(const dataset *d, int64_t example)
{
    const data_part *p;
    return d->prefix_sharing ? segment_of(d, example, 0, &p)->shared : 0;
}

int64_t dataset_segment(const dataset *d, int64_t example, int segment, const int32_t **tokens, const uint8_t **trained)
{
    const data_part *p;
    const data_cache_segment *s = segment_of(d, example, segment, &p);
    *tokens = (const int32_t *)(const void *)(p->cache.map + s->offset);
    *trained = (const uint8_t *)(*tokens + s->n_tokens);
    return s->n_tokens;
}

void dataset_place(const dataset *d, int64_t example, char *out, size_t room)
{
    const data_part *p;
    const data_cache_segment *s = segment_of(d, example, 0, &p);
    const char *path = p->path;
    for (size_t i = 0; i < p->n_files && p->files[i].first <= example - p->first; i++)
        path = p->files[i].path;
    snprintf(out, room, "%s:%" PRId64, path, s->line);
}

nrl_status dataset_verify(const dataset *d, int64_t example)
{
    char place[512];
    for (int side = 0; side < d->report.n_sides; side++) {
        const data_part *p;
        const data_cache_segment *s = segment_of(d, example, side, &p);
        if (s->check == (uint32_t)XXH3_64bits(p->cache.map + s->offset, (size_t)s->n_tokens * 5)) continue;
        dataset_place(d, example, place, sizeof place);
        return nrl_fail(NRL_ERR_CORRUPT,
                        "%s: the tokens of %s are damaged\nhint: remove the file; it is created again from the data",
                        p->cache_path ? p->cache_path : "temporary token file", place);
    }
    return NRL_OK;
}

dataset_part dataset_part_at(const dataset *d, int64_t i)
{
    NRL_ASSERT(i, <, d->parts.n);
    const data_part *p = &d->parts.items[i];
    return (dataset_part){.path = p->path,
                          .first = p->first,
                          .n = p->cache.header->n_examples,
                          .weight = p->weight,
                          .entry = p->entry,
                          .bytes = p->bytes,
                          .hash = p->hash,
                          .reader = p->plugin,
                          .reader_name = p->plugin_name,
                          .tokens_hash = p->cache.header->sum};
}

dataset_part dataset_entry_at(const dataset *d, int64_t *i)
{
    dataset_part entry = dataset_part_at(d, (*i)++);
    for (; *i < d->parts.n && d->parts.items[*i].entry == entry.entry; ++*i) {
        const dataset_part next = dataset_part_at(d, *i);
        entry.n += next.n;
        entry.bytes += next.bytes;
    }
    return entry;
}

float dataset_extra(const dataset *d, int64_t example, int64_t i)
{
    const data_part *p;
    const data_cache_segment *s = segment_of(d, example, 0, &p);
    float value;
    NRL_ASSERT(i, <, d->report.n_extra);
    memcpy(&value, p->cache.map + s->offset - (d->report.n_extra - i) * (int64_t)sizeof value, sizeof value);
    return value;
}

char *dataset_sample_text(const dataset *d, int64_t i, const tokenizer *t)
{
    static const char *const names[][2] = {{"sample: ", "\nmismatched: "}, {"chosen: ", "\nrejected: "}};
    buffer out = {.what = "a sample"};
    nrl_status st = NRL_OK;
    for (int side = 0; side < d->report.n_sides && st == NRL_OK; side++) {
        const int32_t *tokens;
        const uint8_t *trained;
        const int64_t n = dataset_segment(d, i, side, &tokens, &trained);
        if (d->report.n_sides == 2) buffer_puts(&out, names[d->report.has_pairs][side]);
        st = marked_write(&out, t, tokens, trained, n);
    }
    if (st != NRL_OK) buffer_free(&out);
    return st == NRL_OK ? buffer_take(&out) : NULL;
}

const dataset_report *dataset_info(const dataset *d)
{
    return &d->report;
}
