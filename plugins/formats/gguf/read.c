/*
 * read.c - reads the weights and the config of a GGUF file. Every size and offset is checked against the file before
 * it is used. The config is the text that nrl wrote (nrl.config), or is made of the metadata of another writer.
 */
#include "base/arena.h"
#include "base/json.h"
#include "gguf.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TENSORS = 1 << 20, MAX_KEYS = 1 << 16, MAX_EXPERTS = 4096 };

typedef struct {
    const char *key;
    size_t key_size;
    gguf_value_type type;
    const unsigned char *value; /* of a string: its characters */
    uint64_t n;                 /* elements of an array, bytes of a string */
    gguf_value_type of;         /* of an array */
} gguf_pair;

typedef struct {
    char name[GGUF_NAME];
    const gguf_encoding *encoding; /* NULL: unknown */
    uint32_t type;
    gguf_change change;
    int32_t n_dims;
    int64_t dims[NRL_FORMAT_MAX_DIMS]; /* as in Hugging Face files */
    int64_t numel, width;              /* elements; of a row in the file */
    uint64_t offset;
    const unsigned char *data, *odd; /* odd: the other columns of a tensor whose columns alternate */
    bool is_odd;                     /* has such columns; joined with the even ones */
} gguf_in;

typedef struct {
    arena memory;
    const char *path; /* of the file */
    char *dir;        /* of the file, for companions; NULL = it has no tokenizer beside it */
    const unsigned char *map;
    size_t size, at; /* at: the next byte of the header */
    gguf_pair *pairs;
    int64_t n_pairs;
    const gguf_architecture *arch;
    const nrl_node *config;
    char *text; /* of the config */
    gguf_in *tensors;
    int64_t n;
} gguf_reader;

/* ---- bytes ---- */

static nrl_status damaged(const gguf_reader *r, const char *what)
{
    return nrl_fail(NRL_ERR_DATA, "%s: byte %zu: %s", r->path, r->at, what);
}

static nrl_status take(gguf_reader *r, void *out, size_t size)
{
    if (size > r->size - r->at) return damaged(r, "the file ends inside its header");
    memcpy(out, r->map + r->at, size);
    r->at += size;
    return NRL_OK;
}

static nrl_status take_text(gguf_reader *r, const char **text, size_t *size)
{
    uint64_t n;
    NRL_TRY(take(r, &n, sizeof n));
    if (n > r->size - r->at) return damaged(r, "a text is longer than the file");
    *text = (const char *)r->map + r->at;
    *size = n;
    r->at += n;
    return NRL_OK;
}

/* Bytes of a value; 0 for texts and arrays, -1 for unknown types. */
static int size_of(uint32_t type)
{
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes / sizeof *sizes ? sizes[type] : -1;
}

static nrl_status take_array(gguf_reader *r, gguf_pair *p)
{
    uint32_t type;
    const char *text;
    size_t size;
    NRL_TRY(take(r, &type, sizeof type));
    NRL_TRY(take(r, &p->n, sizeof p->n));
    p->of = type;
    p->value = r->map + r->at;
    int width = size_of(type);
    if (width < 0 || type == GGUF_ARRAY) return damaged(r, "an array of an unknown type");
    if (width > 0 && p->n > (r->size - r->at) / (unsigned)width) return damaged(r, "an array is longer than the file");
    r->at += p->n * (unsigned)width;
    for (uint64_t i = 0; type == GGUF_STRING && i < p->n; i++)
        NRL_TRY(take_text(r, &text, &size));
    return NRL_OK;
}

static nrl_status take_pair(gguf_reader *r, gguf_pair *p)
{
    uint32_t type;
    NRL_TRY(take_text(r, &p->key, &p->key_size));
    NRL_TRY(take(r, &type, sizeof type));
    p->type = type;
    if (type == GGUF_ARRAY) return take_array(r, p);
    if (type == GGUF_STRING) {
        const char *text;
        size_t size;
        NRL_TRY(take_text(r, &text, &size));
        p->value = (const unsigned char *)text;
        p->n = size;
        return NRL_OK;
    }
    int width = size_of(type);
    if (width <= 0) return damaged(r, "a value of an unknown type");
    if ((size_t)width > r->size - r->at) return damaged(r, "the file ends inside its header");
    p->value = r->map + r->at;
    r->at += (size_t)width;
    return NRL_OK;
}

