/*
 * hf.h - Hugging Face model directories: config.json, model.safetensors (single or sharded by
 * model.safetensors.index.json), and the files that travel with them.
 * Weights are memory-mapped and converted part by part; no copy of a whole file exists in memory.
 */
#ifndef MODEL_HF_H
#define MODEL_HF_H
#include "base/inputs.h"
#include "model/model.h"

/* Reads DIR/config.json; both key styles (rope_theta / rope_scaling and rope_parameters) stay as they
 * are, the model plugin knows both. NRL_ERR_DATA for a missing file, an encoder or a
 * *ForSequenceClassification architecture, quantized weights. The tree lives in `a`. [main] */
nrl_status hf_config(const char *dir, arena *a, const nrl_node **out);
/* The same for a config file of any name (`model.config`: random weights). [main] */
nrl_status hf_config_file(const char *path, arena *a, const nrl_node **out);

typedef struct hf_weights hf_weights;
/* Maps the weight files of DIR. Headers are checked before anything is allocated by them. [main] */
nrl_status hf_weights_open(const char *dir, hf_weights **out);
void hf_weights_close(hf_weights *w);
/* Compares the files' tensors with the model's parts: names, shapes, missing, surplus (tied heads and
 * ignored suffixes considered). All differences in one error, NRL_ERR_DATA. [main] */
nrl_status hf_weights_check(const hf_weights *w, const model *m);
/* Elements [begin, begin+n) of a parameter (all its parts in order, orientation of the parameter) as
 * f32; reads only those bytes where the layout on disk allows. [any] */
nrl_status hf_weights_read(const hf_weights *w, const model *m, const nrl_param *p, int64_t begin,
                           int64_t n, float *out);
/* Malloc'd: a line a tensor, "WHOSE'NAME': F32 [2, 3], 1f3a...": what its header says and a hash of samples: of
 * a small tensor all bytes, of a larger one four blocks. Reads little, however large the files are. [main] */
char *hf_weights_identity(const hf_weights *w, const char *whose);
/* 32 hex digits over names, shapes, dtypes and bytes: identifies weights (reference caches). [any] */
nrl_status hf_weights_hash(const hf_weights *w, char out[33]);

/* Gives elements [begin, begin+n) of a parameter as f32, in order; called with rising ranges. */
typedef nrl_status (*hf_source)(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out);
/* A travelling file that is written with this text in the place of the copy; NULL: left out. */
typedef struct {
    const char *name, *text;
} hf_file;
typedef struct {
    nrl_dtype dtype;           /* of the files: f32, bf16, f16 */
    int64_t max_shard_bytes;   /* 0 = one file */
    bool discard;              /* asks the source for everything and writes nothing: a rank beside the
                                  one that writes, where ranks read together */
    const char *copy_from;     /* directory whose tokenizer, generation_config, template files travel
                                  along; NULL = none */
    hf_file replaced[4];       /* of those; ended by one without a name */
    const char *adapter_config; /* NULL: the model's own parameters. Else those of its adapters alone are
                                  written, adapter_model.safetensors and this as adapter_config.json */
    bool overwrite;            /* of a directory that is there the files of a model are replaced */
    const inputs *inputs;      /* what is read here, which no file takes the place of; NULL = nothing */
} hf_save_options;
/* Writes DIR: config.json (as loaded, torch_dtype updated), weights, travelling files. Written to a
 * temporary directory beside it that takes its place, with whatever else was in DIR, when everything is
 * complete. NRL_ERR_CONFIG where that would replace an input, or without `overwrite` a file.
 * NRL_ERR_FULL says how many bytes were needed. [main] */
nrl_status hf_save(const char *dir, const model *m, hf_source source, void *user,
                   const hf_save_options *options);

/* Removes a directory that hf_save wrote. Files that it does not write stay there, and are named in a warning. [main] */
nrl_status hf_remove(const char *dir);

/* A model directory from `model.path`: a directory as it is; "org/name" is looked up in the local HF
 * cache (hf_home given by the cli from the environment, NULL = ~/.cache/huggingface); where absent the
 * error prints the download command. *out is in `a`. */
nrl_status hf_find(const char *path, const char *hf_home, arena *a, const char **out);

#endif
