/*
 * hf_save.c - writes a Hugging Face directory: weights part by part, config.json, travelling files.
 * Memory: one chunk of values; a matrix that files keep turned (GPT-2) is held whole while it is
 * turned.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "model/convert.h"
#include "model/output.h"
#include "model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, ALIGN = 8, LENGTH_BYTES = 8 };

/* What belongs to a model and is not changed by training. */
static const char *const travelling[] = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "tokenizer.model",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "generation_config.json"};

typedef struct {
    nrl_param *param;
    const nrl_part *part;
    int64_t begin, numel; /* elements of the parameter */
    uint64_t bytes;
    int32_t shard;
} piece;

typedef struct {
    const model *m;
    const hf_save_options *options;
    int32_t first, end; /* parameters that are written */
    hf_source source;
    void *user;
    nrl_dtype dtype;
    output out;
    int64_t n_pieces;
    piece *pieces; /* in order of writing */
    int32_t n_shards;
    uint64_t total_bytes;
    char name[64]; /* of the shard at hand */
    float *values, *turned;
    void *raw;
    size_t room; /* elements of the three buffers */
} saver;

/* ---- what goes where ---- */

static void add_piece(saver *s, nrl_param *p, int k, int64_t begin, int64_t limit, uint64_t *used)
{
    int64_t numel = 1;
    for (int i = 0; i < p->parts[k].n_dims; i++)
        numel *= p->parts[k].dims[i];
    uint64_t bytes = (uint64_t)numel * nrl_dtype_size(s->dtype);
    if (limit && *used && *used + bytes > (uint64_t)limit) {
        s->n_shards++;
        *used = 0;
    }
    *used += bytes;
    s->total_bytes += bytes;
    s->pieces[s->n_pieces++] = (piece){p, &p->parts[k], begin, numel, bytes, s->n_shards - 1};
}

static void plan(saver *s, int64_t limit)
{
    int64_t n = 0;
    uint64_t used = 0;
    for (int32_t i = s->first; i < s->end; i++)
        n += s->m->params[i]->n_parts;
    s->pieces = mem_alloc((size_t)n * sizeof *s->pieces);
    s->n_shards = 1;
    for (int32_t i = s->first; i < s->end; i++) {
        nrl_param *p = s->m->params[i];
        int64_t begin = 0;
        for (int k = 0; k < p->n_parts; k++) {
            add_piece(s, p, k, begin, limit, &used);
            begin += s->pieces[s->n_pieces - 1].numel;
        }
    }
}

static const char *shard_name(saver *s, int32_t shard)
{
    if (s->options->adapter_config)
        snprintf(s->name, sizeof s->name, "adapter_model.safetensors");
    else if (s->n_shards == 1)
        snprintf(s->name, sizeof s->name, "model.safetensors");
    else
        snprintf(s->name, sizeof s->name, "model-%05d-of-%05d.safetensors", shard + 1, s->n_shards);
    return s->name;
}

/* ---- one weight file ---- */

static const char *type_name(nrl_dtype dtype)
{
    return dtype == NRL_DTYPE_F32 ? "F32" : dtype == NRL_DTYPE_BF16 ? "BF16" : "F16";
}

static void describe(buffer *b, const saver *s, const piece *p, uint64_t offset)
{
    int64_t dims[NRL_MAX_DIMS];
    char shape[128], *name = json_quote(p->part->name, strlen(p->part->name));
    weights_file_dims(p->part, dims);
    safetensors_shape_text(p->part->n_dims, dims, shape, sizeof shape);
    buffer_print(b, ",%s:{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", name,
                 type_name(s->dtype), shape, (unsigned long long)offset,
                 (unsigned long long)(offset + p->bytes));
    free(name);
}

