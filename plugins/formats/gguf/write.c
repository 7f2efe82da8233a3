/*
 * write.c - writes a model as one GGUF file. The metadata and the places of all tensors are known before the first
 * value. Matrices of experts, which come one by one, are parts of one tensor. Memory: one row of a tensor, or the whole
 * tensor if its rows change places.
 */
#include "base/arena.h"
#include "base/json.h"
#include "base/output.h"
#include "gguf.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "model.gguf";

bool gguf_owns(const char *name)
{
    return !strcmp(name, file_name);
}

/* ---- metadata ---- */

void gguf_add(buffer *b, const void *value, size_t size)
{
    buffer_add(b, value, size);
}

void gguf_add_text(buffer *b, const char *text, size_t size)
{
    const uint64_t n = size;
    gguf_add(b, &n, sizeof n);
    gguf_add(b, text, size);
}

static void put_key(gguf_metadata *m, const char *key, gguf_value_type type)
{
    const uint32_t number = type;
    gguf_add_text(&m->bytes, key, strlen(key));
    gguf_add(&m->bytes, &number, sizeof number);
    m->n++;
}

void gguf_put_u32(gguf_metadata *m, const char *key, uint32_t value)
{
    put_key(m, key, GGUF_UINT32);
    gguf_add(&m->bytes, &value, sizeof value);
}

void gguf_put_f32(gguf_metadata *m, const char *key, double value)
{
    const float rounded = (float)value;
    put_key(m, key, GGUF_FLOAT32);
    gguf_add(&m->bytes, &rounded, sizeof rounded);
}

void gguf_put_bool(gguf_metadata *m, const char *key, bool value)
{
    const unsigned char byte = value;
    put_key(m, key, GGUF_BOOL);
    gguf_add(&m->bytes, &byte, sizeof byte);
}

void gguf_put_text(gguf_metadata *m, const char *key, const char *text, size_t size)
{
    put_key(m, key, GGUF_STRING);
    gguf_add_text(&m->bytes, text, size);
}

void gguf_put_array(gguf_metadata *m, const char *key, gguf_value_type type, uint64_t n)
{
    const uint32_t number = type;
    put_key(m, key, GGUF_ARRAY);
    gguf_add(&m->bytes, &number, sizeof number);
    gguf_add(&m->bytes, &n, sizeof n);
}

/* ---- the writer ---- */

typedef struct {
    char name[GGUF_NAME];
    const gguf_encoding *encoding;
    gguf_change change;
    int32_t n_dims;
    int64_t dims[NRL_FORMAT_MAX_DIMS]; /* in the file, slowest first; with the experts */
    int64_t numel;                     /* of one expert */
    int64_t n_experts;                 /* 0 = not a tensor of experts */
    size_t bytes, offset;              /* of all; offset from the first tensor, a multiple of GGUF_ALIGNMENT */
} gguf_out;

/* Where a tensor that comes is written. */
typedef struct {
    int64_t tensor, expert;
} gguf_place;

typedef struct {
    arena memory;
    const gguf_architecture *arch;
    const nrl_node *config;
    gguf_out *tensors; /* [n]; divisors of rotary frequencies, if any, are the last */
    int64_t n;
    gguf_place *places; /* [n_in] of the tensors that come, and of the divisors */
    int64_t n_in;
    int64_t at; /* that is being written */
    float divisors[512];
    int64_t n_divisors;
    output out;
    output_file file;
    bool is_open;
    size_t data;            /* where the tensors begin in the file */
    float *values, *moved;  /* [room] elements that wait for the end of a row or tensor; and with rows moved */
    unsigned char *encoded; /* [encoded_room] */
    int64_t waiting, room;
    size_t encoded_room;
} gguf_writer;

/* Vectors, biases of experts and position embeddings stay in F32, as in llama.cpp's own files. Rows that do not consist
 * of whole blocks have a simpler encoding. */