/* ---- metadata ---- */

static const gguf_pair *find_pair(const gguf_reader *r, const char *key)
{
    for (int64_t i = 0; i < r->n_pairs; i++)
        if (r->pairs[i].key_size == strlen(key) && !memcmp(r->pairs[i].key, key, r->pairs[i].key_size))
            return &r->pairs[i];
    return NULL;
}

/* "ARCHITECTURE.key" */
static const gguf_pair *find_own(const gguf_reader *r, const char *key)
{
    char name[GGUF_NAME];
    snprintf(name, sizeof name, "%s.%s", r->arch->name, key);
    return find_pair(r, name);
}

static int64_t pair_int(const gguf_pair *p, int64_t or_value)
{
    uint32_t u;
    uint64_t wide;
    if (!p) return or_value;
    if (p->type == GGUF_UINT32 || p->type == GGUF_INT32) return memcpy(&u, p->value, sizeof u), (int64_t)u;
    if (p->type == GGUF_UINT64 || p->type == GGUF_INT64) return memcpy(&wide, p->value, sizeof wide), (int64_t)wide;
    return or_value;
}

static double pair_f32(const gguf_pair *p, double or_value)
{
    float f;
    if (!p || p->type != GGUF_FLOAT32) return or_value;
    memcpy(&f, p->value, sizeof f);
    return (double)f;
}

static void put_int(gguf_reader *r, nrl_node *map, const char *hf, const char *key, int64_t or_value)
{
    int64_t value = pair_int(find_own(r, key), or_value);
    if (value >= 0) node_append_int(&r->memory, map, hf, value);
}

static void put_f32(gguf_reader *r, nrl_node *map, const char *hf, const char *key)
{
    char digits[32];
    const gguf_pair *p = find_own(r, key);
    if (!p) return;
    snprintf(digits, sizeof digits, "%.7g", pair_f32(p, 0)); /* 1e-05 was rounded to an f32 */
    node_append(&r->memory, map, hf, node_f64(&r->memory, strtod(digits, NULL)));
}

static nrl_status fail_scaling(const gguf_reader *r)
{
    return nrl_fail(NRL_ERR_CONFIG, "%s: cannot derive the config: rotary scaling is not supported", r->path);
}

/* The config of a model of llama, qwen2, qwen3 or gpt2 without rotary scaling: others have facts that the metadata do
 * not hold. */