/* The length and the header, padded with spaces so that the data is aligned; returns data bytes. */
static uint64_t make_header(const saver *s, int32_t shard, buffer *b)
{
    uint64_t offset = 0;
    char length[LENGTH_BYTES] = {0};
    buffer_add(b, length, sizeof length);
    buffer_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < s->n_pieces; i++) {
        if (s->pieces[i].shard != shard) continue;
        describe(b, s, &s->pieces[i], offset);
        offset += s->pieces[i].bytes;
    }
    buffer_puts(b, "}");
    buffer_spaces(b, (ALIGN - b->size % ALIGN) % ALIGN);
    uint64_t n = b->size - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++)
        b->text[i] = (char)(n >> (8 * i) & 0xFF);
    return offset;
}

static void make_room(saver *s, int64_t n)
{
    if (s->room >= (size_t)n) return;
    s->room = (size_t)n;
    s->values = mem_realloc(s->values, s->room * sizeof(float));
    s->turned = mem_realloc(s->turned, s->room * sizeof(float));
    s->raw = mem_realloc(s->raw, s->room * sizeof(float));
}

/* f NULL: they are discarded. */
static nrl_status write_values(saver *s, output_file *f, const float *values, int64_t n)
{
    if (!f) return NRL_OK;
    if (s->dtype == NRL_DTYPE_F32) return output_file_write(f, values, (size_t)n * sizeof(float));
    convert_from_f32(s->dtype, values, n, s->raw);
    return output_file_write(f, s->raw, (size_t)n * nrl_dtype_size(s->dtype));
}

/* [out, in] of the parameter to [in, out] of the file. */
static nrl_status write_turned(saver *s, output_file *f, const piece *p)
{
    int64_t n_out = p->part->dims[0], n_in = p->part->dims[1];
    make_room(s, p->numel);
    NRL_TRY(s->source(s->user, p->param, p->begin, p->numel, s->values));
    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++)
            s->turned[i * n_out + o] = s->values[o * n_in + i];
    return write_values(s, f, s->turned, p->numel);
}

static nrl_status write_piece(saver *s, output_file *f, const piece *p)
{
    if (p->part->transposed) return write_turned(s, f, p);
    for (int64_t done = 0; done < p->numel; done += CHUNK) {
        int64_t n = p->numel - done < CHUNK ? p->numel - done : CHUNK;
        make_room(s, n);
        NRL_TRY(s->source(s->user, p->param, p->begin + done, n, s->values));
        NRL_TRY(write_values(s, f, s->values, n));
    }
    return NRL_OK;
}

static nrl_status write_shard(saver *s, int32_t shard)
{
    buffer header = {0};
    uint64_t data = make_header(s, shard, &header);
    output_file f;
    nrl_status st = output_file_open(&s->out, shard_name(s, shard), header.size + data, &f);
    if (st == NRL_OK) {
        st = output_file_write(&f, header.text, header.size);
        for (int64_t i = 0; i < s->n_pieces && st == NRL_OK; i++)
            if (s->pieces[i].shard == shard) st = write_piece(s, &f, &s->pieces[i]);
        st = output_file_close(&f, st);
    }
    buffer_free(&header);
    return st;
}

/* ---- the other files ---- */

static nrl_status write_index(saver *s)
{
    if (s->n_shards == 1) return NRL_OK;
    buffer b = {0};
    buffer_print(&b, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
                 (unsigned long long)s->total_bytes);
    for (int64_t i = 0; i < s->n_pieces; i++) {
        const char *name = s->pieces[i].part->name;
        char *quoted = json_quote(name, strlen(name));
        buffer_print(&b, "%s\n    %s: \"%s\"", i ? "," : "", quoted,
                     shard_name(s, s->pieces[i].shard));
        free(quoted);
    }
    buffer_puts(&b, "\n  }\n}\n");
    nrl_status st = output_text(&s->out, "model.safetensors.index.json", b.text);
    buffer_free(&b);
    return st;
}