static const gguf_encoding *choose_encoding(const gguf_out *t, const gguf_encoding *wanted, bool is_tied)
{
    bool is_head = !strcmp(t->name, "output.weight") || (is_tied && !strcmp(t->name, "token_embd.weight"));
    bool is_router = strstr(t->name, ".ffn_gate_inp.");
    if (t->n_dims < 2 || is_router || !strcmp(t->name, "position_embd.weight") || strstr(t->name, ".bias"))
        return gguf_encoding_of(GGUF_F32);
    if (wanted->type == GGUF_Q4_K && is_head) wanted = gguf_encoding_of(GGUF_Q6_K);
    int64_t width = t->dims[t->n_dims - 1];
    if (width % wanted->block == 0) return wanted;
    return gguf_encoding_of(width % 32 == 0 ? GGUF_Q8_0 : GGUF_F16);
}

/* Adds the matrix at the end to the tensor of the experts before it, which is near. */
static nrl_status join_experts(gguf_writer *w, const char *from, int64_t expert, gguf_place *place)
{
    const gguf_out *last = &w->tensors[w->n];
    for (int64_t i = w->n - 1; i >= 0; i--) {
        gguf_out *t = &w->tensors[i];
        if (strcmp(t->name, last->name)) continue;
        if (last->n_dims != 2 || t->n_experts != expert || memcmp(t->dims + 1, last->dims, 2 * sizeof *t->dims)) break;
        for (int part = 0; part <= t->change.alternates; part++)
            t[part].n_experts = ++t[part].dims[0];
        *place = (gguf_place){i, expert};
        return NRL_OK;
    }
    return nrl_fail(NRL_ERR_BUG, "tensor '%s' does not follow the one of expert %lld", from, (long long)expert - 1);
}

/* Adds the tensor of the odd columns after the one of the even ones, which becomes half as wide. */
static nrl_status divide_columns(gguf_writer *w, gguf_out *t, const char *from)
{
    static const char even[] = "ffn_gate_exps", odd[] = "ffn_up_exps";
    const char *at = strstr(t->name, even);
    gguf_out *other = &w->tensors[w->n++];
    if (!at || t->numel % 2)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: '%s' does not consist of pairs of columns", from);
    *other = *t;
    snprintf(other->name, sizeof other->name, "%.*s%s%s", (int)(at - t->name), t->name, odd, at + sizeof even - 1);
    return NRL_OK;
}