static nrl_status make_config(gguf_reader *r, nrl_node **out)
{
    arena *a = &r->memory;
    nrl_node *map = *out = node_new(a, NRL_NODE_MAP);
    const char *type = r->arch->model_type;
    if (strcmp(type, "llama") && strcmp(type, "qwen2") && strcmp(type, "qwen3") && strcmp(type, "gpt2"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: cannot derive the config of architecture '%s'; expected llama, qwen2, qwen3 or "
                        "gpt2, or a file written by nrl",
                        r->path, r->arch->name);
    if (find_own(r, "rope.scaling.type") || find_own(r, "rope.scaling.factor")) return fail_scaling(r);
    const gguf_pair *tokens = find_pair(r, "tokenizer.ggml.tokens");
    int64_t vocab = tokens && tokens->type == GGUF_ARRAY ? (int64_t)tokens->n : -1;
    node_append_text(a, map, "model_type", type);
    put_int(r, map, "vocab_size", "vocab_size", vocab);
    if (r->arch->is_gpt2) {
        put_int(r, map, "n_layer", "block_count", -1);
        put_int(r, map, "n_positions", "context_length", -1);
        put_int(r, map, "n_embd", "embedding_length", -1);
        put_int(r, map, "n_inner", "feed_forward_length", -1);
        put_int(r, map, "n_head", "attention.head_count", -1);
        put_f32(r, map, "layer_norm_epsilon", "attention.layer_norm_epsilon");
        node_append_text(a, map, "activation_function", "gelu_new");
        return NRL_OK;
    }
    put_int(r, map, "num_hidden_layers", "block_count", -1);
    put_int(r, map, "max_position_embeddings", "context_length", -1);
    put_int(r, map, "hidden_size", "embedding_length", -1);
    put_int(r, map, "intermediate_size", "feed_forward_length", -1);
    put_int(r, map, "num_attention_heads", "attention.head_count", -1);
    put_int(r, map, "num_key_value_heads", "attention.head_count_kv",
            pair_int(find_own(r, "attention.head_count"), -1));
    put_int(r, map, "head_dim", "attention.key_length", -1);
    put_f32(r, map, "rms_norm_eps", "attention.layer_norm_rms_epsilon");
    put_f32(r, map, "rope_theta", "rope.freq_base");
    node_append_text(a, map, "hidden_act", "silu");
    return NRL_OK;
}

static nrl_status read_config(gguf_reader *r)
{
    const gguf_pair *own = find_pair(r, "nrl.config"), *arch = find_pair(r, "general.architecture");
    nrl_node *config;
    if (own && own->type == GGUF_STRING) {
        NRL_TRY(json_parse(&r->memory, "nrl.config", (const char *)own->value, own->n, &config));
        r->config = config;
        r->text = mem_alloc(own->n + 1);
        memcpy(r->text, own->value, own->n);
        NRL_TRY(gguf_find_architecture(config, &r->arch));
        gguf_complete(r->arch, &r->memory, config);
        return NRL_OK;
    }
    if (!arch || arch->type != GGUF_STRING) return damaged(r, "the file has no general.architecture");
    r->arch = gguf_architecture_named(arena_strndup(&r->memory, (const char *)arch->value, arch->n));
    if (!r->arch)
        return nrl_fail(NRL_ERR_CONFIG, "%s: the architecture '%.*s' is not supported", r->path, (int)arch->n,
                        arch->value);
    NRL_TRY(make_config(r, &config));
    r->config = config;
    return NRL_OK;
}

/* ---- tensors ---- */

/* *n_experts: the matrices in the tensor, of which *t is the first; 0 = one tensor. `name`: in the file. */
static nrl_status take_tensor(gguf_reader *r, gguf_in *t, char name[GGUF_NAME], int64_t *n_experts)
{
    const char *text;
    size_t size;
    uint32_t n_dims;
    bool is_stacked = false;
    NRL_TRY(take_text(r, &text, &size));
    NRL_TRY(take(r, &n_dims, sizeof n_dims));
    if (!size || size >= GGUF_NAME || n_dims < 1 || n_dims > 4)
        return damaged(r, "a tensor has no valid name or shape");
    memcpy(name, text, size);
    name[size] = 0;
    if (!gguf_hf_name_of(r->arch, name, 0, t->name, &is_stacked)) {
        if (strcmp(name, "rope_freqs.weight"))
            return nrl_fail(NRL_ERR_DATA, "%s: the architecture %s has no tensor '%s'", r->path, r->arch->name, name);
        /* llama.cpp stores the scaling of Llama 3.1 as this tensor, and no key says so. A config of nrl has it. */
        if (!r->text) return fail_scaling(r);
        *t->name = 0;
    }
    if (*t->name) t->change = gguf_change_of(r->arch, r->config, t->name);
    t->n_dims = (int32_t)n_dims;
    t->numel = 1;
    for (int32_t d = t->n_dims - 1; d >= 0; d--) {
        uint64_t n;
        NRL_TRY(take(r, &n, sizeof n));
        if (n < 1 || n > INT64_MAX / 8 || __builtin_mul_overflow(t->numel, (int64_t)n, &t->numel) ||
            t->numel > INT64_MAX / 8)
            return damaged(r, "the shape of a tensor is too large");
        t->dims[d] = (int64_t)n;
        if (d == t->n_dims - 1) t->width = (int64_t)n;
    }
    *n_experts = is_stacked ? t->dims[0] : 0;
    if (is_stacked && (t->n_dims != 3 || t->dims[0] > MAX_EXPERTS))
        return damaged(r, "a tensor of experts does not have three dimensions, or more than 4096 experts");
    if (is_stacked) {
        t->numel /= t->dims[0];
        memmove(t->dims, t->dims + 1, (size_t)--t->n_dims * sizeof *t->dims);
    }
    if (t->change.transposed) {
        if (t->n_dims != 2) return damaged(r, "a matrix does not have two dimensions");
        const int64_t rows = t->dims[0];
        t->dims[0] = t->dims[1];
        t->dims[1] = rows;
    }
    if (t->change.alternates) t->dims[t->n_dims - 1] *= 2;
    t->is_odd = t->change.alternates && strstr(name, "ffn_up_exps");
    NRL_TRY(take(r, &t->type, sizeof t->type));
    NRL_TRY(take(r, &t->offset, sizeof t->offset));
    t->encoding = gguf_encoding_of(t->type);
    if (t->encoding && t->width % t->encoding->block)
        return damaged(r, "a row of a tensor does not consist of whole blocks");
    if (t->change.heads && t->n_dims == 1) t->width = 1; /* the values of a bias change places like rows */
    if (t->change.heads && (t->n_dims > 2 || t->dims[0] % (2 * t->change.heads)))
        return damaged(r, "the rows of a tensor cannot be divided among the heads");
    return NRL_OK;
}

/* Gives each tensor of even columns the odd ones, which follow it in files of most writers. */
static nrl_status join_columns(gguf_reader *r)
{
    int64_t n = 0, next = 0, n_odd = 0, n_even = 0;
    for (int64_t i = 0; i < r->n; i++) {
        gguf_in *t = &r->tensors[i];
        n_odd += t->is_odd;
        if (!t->change.alternates || t->is_odd) continue;
        const gguf_in *odd = NULL;
        for (int64_t k = 0; k < r->n && !odd; k++, next = (next + 1) % r->n)
            if (r->tensors[next].is_odd && !strcmp(r->tensors[next].name, t->name)) odd = &r->tensors[next];
        if (!odd || odd->encoding != t->encoding || odd->numel != t->numel || odd->width != t->width)
            return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' needs ffn_gate_exps and ffn_up_exps of one shape and type",
                            r->path, t->name);
        t->odd = odd->data;
        n_even++;
    }
    if (n_odd != n_even)
        return nrl_fail(NRL_ERR_DATA, "%s: %lld tensors ffn_up_exps, but %lld ffn_gate_exps", r->path, (long long)n_odd,
                        (long long)n_even);
    for (int64_t i = 0; i < r->n; i++)
        if (!r->tensors[i].is_odd) r->tensors[n++] = r->tensors[i];
    r->n = n;
    return NRL_OK;
}