/* The config as loaded; only the type of the weights is ours to say, under the key it uses. */
static nrl_status write_config(saver *s)
{
    static const char *const types[] = {
        [NRL_DTYPE_F32] = "float32", [NRL_DTYPE_BF16] = "bfloat16", [NRL_DTYPE_F16] = "float16"};
    arena a = {0};
    nrl_node *config = node_copy(&a, s->m->config);
    const char *type = types[s->dtype];
    const char *key = nrl_node_find(config, "dtype") ? "dtype" : "torch_dtype";
    node_set(&a, config, key, node_string(&a, type, strlen(type)));
    char *text = json_write(config, 2);
    nrl_status st = output_text(&s->out, "config.json", text);
    free(text);
    arena_free(&a);
    return st;
}

/* Weights of an earlier save under other names would be read instead of, or beside, these. */
static bool is_stale(const char *name)
{
    size_t n = strlen(name);
    static const char end[] = ".safetensors";
    if (!strcmp(name, "model.safetensors.index.json")) return true;
    return !strncmp(name, "model", 5) && (name[5] == '.' || name[5] == '-') && n > sizeof end &&
           !strcmp(name + n - (sizeof end - 1), end);
}

static nrl_status write_travelling(saver *s, const hf_save_options *options)
{
    const hf_file *own = options->replaced;
    for (size_t i = 0; i < sizeof travelling / sizeof *travelling && options->copy_from; i++) {
        bool replaced = false;
        for (const hf_file *f = own; f->name; f++)
            replaced |= !strcmp(f->name, travelling[i]);
        if (!replaced) NRL_TRY(output_copy(&s->out, options->copy_from, travelling[i]));
    }
    for (const hf_file *f = own; f->name; f++)
        if (f->text) NRL_TRY(output_text(&s->out, f->name, f->text));
    return NRL_OK;
}

static bool is_model(const char *name)
{
    return !strcmp(name, "config.json") || is_stale(name);
}

static bool is_adapter(const char *name)
{
    return !strncmp(name, "adapter_", 8);
}

static bool is_made(const char *name)
{
    for (size_t i = 0; i < sizeof travelling / sizeof *travelling; i++)
        if (!strcmp(travelling[i], name)) return true;
    return is_model(name);
}

nrl_status hf_remove(const char *dir)
{
    return output_remove(dir, is_made);
}

static nrl_status write_all(saver *s, const hf_save_options *options)
{
    if (!options->overwrite) NRL_TRY(output_refuse(&s->out, options->adapter_config ? is_adapter : is_model));
    for (int32_t i = 0; i < s->n_shards; i++)
        NRL_TRY(write_shard(s, i));
    if (options->adapter_config) {
        NRL_TRY(output_text(&s->out, "adapter_config.json", options->adapter_config));
        return output_publish(&s->out, options->overwrite, NULL);
    }
    NRL_TRY(write_index(s));
    NRL_TRY(write_travelling(s, options));
    NRL_TRY(write_config(s));
    return output_publish(&s->out, options->overwrite, is_stale);
}

static nrl_status discard_all(saver *s)
{
    for (int64_t i = 0; i < s->n_pieces; i++)
        NRL_TRY(write_piece(s, NULL, &s->pieces[i]));
    return NRL_OK;
}

nrl_status hf_save(const char *dir, const model *m, hf_source source, void *user,
                   const hf_save_options *options)
{
    nrl_dtype dtype = options->dtype;
    if (dtype != NRL_DTYPE_F32 && dtype != NRL_DTYPE_BF16 && dtype != NRL_DTYPE_F16)
        return nrl_fail(NRL_ERR_CONFIG, "weights cannot be saved as %s, expected f32, bf16 or f16",
                        nrl_dtype_name(dtype));
    bool alone = options->adapter_config;
    saver s = {.m = m, .options = options, .first = alone ? m->n_own : 0,
               .end = alone ? m->n_params : m->n_own, .source = source, .user = user, .dtype = dtype};
    plan(&s, alone ? 0 : options->max_shard_bytes);
    nrl_status st = options->discard ? discard_all(&s) : output_open(dir, options->inputs, &s.out);
    if (st == NRL_OK && !options->discard) st = write_all(&s, options);
    output_close(&s.out);
    free(s.pieces);
    free(s.values);
    free(s.turned);
    free(s.raw);
    return st;
}
