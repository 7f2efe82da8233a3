/*
 * hf.h - shared by the files of this plugin: a Hugging Face model directory that is open for reading.
 */
#ifndef HF_H
#define HF_H
#include "base/arena.h"
#include "base/node.h"
#include "safetensors.h"

/* A tensor as this format presents it. */
typedef struct {
    const char *name;
    const safetensor *tensor; /* as stored; the blocks of MXFP4 */
    const safetensor *scales; /* of MXFP4, else NULL */
    int64_t element;          /* of the first dimension of `tensor`; -1 = all */
} hf_entry;

typedef struct {
    arena memory;     /* owns names, files and the lists */
    const char *path; /* folder, or the config file if is_file */
    bool is_file;
    const char *config_path;
    char *config; /* its text */
    size_t config_size;
    const char *whole; /* model_type of the model of texts and images that this language model is a part of, or NULL */
    int32_t n_files;
    safetensors *files;
    int64_t n_tensors;
    const safetensor **tensors; /* [n_tensors] by name */
    int64_t n;
    hf_entry *list; /* [n] */
} hf;

const safetensor *hf_find(const hf *h, const char *name); /* NULL = absent */

/* config.c: reads the config of h->path; rejects everything but causal language models. */
nrl_status hf_read_config(hf *h);
/* text_model.c: the config of the language model if `config` is that of a model of texts and images, else NULL. */
nrl_node *hf_text_config(hf *h, arena *a, const nrl_node *config);
/* The name in the language model of a tensor of the files; NULL: the tensor belongs to another part. */
const char *hf_text_name(hf *h, const char *name);
/* locate.c: the folder of `path`: the folder itself, or "org/name" or "org/name@revision" in the local cache
 * (lib/base/hub.h). The error gives the command that downloads it. `a` owns *out. */
nrl_status hf_locate(const char *path, const nrl_format_host *host, arena *a, const char **out);
bool hf_is_directory(const char *path);
bool hf_is_hub_name(const char *path);
/* stacked.c: fills h->list from h->tensors. */
nrl_status hf_list_entries(hf *h);
void hf_describe(const hf_entry *e, nrl_format_tensor *out);
void hf_entry_read(const hf_entry *e, int64_t begin, int64_t n, float *out);
/* For hashes; scales of MXFP4 are a tensor of their own. */
const unsigned char *hf_entry_bytes(const hf_entry *e, size_t *size);
/* Replaces the tensors of a writer by those of the files; tensor i of before is a part of (*stack_of)[i]. */
nrl_status hf_stack(arena *a, nrl_format_write *what, int64_t **stack_of);
/* write.c */
nrl_status hf_begin(const nrl_format_write *what, void **writer);
nrl_status hf_write(void *writer, int64_t i, int64_t n, const float *values);
nrl_status hf_finish(void *writer);
void hf_abandon(void *writer);
bool hf_owns(const char *name);
extern const char *const hf_travelling[];

#endif
