/*
 * write.c - writes a Hugging Face directory: weights, the index of several weight files, config.json.
 */
#include "hf.h"
#include "base/buffer.h"
#include "base/json.h"
#include "safetensors_write.h"
#include <stdlib.h>
#include <string.h>

/* Files of a model that training does not change. */
const char *const hf_travelling[] = {"tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "tokenizer.model",
                                     "vocab.json",
                                     "merges.txt",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     "generation_config.json",
                                     NULL};

static const char index_name[] = "model.safetensors.index.json";

/* Weights that an earlier save left under other names would be read instead of, or in addition to, the new ones. */
bool hf_owns(const char *name)
{
    size_t n = strlen(name);
    static const char end[] = ".safetensors";
    if (!strcmp(name, "config.json") || !strcmp(name, index_name)) return true;
    return !strncmp(name, "model", 5) && (name[5] == '.' || name[5] == '-') && n > sizeof end &&
           !strcmp(name + n - (sizeof end - 1), end);
}

typedef struct {
    safetensors_writer files;
    arena memory;
    int64_t *stack_of; /* by the numbers of the core: the tensor of the files */
    char *config;
} hf_writer;

nrl_status hf_begin(const nrl_format_write *what, void **writer)
{
    hf_writer *w = mem_alloc(sizeof *w);
    w->config = mem_strdup(what->config);
    *writer = w;
    nrl_format_write stacked = *what;
    nrl_status st = hf_stack(&w->memory, &stacked, &w->stack_of);
    if (st == NRL_OK) st = safetensors_begin(&w->files, &stacked, "model.safetensors", true);
    if (st != NRL_OK) hf_abandon(w);
    return st;
}

nrl_status hf_write(void *writer, int64_t i, int64_t n, const float *values)
{
    hf_writer *w = writer;
    return safetensors_write(&w->files, w->stack_of[i], n, values);
}

static nrl_status write_index(safetensors_writer *w)
{
    if (w->n_files == 1) return NRL_OK;
    buffer b = {0};
    buffer_print(&b, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
                 (unsigned long long)w->total_bytes);
    for (int64_t i = 0; i < w->what.n_tensors; i++) {
        const char *name = safetensors_tensor(w, i)->name;
        char *quoted = json_quote(name, strlen(name));
        buffer_print(&b, "%s\n    %s: \"%s\"", i ? "," : "", quoted, safetensors_file_name(w, w->file_of[i]));
        free(quoted);
    }
    buffer_puts(&b, "\n  }\n}\n");
    nrl_status st = output_text(&w->out, index_name, b.text);
    buffer_free(&b);
    return st;
}

/* Writes the config as loaded, with the dtype of these weights under the key that the config uses. */
static nrl_status write_config(hf_writer *w)
{
    static const char *const types[] = {
        [NRL_DTYPE_F32] = "float32", [NRL_DTYPE_BF16] = "bfloat16", [NRL_DTYPE_F16] = "float16"};
    arena a = {0};
    nrl_node *config;
    nrl_status st = json_parse(&a, "config.json", w->config, strlen(w->config), &config);
    if (st == NRL_OK) {
        const char *type = types[w->files.what.dtype];
        const char *key = nrl_node_find(config, "dtype") ? "dtype" : "torch_dtype";
        node_set(&a, config, key, node_text(&a, type));
        char *text = json_write(config, 2);
        st = output_text(&w->files.out, "config.json", text);
        free(text);
    }
    arena_free(&a);
    return st;
}

static nrl_status hf_end(hf_writer *w, nrl_status st)
{
    st = safetensors_end(&w->files, st);
    free(w->config);
    arena_free(&w->memory);
    free(w);
    return st;
}

nrl_status hf_finish(void *writer)
{
    hf_writer *w = writer;
    nrl_status st = write_index(&w->files);
    if (st == NRL_OK) st = write_config(w);
    return hf_end(w, st);
}

void hf_abandon(void *writer)
{
    hf_end(writer, NRL_ERR_STOPPED);
}