static nrl_status plan_tensors(gguf_writer *w, const nrl_format_write *what, const gguf_encoding *wanted)
{
    size_t offset = 0;
    bool is_tied = true;
    int64_t n_simpler = 0;
    const char *first = NULL;
    w->n_in = what->n_tensors;
    w->n_divisors = gguf_rope_divisors(w->arch, w->config, w->divisors);
    w->tensors = arena_alloc(&w->memory, (size_t)(2 * w->n_in + 1) * sizeof *w->tensors);
    w->places = arena_alloc(&w->memory, (size_t)(w->n_in + 1) * sizeof *w->places);
    for (int64_t i = 0; i < w->n_in; i++) {
        const nrl_format_tensor *from =
            (const nrl_format_tensor *)(const void *)((const char *)what->tensors + (size_t)i * what->tensor_size);
        gguf_out *t = &w->tensors[w->n];
        int64_t expert;
        if (!gguf_name_of(w->arch, from->name, t->name, &expert))
            return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: the architecture %s has no tensor '%s'", w->arch->name,
                            from->name);
        t->change = gguf_change_of(w->arch, w->config, from->name);
        t->n_dims = from->n_dims;
        t->numel = 1;
        for (int32_t d = 0; d < t->n_dims; d++) {
            t->dims[d] = from->dims[t->change.transposed ? t->n_dims - 1 - d : d];
            t->numel *= t->dims[d];
        }
        if (t->change.alternates) {
            t->dims[t->change.transposed ? 0 : t->n_dims - 1] /= 2;
            t->numel /= 2;
        }
        if (expert > 0) { /* the first one has made the tensor */
            NRL_TRY(join_experts(w, from->name, expert, &w->places[i]));
            continue;
        }
        w->places[i] = (gguf_place){w->n++, 0};
        if (expert == 0) {
            memmove(t->dims + 1, t->dims, (size_t)t->n_dims++ * sizeof *t->dims);
            t->n_experts = t->dims[0] = 1;
        }
        if (t->change.alternates) NRL_TRY(divide_columns(w, t, from->name));
        is_tied &= strcmp(t->name, "output.weight") != 0;
    }
    if (w->n_divisors) {
        w->places[w->n_in] = (gguf_place){w->n, 0};
        gguf_out *t = &w->tensors[w->n++];
        strcpy(t->name, "rope_freqs.weight");
        t->n_dims = 1;
        t->numel = t->dims[0] = w->n_divisors;
    }
    for (int64_t i = 0; i < w->n; i++) {
        gguf_out *t = &w->tensors[i];
        t->encoding = choose_encoding(t, wanted, is_tied);
        if (t->encoding->type != GGUF_F32 && t->dims[t->n_dims - 1] % wanted->block && !n_simpler++) first = t->name;
        t->bytes = (size_t)(t->numel / t->encoding->block) * t->encoding->bytes;
        if (t->n_experts) t->bytes *= (size_t)t->n_experts;
        t->offset = offset;
        offset += (t->bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    }
    if (n_simpler)
        nrl_warn(
            "GGUF: %lld matrices such as %s have rows that are not a multiple of %lld elements; they are written as "
            "%sF16 instead of %s",
            (long long)n_simpler, first, (long long)wanted->block, wanted->block > 32 ? "Q8_0 or " : "", wanted->name);
    return NRL_OK;
}

/* Zeros from `size` to the next multiple of the alignment; also where nothing else is written. */
static nrl_status write_padding(gguf_writer *w, size_t size)
{
    static const char zeros[GGUF_ALIGNMENT];
    return output_file_write(&w->file, zeros, (GGUF_ALIGNMENT - size % GGUF_ALIGNMENT) % GGUF_ALIGNMENT);
}

static nrl_status go_to(gguf_writer *w, size_t place)
{
    if (lseek(w->file.fd, (off_t)place, SEEK_SET) >= 0) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "%s: %s", w->file.path, strerror(errno));
}

static nrl_status write_header(gguf_writer *w, const gguf_metadata *m)
{
    buffer b = {0};
    const uint32_t version = GGUF_VERSION;
    const uint64_t n = (uint64_t)w->n;
    gguf_add(&b, "GGUF", 4);
    gguf_add(&b, &version, sizeof version);
    gguf_add(&b, &n, sizeof n);
    gguf_add(&b, &m->n, sizeof m->n);
    gguf_add(&b, m->bytes.text, m->bytes.size);
    for (int64_t i = 0; i < w->n; i++) {
        const gguf_out *t = &w->tensors[i];
        const uint32_t n_dims = (uint32_t)t->n_dims, type = t->encoding->type;
        const uint64_t offset = t->offset;
        gguf_add_text(&b, t->name, strlen(t->name));
        gguf_add(&b, &n_dims, sizeof n_dims);
        for (int32_t d = t->n_dims - 1; d >= 0; d--)
            gguf_add(&b, &t->dims[d], sizeof t->dims[d]);
        gguf_add(&b, &type, sizeof type);
        gguf_add(&b, &offset, sizeof offset);
    }
    size_t size = b.size + GGUF_ALIGNMENT;
    for (int64_t i = 0; i < w->n; i++)
        size += w->tensors[i].bytes + GGUF_ALIGNMENT;
    nrl_status st = output_file_open(&w->out, file_name, size, &w->file);
    w->is_open = st == NRL_OK;
    if (st == NRL_OK) st = output_file_write(&w->file, b.text, b.size);
    if (st == NRL_OK) st = write_padding(w, b.size);
    w->data = (b.size + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    buffer_free(&b);
    return st;
}

/* The word of --dtype, or else the dtype. */
static nrl_status find_encoding(const nrl_format_write *what, const gguf_encoding **out)
{
    bool has_word = what->size > offsetof(nrl_format_write, encoding) && what->encoding;
    buffer known = {0};
    *out = gguf_encoding_named(has_word ? what->encoding : nrl_dtype_name((nrl_dtype)what->dtype));
    if (*out) return NRL_OK;
    for (const gguf_encoding *e = gguf_encoding_next(NULL); e; e = gguf_encoding_next(e))
        buffer_print(&known, "%s%s", known.size ? ", " : "", e->name);
    nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF as '%s'; expected one of %s", has_word ? what->encoding : "?",
             known.text);
    buffer_free(&known);
    return NRL_ERR_CONFIG;
}

