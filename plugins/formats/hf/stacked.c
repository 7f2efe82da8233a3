/*
 * stacked.c - experts that files store together. A tensor "X.experts.NAME" of three dimensions [E, rows, cols] is read
 * as E matrices "X.experts.0.NAME" to "X.experts.(E-1).NAME", and such matrices are written as one tensor.
 *
 * Matrices of gpt-oss may be stored as MXFP4 (OCX Microscaling Formats 1.0): "X.experts.NAME_blocks" [E, cols, G, 16]
 * has two numbers of 4 bits in a byte, the lower half first, and "X.experts.NAME_scales" [E, cols, G] an exponent for
 * each 32 of them. They are read as the [32G, cols] that NAME would be.
 */
#include "hf.h"
#include "base/convert.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STACK = 4096, MAX_ENTRIES = 1 << 22, BLOCK = 32, BLOCK_BYTES = BLOCK / 2 };

static const char experts[] = ".experts.";

/* What follows the last ".experts."; NULL: nothing does. */
static const char *after_experts(const char *name)
{
    const char *found = NULL;
    for (const char *at = strstr(name, experts); at; at = strstr(at + 1, experts))
        found = at + sizeof experts - 1;
    return found && *found ? found : NULL;
}

static const char *element_name(arena *a, const char *name, int64_t element, size_t cut)
{
    const char *rest = after_experts(name);
    return arena_printf(a, "%.*s%lld.%.*s", (int)(rest - name), name, (long long)element, (int)(strlen(rest) - cut),
                        rest);
}

/* ---- reading ---- */

static bool is_stack(const safetensor *t)
{
    const char *rest = after_experts(t->name);
    return rest && !strchr(rest, '.') && t->n_dims == 3 && convert_known(t->dtype) && t->numel &&
           t->dims[0] <= MAX_STACK;
}

static const char blocks[] = "_blocks", scales[] = "_scales";

/* The scales of a stack of MXFP4; NULL: `t` is none. */
static const safetensor *scales_of(arena *a, const hf *h, const safetensor *t)
{
    const char *rest = after_experts(t->name);
    size_t n = strlen(t->name), cut = sizeof blocks - 1;
    if (!rest || strchr(rest, '.') || strlen(rest) <= cut || strcmp(t->name + n - cut, blocks) || t->n_dims != 4 ||
        strcmp(t->type, "U8") || t->dims[3] != BLOCK_BYTES || !t->numel || t->dims[0] > MAX_STACK)
        return NULL;
    const safetensor *s = hf_find(h, arena_printf(a, "%.*s%s", (int)(n - cut), t->name, scales));
    bool fits = s && s->n_dims == 3 && !strcmp(s->type, "U8") && !memcmp(s->dims, t->dims, 3 * sizeof *s->dims);
    return fits ? s : NULL;
}

/* A run opens the files of a model several times, for its checks, its weights and a reference: warnings are printed
 * only the first time. */
static bool is_reported(const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[4096];
    pthread_mutex_lock(&lock);
    const bool told = !strncmp(last, path, sizeof last - 1);
    snprintf(last, sizeof last, "%s", path);
    pthread_mutex_unlock(&lock);
    return told;
}

nrl_status hf_list_entries(hf *h)
{
    int64_t n = 0, n_blocks = 0, n_others = 0;
    const char *example = NULL;
    for (int64_t i = 0; i < h->n_tensors; i++) {
        const safetensor *t = h->tensors[i];
        n += is_stack(t) || scales_of(&h->memory, h, t) ? t->dims[0] : 1;
    }
    if (n > MAX_ENTRIES)
        return nrl_fail(NRL_ERR_DATA, "%s: %lld tensors and experts; expected at most %d", h->path, (long long)n,
                        (int)MAX_ENTRIES);
    h->list = arena_alloc(&h->memory, (size_t)(n + 1) * sizeof *h->list);
    for (int64_t i = 0; i < h->n_tensors; i++) {
        const safetensor *t = h->tensors[i], *s = scales_of(&h->memory, h, t);
        const char *name = hf_text_name(h, t->name);
        if (!name) {
            n_others++;
            continue;
        }
        if (!s && !is_stack(t)) {
            h->list[h->n++] = (hf_entry){name, t, NULL, -1};
            continue;
        }
        for (int64_t e = 0; e < t->dims[0]; e++)
            h->list[h->n++] = (hf_entry){element_name(&h->memory, name, e, s ? sizeof blocks - 1 : 0), t, s, e};
        if (s && !n_blocks++) example = t->name;
    }
    if ((!h->whole && !example) || is_reported(h->path)) return NRL_OK;
    if (h->whole)
        nrl_warn("%s: a vision-language model of type '%s': only its language model is read and exported (%lld other "
                 "tensors are skipped)",
                 h->path, h->whole, (long long)n_others);
    if (example)
        nrl_warn("%s: %lld tensors in MXFP4, such as '%s', are dequantized; exports contain their values in the dtype "
                 "of the export",
                 h->path, (long long)n_blocks, example);
    return NRL_OK;
}

