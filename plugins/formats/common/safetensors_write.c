/*
 * safetensors_write.c - see safetensors_write.h. A file's header depends only on shapes, so it is
 * written before any value.
 */
#include "safetensors_write.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/convert.h"
#include "base/json.h"
#include "safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 8, LENGTH_BYTES = 8 };
static const float F16_LIMIT = 65520; /* rounds to infinity */

const nrl_format_tensor *safetensors_tensor(const safetensors_writer *w, int64_t i)
{
    return (const void *)((const char *)w->what.tensors + (size_t)i * w->what.tensor_size);
}

static uint64_t tensor_bytes(const safetensors_writer *w, int64_t i)
{
    const nrl_format_tensor *t = safetensors_tensor(w, i);
    uint64_t n = nrl_dtype_size((nrl_dtype)t->dtype);
    for (int k = 0; k < t->n_dims; k++)
        n *= (uint64_t)t->dims[k];
    return n;
}

const char *safetensors_file_name(safetensors_writer *w, int32_t file)
{
    if (w->n_files == 1) return w->single;
    snprintf(w->name, sizeof w->name, "model-%05d-of-%05d.safetensors", file + 1, w->n_files);
    return w->name;
}

static const char *type_name(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 ? "F32" : dtype == NRL_DTYPE_BF16 ? "BF16" : "F16";
}

/* Builds the length and the header, padded with spaces so that the data is aligned; returns the bytes of data. */
static uint64_t make_header(const safetensors_writer *w, int32_t file, buffer *b)
{
    uint64_t offset = 0;
    char length[LENGTH_BYTES] = {0};
    buffer_add(b, length, sizeof length);
    buffer_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < w->what.n_tensors; i++) {
        if (w->file_of[i] != file) continue;
        const nrl_format_tensor *t = safetensors_tensor(w, i);
        uint64_t bytes = tensor_bytes(w, i);
        char shape[128], *name = json_quote(t->name, strlen(t->name));
        safetensors_shape_text(t->n_dims, t->dims, shape, sizeof shape);
        buffer_print(b, ",%s:{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", name, type_name(t->dtype),
                     shape, (unsigned long long)offset, (unsigned long long)(offset + bytes));
        free(name);
        offset += bytes;
    }
    buffer_puts(b, "}");
    buffer_spaces(b, (ALIGN - b->size % ALIGN) % ALIGN);
    uint64_t n = b->size - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++)
        b->text[i] = (char)(n >> (8 * i) & 0xFF);
    return offset;
}

static nrl_status open_file(safetensors_writer *w)
{
    buffer header = {0};
    uint64_t data = make_header(w, w->at, &header);
    nrl_status st = output_file_open(&w->out, safetensors_file_name(w, w->at), header.size + data, &w->file);
    w->is_open = st == NRL_OK;
    if (w->is_open) st = output_file_write(&w->file, header.text, header.size);
    buffer_free(&header);
    return st;
}

static nrl_status close_file(safetensors_writer *w, nrl_status st)
{
    if (!w->is_open) return st;
    w->is_open = false;
    return output_file_close(&w->file, st);
}

static nrl_status advance(safetensors_writer *w, int32_t file)
{
    while (w->at < file) {
        NRL_TRY(close_file(w, NRL_OK));
        w->at++;
        NRL_TRY(open_file(w));
    }
    return NRL_OK;
}

nrl_status safetensors_begin(safetensors_writer *w, const nrl_format_write *what, const char *single, bool splits)
{
    uint64_t limit = splits ? (uint64_t)what->max_file_bytes : 0, used = 0;
    *w = (safetensors_writer){.what = *what,
                              .out = {.temporary = mem_strdup(what->dir)},
                              .single = single,
                              .splits = splits,
                              .n_files = 1,
                              .file_of = mem_alloc((size_t)(what->n_tensors + 1) * sizeof *w->file_of)};
    for (int64_t i = 0; i < what->n_tensors; i++) {
        uint64_t bytes = tensor_bytes(w, i);
        if (limit && used && used + bytes > limit) {
            w->n_files++;
            used = 0;
        }
        used += bytes;
        w->total_bytes += bytes;
        w->file_of[i] = w->n_files - 1;
    }
    return open_file(w);
}

nrl_status safetensors_write(safetensors_writer *w, int64_t i, int64_t n, const float *values)
{
    NRL_TRY(advance(w, w->file_of[i]));
    if (w->what.dtype == NRL_DTYPE_F32) return output_file_write(&w->file, values, (size_t)n * sizeof *values);
    for (int64_t k = 0; k < n && w->what.dtype == NRL_DTYPE_F16; k++)
        if (isfinite(values[k]) && fabsf(values[k]) >= F16_LIMIT)
            return nrl_fail(NRL_ERR_CONFIG,
                            "tensor '%s' has the value %g, which is too large for f16; expected bf16 or f32",
                            safetensors_tensor(w, i)->name, values[k]);
    size_t bytes = (size_t)n * nrl_dtype_size((nrl_dtype)w->what.dtype);
    if (w->raw_bytes < bytes) w->raw = mem_realloc(w->raw, w->raw_bytes = bytes);
    convert_from_f32((nrl_dtype)w->what.dtype, values, n, w->raw);
    return output_file_write(&w->file, w->raw, bytes);
}

nrl_status safetensors_end(safetensors_writer *w, nrl_status st)
{
    if (st == NRL_OK) st = advance(w, w->n_files - 1);
    st = close_file(w, st);
    free(w->out.temporary);
    free(w->file_of);
    free(w->raw);
    w->out.temporary = NULL;
    w->file_of = NULL;
    w->raw = NULL;
    return st;
}
