/*
 * hf.h - shared by the files of this plugin: a Hugging Face model directory that is open for reading.
 */
#ifndef HF_H
#define HF_H
#include "base/arena.h"
#include "safetensors.h"

typedef struct {
    arena memory;     /* owns names, files and the list */
    const char *path; /* folder, or the config file if is_file */
    bool is_file;
    const char *config_path;
    char *config; /* its text */
    size_t config_size;
    int32_t n_files;
    safetensors *files;
    int64_t n;
    const safetensor **list; /* [n] file by file */
} hf;

/* config.c: reads the config of h->path; rejects everything but causal language models. */
nrl_status hf_read_config(hf *h);
/* locate.c: the folder of `path`: the folder itself, or "org/name" or "org/name@revision" in the local cache
 * (base/hub.h). The error gives the command that downloads it. `a` owns *out. */
nrl_status hf_locate(const char *path, const nrl_format_host *host, arena *a, const char **out);
bool hf_is_directory(const char *path);
bool hf_is_hub_name(const char *path);
/* write.c */
nrl_status hf_begin(const nrl_format_write *what, void **writer);
nrl_status hf_write(void *writer, int64_t i, int64_t n, const float *values);
nrl_status hf_finish(void *writer);
void hf_abandon(void *writer);
bool hf_owns(const char *name);
extern const char *const hf_travelling[];

#endif