static nrl_status read_tensors(gguf_reader *r, uint64_t n)
{
    int64_t room = 0;
    for (uint64_t i = 0; i < n; i++) {
        gguf_in t = {0};
        char name[GGUF_NAME];
        int64_t n_experts, e = 0;
        NRL_TRY(take_tensor(r, &t, name, &n_experts));
        if (!*t.name) continue;
        if (r->n + n_experts > MAX_TENSORS) return damaged(r, "the tensors have too many experts");
        if (r->n + n_experts >= room) {
            room = 2 * (r->n + n_experts) + 64;
            gguf_in *all = mem_try_grow(r->tensors, (size_t)room * sizeof *all, "the tensors of a GGUF file");
            if (!all) return NRL_ERR_MEMORY;
            r->tensors = all;
        }
        do {
            bool is_stacked;
            r->tensors[r->n++] = t;
            if (++e >= n_experts) break;
            if (t.encoding) t.offset += (uint64_t)(t.numel / t.encoding->block) * t.encoding->bytes;
            if (!gguf_hf_name_of(r->arch, name, e, t.name, &is_stacked)) return damaged(r, "a name is too long");
        } while (true);
    }
    int64_t alignment = pair_int(find_pair(r, "general.alignment"), GGUF_ALIGNMENT);
    if (alignment < 1 || alignment > 1 << 20) return damaged(r, "general.alignment is out of range");
    size_t begin = (r->at + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    for (int64_t i = 0; i < r->n; i++) {
        gguf_in *t = &r->tensors[i];
        if (!t->encoding) continue;
        size_t bytes = (size_t)(t->numel / t->encoding->block) * t->encoding->bytes;
        if (begin > r->size || t->offset > r->size - begin || bytes > r->size - begin - t->offset)
            return nrl_fail(NRL_ERR_DATA, "%s: tensor '%s' ends after the end of the file", r->path, t->name);
        t->data = r->map + begin + t->offset;
    }
    return join_columns(r);
}

/* ---- the table's functions ---- */

static bool is_gguf(const char *path)
{
    char magic[4] = {0};
    FILE *f = fopen(path, "rbe");
    bool is = f && fread(magic, 1, sizeof magic, f) == sizeof magic && !memcmp(magic, "GGUF", sizeof magic);
    if (f) fclose(f);
    return is;
}

/* The file that a path names: itself, or model.gguf in a directory. */
static const char *file_of(arena *a, const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode) ? arena_printf(a, "%s/model.gguf", path) : arena_strdup(a, path);
}