void hf_describe(const hf_entry *e, nrl_format_tensor *out)
{
    const safetensor *t = e->tensor;
    safetensor_describe(t, out);
    out->name = e->name;
    if (e->element < 0) return;
    out->n_dims = 2;
    out->dims[0] = e->scales ? t->dims[2] * BLOCK : t->dims[1];
    out->dims[1] = e->scales ? t->dims[1] : t->dims[2];
    if (!e->scales) return;
    out->dtype = NRL_DTYPE_BF16; /* which has all values of MXFP4 */
    out->type = "MXFP4";
}

static float mxfp4_value(unsigned char bits)
{
    static const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return bits & 8 ? -values[bits & 7] : values[bits & 7];
}

/* Elements [begin, begin + n) of the matrix [32G, cols]; a column is a row of the blocks. */
static void read_mxfp4(const hf_entry *e, int64_t begin, int64_t n, float *out)
{
    const int64_t cols = e->tensor->dims[1], groups = e->tensor->dims[2];
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (begin + i) / cols, col = (begin + i) % cols;
        const int64_t block = (e->element * cols + col) * groups + row / BLOCK;
        const unsigned char pair = e->tensor->data[block * BLOCK_BYTES + row % BLOCK / 2];
        out[i] = ldexpf(mxfp4_value(row % 2 ? pair >> 4 : pair & 15), e->scales->data[block] - 127);
    }
}

static size_t element_bytes(const hf_entry *e)
{
    return e->element < 0 ? e->tensor->size_bytes : e->tensor->size_bytes / (size_t)e->tensor->dims[0];
}

const unsigned char *hf_entry_bytes(const hf_entry *e, size_t *size)
{
    *size = element_bytes(e);
    return e->tensor->data + (e->element < 0 ? 0 : (size_t)e->element * *size);
}

void hf_entry_read(const hf_entry *e, int64_t begin, int64_t n, float *out)
{
    const nrl_dtype dtype = e->tensor->dtype;
    size_t size;
    if (e->scales)
        read_mxfp4(e, begin, n, out);
    else
        convert_to_f32(dtype, hf_entry_bytes(e, &size) + (size_t)begin * nrl_dtype_size(dtype), n, out);
}

/* ---- writing ---- */

/* Whether this is matrix *element of a stack, whose name is then *stack. */
static bool is_element(arena *a, const nrl_format_tensor *t, int64_t *element, const char **stack)
{
    const char *rest = after_experts(t->name);
    char *end;
    if (!rest || t->n_dims != 2 || *rest < '0' || *rest > '9') return false;
    *element = strtoll(rest, &end, 10);
    if (*end != '.' || !end[1] || strchr(end + 1, '.')) return false;
    *stack = arena_printf(a, "%.*s%s", (int)(rest - t->name), t->name, end + 1);
    return true;
}

nrl_status hf_stack(arena *a, nrl_format_write *what, int64_t **stack_of)
{
    nrl_format_tensor *out = arena_alloc(a, (size_t)(what->n_tensors + 1) * sizeof *out), *last = NULL;
    int64_t n = 0, element;
    *stack_of = arena_alloc(a, (size_t)(what->n_tensors + 1) * sizeof **stack_of);
    for (int64_t i = 0; i < what->n_tensors; i++) {
        const nrl_format_tensor *t = (const void *)((const char *)what->tensors + (size_t)i * what->tensor_size);
        const char *name;
        if (!is_element(a, t, &element, &name)) {
            out[n] = *t;
        } else if (element == 0) {
            last = &out[n];
            *last = *t;
            last->name = name;
            last->n_dims = 3;
            last->dims[0] = 1;
            memcpy(last->dims + 1, t->dims, 2 * sizeof *t->dims);
        } else if (n && last == &out[n - 1] && !strcmp(last->name, name) && last->dims[0] == element &&
                   !memcmp(last->dims + 1, t->dims, 2 * sizeof *t->dims)) {
            last->dims[0]++;
            n--;
        } else {
            return nrl_fail(NRL_ERR_BUG, "tensor '%s' does not follow number %lld of its stack", t->name,
                            (long long)element - 1);
        }
        (*stack_of)[i] = n++;
    }
    what->tensors = out;
    what->tensor_size = sizeof *out;
    what->n_tensors = n;
    return NRL_OK;
}