static nrl_status begin(gguf_writer *w, const nrl_format_write *what, gguf_metadata *m)
{
    const gguf_encoding *wanted;
    nrl_node *config;
    bool has_files = what->size > offsetof(nrl_format_write, files);
    NRL_TRY(find_encoding(what, &wanted));
    NRL_TRY(json_parse(&w->memory, "config.json", what->config, what->config_size, &config));
    w->config = config;
    NRL_TRY(gguf_find_architecture(config, &w->arch));
    gguf_complete(w->arch, &w->memory, config);
    NRL_TRY(plan_tensors(w, what, wanted));
    NRL_TRY(gguf_describe(w->arch, config, m));
    gguf_put_u32(m, "general.alignment", GGUF_ALIGNMENT);
    gguf_put_u32(m, "general.quantization_version", 2);
    gguf_put_u32(m, "general.file_type", wanted->file);
    gguf_put_text(m, "nrl.config", what->config, what->config_size);
    if (has_files && what->companions)
        NRL_TRY(gguf_put_tokenizer(m, what, config, nrl_node_int(nrl_node_find(config, "vocab_size"), 0)));
    else
        gguf_put_text(m, "tokenizer.ggml.model", "no_vocab", strlen("no_vocab"));
    w->at = -1;
    w->out.temporary = arena_strdup(&w->memory, what->dir);
    w->out.given = w->out.temporary;
    return write_header(w, m);
}

nrl_status gguf_begin(const nrl_format_write *what, void **writer)
{
    gguf_metadata m = {0};
    gguf_writer *w = mem_alloc(sizeof *w);
    nrl_status st = begin(w, what, &m);
    buffer_free(&m.bytes);
    if (st == NRL_OK)
        *writer = w;
    else
        gguf_abandon(w);
    return st;
}

/* Encodes and writes n elements, whole blocks of tensor t. */
static nrl_status write_encoded(gguf_writer *w, const gguf_out *t, const float *values, int64_t n)
{
    size_t bytes = (size_t)(n / t->encoding->block) * t->encoding->bytes;
    if (bytes > w->encoded_room) {
        void *room = mem_try_grow(w->encoded, bytes, "values of a GGUF file");
        if (!room) return NRL_ERR_MEMORY;
        w->encoded = room;
        w->encoded_room = bytes;
    }
    gguf_encode(t->encoding, values, n, w->encoded);
    return output_file_write(&w->file, w->encoded, bytes);
}

static nrl_status go_to_tensor(gguf_writer *w, const gguf_out *t, int64_t expert)
{
    const size_t each = t->n_experts ? t->bytes / (size_t)t->n_experts : 0;
    return go_to(w, w->data + t->offset + (size_t)expert * each);
}

/* Writes the even columns of a whole matrix to tensor t and the odd ones to the next tensor. */
static nrl_status write_columns(gguf_writer *w, const gguf_out *t, int64_t expert)
{
    const int64_t width = t->dims[t->n_dims - 1], rows = t->numel / width;
    for (int part = 0; part < 2; part++) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < width; c++)
                w->moved[r * width + c] = w->values[2 * (t->change.transposed ? c * rows + r : r * width + c) + part];
        if (part) NRL_TRY(go_to_tensor(w, t + 1, expert));
        NRL_TRY(write_encoded(w, t, w->moved, t->numel));
    }
    return NRL_OK;
}