int32_t gguf_probe(const char *path, const nrl_format_host *host)
{
    arena a = {0};
    (void)host;
    int32_t sure = is_gguf(file_of(&a, path)) ? NRL_PROBE_YES : NRL_PROBE_NO;
    arena_free(&a);
    return sure;
}

void gguf_close(void *reader)
{
    gguf_reader *r = reader;
    if (r->map) munmap((void *)(uintptr_t)r->map, r->size);
    free(r->pairs);
    free(r->tensors);
    free(r->text);
    arena_free(&r->memory);
    free(r);
}

static nrl_status map_file(gguf_reader *r)
{
    struct stat s;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s)) {
        int error = errno;
        if (fd >= 0) close(fd);
        return nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': %s", r->path, strerror(error));
    }
    void *map = s.st_size > 0 ? mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return nrl_fail(NRL_ERR_DATA, "%s: the file is empty or cannot be mapped", r->path);
    r->map = map;
    r->size = (size_t)s.st_size;
    return NRL_OK;
}

/* Reads the whole header: the names of tensors are needed with the config, and both are small. */
static nrl_status read_header(gguf_reader *r)
{
    char magic[4];
    uint32_t version;
    uint64_t n_tensors, n_pairs;
    NRL_TRY(take(r, magic, sizeof magic));
    if (memcmp(magic, "GGUF", sizeof magic)) return damaged(r, "the file does not begin with 'GGUF'");
    NRL_TRY(take(r, &version, sizeof version));
    if (version != 2 && version != GGUF_VERSION)
        return nrl_fail(NRL_ERR_DATA, "%s: GGUF version %u is not supported; expected 2 or 3", r->path,
                        (unsigned)version);
    NRL_TRY(take(r, &n_tensors, sizeof n_tensors));
    NRL_TRY(take(r, &n_pairs, sizeof n_pairs));
    if (n_tensors > MAX_TENSORS || n_pairs > MAX_KEYS) return damaged(r, "the header counts too many tensors or keys");
    r->pairs = mem_try((size_t)n_pairs * sizeof *r->pairs, "the metadata of a GGUF file");
    if (!r->pairs) return NRL_ERR_MEMORY;
    for (; r->n_pairs < (int64_t)n_pairs; r->n_pairs++)
        NRL_TRY(take_pair(r, &r->pairs[r->n_pairs]));
    NRL_TRY(read_config(r));
    NRL_TRY(read_tensors(r, n_tensors));
    if (r->text) return NRL_OK;
    bool has_head = false;
    for (int64_t i = 0; i < r->n; i++)
        has_head |= !strcmp(r->tensors[i].name, "lm_head.weight");
    node_append(&r->memory, (nrl_node *)(uintptr_t)r->config, "tie_word_embeddings", node_bool(&r->memory, !has_head));
    r->text = json_write(r->config, 0);
    return NRL_OK;
}

nrl_status gguf_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    (void)host;
    gguf_reader *r = mem_alloc(sizeof *r);
    r->path = file_of(&r->memory, path);
    char *slash = strrchr(r->path, '/');
    r->dir = slash ? arena_strndup(&r->memory, r->path, (size_t)(slash - r->path)) : arena_strdup(&r->memory, ".");
    if (access(arena_printf(&r->memory, "%s/tokenizer.json", r->dir), F_OK)) r->dir = NULL;
    nrl_status st = flags & NRL_OPEN_CONFIG
                        ? nrl_fail(NRL_ERR_CONFIG, "cannot use '%s' as model.config: expected a config.json", path)
                        : map_file(r);
    if (st == NRL_OK) st = read_header(r);
    if (st == NRL_OK)
        *reader = r;
    else
        gguf_close(r);
    return st;
}

