/*
 * weights_read.c - reads a parameter's values from the tensors of a format, and hashes tensors.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the hash state lives on the stack */
#include <xxhash.h>

nrl_status weights_values(const weight_files *w, const nrl_format_tensor *t, int64_t begin, int64_t n, float *out)
{
    return w->format->read(w->reader, w->index[t - w->tensors], begin, n, out);
}

/* Rows that are transposed at once: 16 f32 values use a whole cache line. */
enum { TURN_ROWS = 16 };
/* Reads rows [row, row+rows) of the matrix [out, in] that the file stores as [in, out]. */
static nrl_status read_rows(const weight_files *w, const nrl_format_tensor *t, int64_t row, int64_t rows, float *out)
{
    int64_t n_in = t->dims[0], n_out = t->dims[1];
    for (int64_t done = 0; done < rows; done += TURN_ROWS) {
        int64_t n = rows - done < TURN_ROWS ? rows - done : TURN_ROWS;
        float line[TURN_ROWS];
        for (int64_t i = 0; i < n_in; i++) {
            NRL_TRY(weights_values(w, t, i * n_out + row + done, n, line));
            for (int64_t k = 0; k < n; k++)
                out[(done + k) * n_in + i] = line[k];
        }
    }
    return NRL_OK;
}

/* Reads a range of the matrix [out, in] that the file stores as [in, out]: the end of a row, whole rows, the start of a
 * row. */
static nrl_status read_transposed(const weight_files *w, const nrl_format_tensor *t, int64_t begin, int64_t n,
                                  float *out)
{
    int64_t width = t->dims[0];
    while (n > 0) {
        int64_t row = begin / width, column = begin % width;
        int64_t k = column || n < width ? (n < width - column ? n : width - column) : n / width * width;
        if (k % width || column)
            for (int64_t i = 0; i < k; i++)
                NRL_TRY(weights_values(w, t, (column + i) * t->dims[1] + row, 1, out + i));
        else
            NRL_TRY(read_rows(w, t, row, k / width, out));
        begin += k;
        n -= k;
        out += k;
    }
    return NRL_OK;
}

nrl_status weights_read_tensor(const weight_files *w, const char *name, int64_t begin, int64_t n, float *out)
{
    const nrl_format_tensor *t = weights_find(w, name);
    int64_t numel = t ? weights_numel(t) : 0;
    if (!t || t->dtype == NRL_DTYPE_NONE || begin < 0 || n > numel || begin > numel - n)
        return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' does not have elements %lld to %lld", w->info.path, name,
                        (long long)begin, (long long)begin + n);
    return weights_values(w, t, begin, n, out);
}

/* Elements that may lie behind the last of the tensor, in rows that are the mean of its own. */
static nrl_status read_with_mean(const weight_files *w, const nrl_format_tensor *t, int64_t begin, int64_t n,
                                 float *out)
{
    const int64_t numel = weights_numel(t), width = numel / t->dims[0];
    const int64_t known = begin + n <= numel ? n : begin < numel ? numel - begin : 0;
    if (known) NRL_TRY(weights_values(w, t, begin, known, out));
    if (known == n) return NRL_OK;
    double *sums = mem_try((size_t)width * sizeof *sums, t->name);
    float *row = mem_try((size_t)width * sizeof *row, t->name);
    nrl_status st = sums && row ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t i = 0; i < width && st == NRL_OK; i++)
        sums[i] = 0;
    for (int64_t at = 0; at < numel && st == NRL_OK; at += width) {
        st = weights_values(w, t, at, width, row);
        for (int64_t i = 0; i < width && st == NRL_OK; i++)
            sums[i] += (double)row[i];
    }
    for (int64_t i = known; i < n && st == NRL_OK; i++)
        out[i] = (float)(sums[(begin + i) % width] / (double)t->dims[0]);
    free(row);
    free(sums);
    return st;
}

nrl_status weights_read(const weight_files *w, const model *m, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    int64_t at = 0; /* where this part begins in the parameter */
    for (int i = 0; i < p->n_parts && n > 0; i++) {
        const nrl_part *part = &p->parts[i];
        int64_t size = part_numel(part);
        if (begin < at + size) {
            int64_t first = begin - at, k = n < size - first ? n : size - first;
            const nrl_format_tensor *t = weights_part(w, m, part);
            if (!t || t->dtype == NRL_DTYPE_NONE || t->n_dims != part->n_dims)
                return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' is missing or has another type or rank", w->info.path,
                                part->name);
            const bool is_grown = weights_has_first_rows(w, part, t);
            if (first + k > weights_numel(t) && !is_grown)
                return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' has %lld elements, expected more", w->info.path,
                                part->name, (long long)weights_numel(t));
            NRL_TRY(is_grown           ? read_with_mean(w, t, first, k, out)
                    : part->transposed ? read_transposed(w, t, first, k, out)
                                       : weights_values(w, t, first, k, out));
            begin += k;
            n -= k;
            out += k;
        }
        at += size;
    }
    NRL_ASSERT(n, ==, 0);
    return NRL_OK;
}