/* Changes the waiting elements into the file's form and writes them. */
static nrl_status write_waiting(gguf_writer *w, const gguf_out *t, int64_t expert)
{
    int64_t n = w->waiting, width = t->n_dims > 1 ? t->dims[t->n_dims - 1] : 1, rows = n / width; /* of a bias: 1 */
    const float *values = w->values;
    w->waiting = 0;
    if (t->change.alternates) return write_columns(w, t, expert);
    for (int64_t i = 0; t->change.plus_one && i < n; i++)
        w->values[i] += 1;
    if (t->change.heads) { /* [heads, 2, half, width] becomes [heads, half, 2, width] */
        int64_t half = rows / t->change.heads / 2;
        for (int64_t r = 0; r < rows; r++) {
            int64_t head = r / (2 * half), j = r / 2 % half, pair = r % 2;
            memcpy(w->moved + r * width, w->values + ((head * 2 + pair) * half + j) * width,
                   (size_t)width * sizeof(float));
        }
        values = w->moved;
    } else if (t->change.transposed) { /* [width, rows] becomes [rows, width] */
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < width; c++)
                w->moved[r * width + c] = w->values[c * rows + r];
        values = w->moved;
    }
    return write_encoded(w, t, values, n);
}

static nrl_status make_room(gguf_writer *w, int64_t n)
{
    if (n <= w->room) return NRL_OK;
    float *values = mem_try_grow(w->values, (size_t)n * sizeof(float), "values of a GGUF file");
    if (!values) return NRL_ERR_MEMORY;
    w->values = values;
    float *moved = mem_try_grow(w->moved, (size_t)n * sizeof(float), "values of a GGUF file");
    if (!moved) return NRL_ERR_MEMORY;
    w->moved = moved;
    w->room = n;
    return NRL_OK;
}

nrl_status gguf_write(void *writer, int64_t i, int64_t n, const float *values)
{
    gguf_writer *w = writer;
    const gguf_out *t = &w->tensors[w->places[i].tensor];
    if (i != w->at) { /* tensors of experts take turns */
        NRL_TRY(go_to_tensor(w, t, w->places[i].expert));
        w->at = i;
    }
    int64_t unit = t->change.heads || t->change.transposed ? t->numel : t->dims[t->n_dims - 1];
    if (t->change.alternates) unit = 2 * t->numel;
    NRL_TRY(make_room(w, unit));
    while (n) {
        int64_t take = unit - w->waiting < n ? unit - w->waiting : n;
        memcpy(w->values + w->waiting, values, (size_t)take * sizeof *values);
        w->waiting += take;
        values += take;
        n -= take;
        if (w->waiting == unit) NRL_TRY(write_waiting(w, t, w->places[i].expert));
    }
    return NRL_OK;
}

static nrl_status gguf_end(gguf_writer *w, nrl_status st)
{
    if (w->is_open) st = output_file_close(&w->file, st);
    free(w->values);
    free(w->moved);
    free(w->encoded);
    arena_free(&w->memory);
    free(w);
    return st;
}

nrl_status gguf_finish(void *writer)
{
    gguf_writer *w = writer;
    nrl_status st = w->n_divisors ? gguf_write(w, w->n_in, w->n_divisors, w->divisors) : NRL_OK;
    const gguf_out *last = w->n ? &w->tensors[w->n - 1] : NULL;
    if (st == NRL_OK && last) st = go_to(w, w->data + last->offset + last->bytes);
    if (st == NRL_OK && last) st = write_padding(w, last->bytes);
    return gguf_end(w, st);
}

void gguf_abandon(void *writer)
{
    gguf_end(writer, NRL_ERR_STOPPED);
}