void gguf_info(const void *reader, nrl_format_info *info)
{
    const gguf_reader *r = reader;
    info->path = r->path;
    info->config = r->text;
    info->config_size = strlen(r->text);
    info->config_path = r->path;
    info->companions = r->dir;
}

nrl_status gguf_load(void *reader)
{
    (void)reader; /* open has read the list */
    return NRL_OK;
}

int64_t gguf_n_tensors(const void *reader)
{
    return ((const gguf_reader *)reader)->n;
}

void gguf_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    const gguf_reader *r = reader;
    const gguf_in *t = &r->tensors[i];
    tensor->dtype = !t->encoding                           ? NRL_DTYPE_NONE
                    : t->encoding->dtype != NRL_DTYPE_NONE ? t->encoding->dtype
                                                           : NRL_DTYPE_F32;
    tensor->name = t->name;
    tensor->type = t->encoding ? t->encoding->name : "a quantized type that nrl does not read";
    tensor->file = r->path;
    tensor->n_dims = t->n_dims;
    memcpy(tensor->dims, t->dims, sizeof t->dims);
}

/* Decodes elements [begin, begin + n) of `data`, in the order of the file. */
static void decode_range(const gguf_encoding *e, const unsigned char *data, int64_t begin, int64_t n, float *out)
{
    float block[256];
    while (n > 0) {
        int64_t at = begin / e->block, skip = begin % e->block, whole = skip ? 0 : n / e->block * e->block, took;
        const unsigned char *from = data + (size_t)at * e->bytes;
        if (whole) {
            gguf_decode(e, from, whole, out);
            took = whole;
        } else {
            gguf_decode(e, from, e->block, block);
            took = e->block - skip < n ? e->block - skip : n;
            memcpy(out, block + skip, (size_t)took * sizeof *out);
        }
        begin += took;
        out += took;
        n -= took;
    }
}

/* Elements [begin, begin + n) of a matrix whose columns are rows of the file, those of `odd` every other one. */
static void read_transposed(const gguf_in *t, int64_t begin, int64_t n, float *out)
{
    const int64_t parts = t->odd ? 2 : 1, rows = parts * t->numel / t->width, end = begin + n;
    float values[256] = {0}; /* of one row, so that a block is decoded once for all of its columns */
    const int64_t most = sizeof values / sizeof *values;
    for (int64_t c = begin / rows / most * most; c * rows < end; c += most)
        for (int64_t r = 0; r < rows; r++) {
            int64_t first = begin > r ? (begin - r + rows - 1) / rows : 0,
                    last = end > r ? (end - r + rows - 1) / rows : 0;
            if (first < c) first = c;
            if (last > c + most) last = c + most;
            if (first >= last) continue;
            decode_range(t->encoding, r % parts ? t->odd : t->data, r / parts * t->width + first, last - first, values);
            for (int64_t k = first; k < last; k++)
                out[k * rows + r - begin] = values[k - first];
        }
}

nrl_status gguf_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    const gguf_reader *r = reader;
    const gguf_in *t = &r->tensors[i];
    int64_t rows = t->numel / t->width;
    if (t->change.transposed) {
        read_transposed(t, begin, n, out);
    } else if (t->change.alternates) {
        for (int64_t k = begin; k < begin + n; k++)
            decode_range(t->encoding, k % 2 ? t->odd : t->data, k / 2, 1, out + (k - begin));
    } else if (t->change.heads) { /* row (head, pair, j) of the caller is (head, j, pair) of the file */
        int64_t half = rows / t->change.heads / 2;
        for (int64_t k = begin; k < begin + n;) {
            int64_t row = k / t->width, column = k % t->width, part = t->width - column;
            int64_t head = row / (2 * half), pair = row / half % 2, j = row % half;
            if (part > begin + n - k) part = begin + n - k;
            decode_range(t->encoding, t->data, ((head * half + j) * 2 + pair) * t->width + column, part,
                         out + (k - begin));
            k += part;
        }
    } else {
        decode_range(t->encoding, t->data, begin, n, out);
    }
    for (int64_t k = 0; t->change.plus_one && k < n; k++)
        out[k] -= 1;
    return NRL_OK;
}