/* ---- hashes ---- */

enum { HASH_CHUNK = 1 << 16 };

/* Hashes the bytes of a tensor if the format maps them into memory, else its values. */
static nrl_status hash_tensor(const weight_files *w, const nrl_format_tensor *t, XXH3_state_t *state)
{
    size_t size;
    if (w->format->bytes) {
        const void *bytes = w->format->bytes(w->reader, w->index[t - w->tensors], &size);
        XXH3_128bits_update(state, bytes, size);
        return NRL_OK;
    }
    nrl_status st = NRL_OK;
    int64_t numel = t->dtype ? weights_numel(t) : 0;
    float *values = mem_try(HASH_CHUNK * sizeof *values, "the values of a tensor");
    if (!values) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < numel && st == NRL_OK; i += HASH_CHUNK) {
        int64_t n = numel - i < HASH_CHUNK ? numel - i : HASH_CHUNK;
        st = weights_values(w, t, i, n, values);
        if (st == NRL_OK) XXH3_128bits_update(state, values, (size_t)n * sizeof *values);
    }
    free(values);
    return st;
}

/* The settings of an adapter are hashed because they determine what its values mean. */
static nrl_status hash_settings(const weight_files *w, XXH3_state_t *state)
{
    arena a = {0};
    const nrl_node *config;
    if (w->format->holds != NRL_HOLDS_ADAPTER) return NRL_OK;
    nrl_status st = weights_config(w, &a, &config);
    if (st == NRL_OK) {
        char *text = json_write(nrl_node_find(config, "settings"), 0);
        XXH3_128bits_update(state, text, strlen(text));
        free(text);
    }
    arena_free(&a);
    return st;
}

nrl_status weights_hash(const weight_files *w, char out[HASH_TEXT])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    NRL_TRY(hash_settings(w, &state));
    for (int64_t i = 0; i < w->n; i++) {
        const nrl_format_tensor *t = &w->tensors[i];
        XXH3_128bits_update(&state, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(&state, t->type, strlen(t->type) + 1);
        XXH3_128bits_update(&state, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        NRL_TRY(hash_tensor(w, t, &state));
    }
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    snprintf(out, HASH_TEXT, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return NRL_OK;
}

/* A sample is one page, because reading less than a page costs the same. */
enum { SAMPLES = 4, SAMPLE_BYTES = 4096, SAMPLE_VALUES = SAMPLE_BYTES / (int)sizeof(float) };

/* Hashes the first block of bytes (or values), the last block and two between them; all of a small tensor. */
static nrl_status sample_hash(const weight_files *w, const nrl_format_tensor *t, uint64_t *h)
{
    *h = 0;
    if (w->format->bytes) {
        size_t size;
        const unsigned char *data = w->format->bytes(w->reader, w->index[t - w->tensors], &size);
        if (size <= SAMPLES * SAMPLE_BYTES)
            *h = XXH3_64bits(data, size);
        else
            for (size_t k = 0; k < SAMPLES; k++)
                *h = XXH3_64bits_withSeed(data + (size - SAMPLE_BYTES) / (SAMPLES - 1) * k, SAMPLE_BYTES, *h);
        return NRL_OK;
    }
    float values[SAMPLES * SAMPLE_VALUES];
    int64_t numel = t->dtype ? weights_numel(t) : 0, all = SAMPLES * SAMPLE_VALUES,
            n = numel <= all ? numel : SAMPLE_VALUES;
    for (int64_t k = 0; k < (numel <= all ? 1 : SAMPLES); k++) {
        NRL_TRY(weights_values(w, t, numel <= all ? 0 : (numel - n) / (SAMPLES - 1) * k, n, values));
        *h = XXH3_64bits_withSeed(values, (size_t)n * sizeof *values, *h);
    }
    return NRL_OK;
}

nrl_status weights_identity(const weight_files *w, const char *whose, char **lines)
{
    buffer b = {0};
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < w->n && st == NRL_OK; i++) {
        const nrl_format_tensor *t = &w->tensors[i];
        char shape[200];
        uint64_t h;
        weights_shape_text(t->n_dims, t->dims, shape, sizeof shape);
        st = sample_hash(w, t, &h);
        buffer_print(&b, "%s'%s': %s %s, %016llx\n", whose, t->name, t->type, shape, (unsigned long long)h);
    }
    *lines = st == NRL_OK ? buffer_take(&b) : NULL;
    buffer_free(&b);
    return st;
}
