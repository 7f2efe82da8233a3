/*
 * hf_read.c - values of a parameter out of the mapped files, converted to f32.
 */
#include "base/buffer.h"
#include "model/convert.h"
#include "model/weights.h"
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the hash state lives on the stack */
#include <xxhash.h>

/* Rows that are turned at once: one cache line of the widest source is used whole. */
enum { TURN_ROWS = 16 };

/* Rows [row, row+rows) of the turned matrix [out, in] from a file's [in, out]. */
static void read_turned(const safetensor *t, int64_t row, int64_t rows, float *out)
{
    int64_t n_in = t->dims[0], n_out = t->dims[1];
    size_t size = nrl_dtype_size(t->dtype);
    for (int64_t done = 0; done < rows; done += TURN_ROWS) {
        int64_t n = rows - done < TURN_ROWS ? rows - done : TURN_ROWS;
        float line[TURN_ROWS];
        for (int64_t i = 0; i < n_in; i++) {
            convert_to_f32(t->dtype, t->data + (size_t)(i * n_out + row + done) * size, n, line);
            for (int64_t k = 0; k < n; k++)
                out[(done + k) * n_in + i] = line[k];
        }
    }
}

/* Elements [begin, begin+n) of row `row` of the turned matrix. */
static void read_turned_piece(const safetensor *t, int64_t row, int64_t begin, int64_t n,
                              float *out)
{
    size_t size = nrl_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++)
        convert_to_f32(t->dtype, t->data + (size_t)((begin + i) * t->dims[1] + row) * size, 1,
                       out + i);
}

/* A range of the turned matrix: the end of a row, whole rows, the start of a row. */
static void read_transposed(const safetensor *t, int64_t begin, int64_t n, float *out)
{
    int64_t width = t->dims[0], column = begin % width;
    if (column) {
        int64_t head = n < width - column ? n : width - column;
        read_turned_piece(t, begin / width, column, head, out);
        begin += head;
        n -= head;
        out += head;
    }
    int64_t rows = n / width;
    read_turned(t, begin / width, rows, out);
    if (n > rows * width)
        read_turned_piece(t, begin / width + rows, 0, n - rows * width, out + rows * width);
}

static nrl_status read_part(const hf_weights *w, const model *m, const nrl_part *part,
                            int64_t begin, int64_t n, float *out)
{
    const safetensor *t = weights_part(w, m, part);
    if (!t || !convert_known(t->dtype) || t->n_dims != part->n_dims)
        return nrl_fail(NRL_ERR_DATA, "%s: no usable tensor '%s'", w->dir, part->name);
    if (begin + n > t->numel)
        return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' has %lld elements, expected more", w->dir,
                        part->name, (long long)t->numel);
    if (part->transposed)
        read_transposed(t, begin, n, out);
    else
        convert_to_f32(t->dtype, t->data + (size_t)begin * nrl_dtype_size(t->dtype), n, out);
    return NRL_OK;
}

static int64_t part_numel(const nrl_part *part)
{
    int64_t n = 1;
    for (int i = 0; i < part->n_dims; i++)
        n *= part->dims[i];
    return n;
}

nrl_status hf_weights_read(const hf_weights *w, const model *m, const nrl_param *p, int64_t begin,
                           int64_t n, float *out)
{
    int64_t at = 0; /* where this part begins in the parameter */
    for (int i = 0; i < p->n_parts && n > 0; i++) {
        int64_t size = part_numel(&p->parts[i]);
        if (begin < at + size) {
            int64_t first = begin - at, k = n < size - first ? n : size - first;
            NRL_TRY(read_part(w, m, &p->parts[i], first, k, out));
            begin += k;
            n -= k;
            out += k;
        }
        at += size;
    }
    NRL_ASSERT(n, ==, 0);
    return NRL_OK;
}

nrl_status hf_weights_hash(const hf_weights *w, char out[33])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (int64_t i = 0; i < w->n; i++) {
        const safetensor *t = w->sorted[i];
        XXH3_128bits_update(&state, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(&state, t->type, strlen(t->type) + 1);
        XXH3_128bits_update(&state, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        XXH3_128bits_update(&state, t->data, t->size_bytes);
    }
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return NRL_OK;
}

/* Samples of a tensor: pages, as reading less than one costs as much. */
enum { SAMPLES = 4, SAMPLE_BYTES = 4096 };

/* The first and the last block of its bytes, and two between them. */
static uint64_t sample_hash(const safetensor *t)
{
    size_t size = t->size_bytes;
    if (size <= SAMPLES * SAMPLE_BYTES) return XXH3_64bits(t->data, size);
    uint64_t h = 0;
    for (size_t k = 0; k < SAMPLES; k++)
        h = XXH3_64bits_withSeed(t->data + (size - SAMPLE_BYTES) / (SAMPLES - 1) * k, SAMPLE_BYTES, h);
    return h;
}

char *hf_weights_identity(const hf_weights *w, const char *whose)
{
    buffer lines = {0};
    char shape[200];
    for (int64_t i = 0; i < w->n; i++) {
        const safetensor *t = w->sorted[i];
        safetensors_shape_text(t->n_dims, t->dims, shape, sizeof shape);
        buffer_print(&lines, "%s'%s': %s %s, %016llx\n", whose, t->name, t->type, shape,
                     (unsigned long long)sample_hash(t));
    }
    return buffer_take(&lines);
}
