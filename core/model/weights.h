/*
 * weights.h - weights on disk in any format (nrl/format.h): finding tensors by name, comparing them with a model,
 * reading and hashing them.
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
#include "base/hash.h"
#include "model/format.h"
#include "model/model.h"

/* Writes elements [begin, begin+n) of a parameter to out[n] as f32. Calls come in ascending order of ranges. */
typedef nrl_status (*weights_source)(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out);

typedef struct weight_files {
    const nrl_format *format;
    void *reader;
    nrl_format_info info;
    int64_t n;
    nrl_format_tensor *tensors; /* [n] by name, after weights_load */
    int64_t *index;             /* [n] the tensors' numbers in the format */
    int64_t rows;               /* of the vocabulary; a model's further rows are the mean of these; 0 = it has none */
} weight_files;

/* Finds the format of a path and reads its description of the weights. `holds`: a model or an adapter. [main] */
nrl_status weights_open(const format_scope *scope, uint32_t holds, const char *path, weight_files **out);
/* The same for a path whose format is known: info.path of an earlier open. [main] */
nrl_status weights_open_as(const nrl_format *format, const char *path, weight_files **out);
/* Opens the files and lists their tensors. Call it once. [main] */
nrl_status weights_load(weight_files *w);
void weights_close(weight_files *w); /* w may be NULL */
/* The description as a tree, in `a`. [main] */
nrl_status weights_config(const weight_files *w, arena *a, const nrl_node **out);

/* The config of a model, in `a`, without opening the weights. [main] */
nrl_status weights_read_config(const format_scope *scope, const char *path, arena *a, const nrl_node **out);

const nrl_format_tensor *weights_find(const weight_files *w, const char *name); /* NULL if absent */

/* Compares the names and shapes of the files' tensors with the model's parts, respecting tied heads and ignored
 * suffixes. One NRL_ERR_DATA error lists all differences, missing and unknown tensors. [main] */
nrl_status weights_check(const weight_files *w, const model *m);
/* Checks that the files have a tensor of the right shape for every parameter of the model's adapters. [main] */
nrl_status weights_check_adapters(const weight_files *w, const model *m);
/* Reads elements [begin, begin+n) of a parameter (its parts in order, in the parameter's orientation) as f32. Reads
 * only these elements from disk if the layout allows it. [any] */
nrl_status weights_read(const weight_files *w, const model *m, const nrl_param *p, int64_t begin, int64_t n,
                        float *out);
/* Reads elements [begin, begin+n) of the tensor called `name`. NRL_ERR_DATA: they do not exist. [any] */
nrl_status weights_read_tensor(const weight_files *w, const char *name, int64_t begin, int64_t n, float *out);
/* Returns a line for each tensor, malloc'd: "WHOSE'NAME': F32 [2, 3], 1f3a...", with a hash of all bytes of a small
 * tensor and of four blocks of a larger one. Reads little, however large the files are. [main] */
nrl_status weights_identity(const weight_files *w, const char *whose, char **lines);
/* A hash, 32 hex digits, of names, shapes, dtypes and bytes; for adapters also of their settings. [main] */
nrl_status weights_hash(const weight_files *w, char out[HASH_TEXT]);

/* ---- for the files of this folder ---- */

/* The tensor of a part, under any name that the model allows: the part's name, the name without the optional prefix, or
 * the name of the head if it is tied. NULL if absent. */
const nrl_format_tensor *weights_part(const weight_files *w, const model *m, const nrl_part *part);
/* Whether the tensor has the first w->rows rows of the part. */
bool weights_has_first_rows(const weight_files *w, const nrl_part *part, const nrl_format_tensor *t);
nrl_status weights_values(const weight_files *w, const nrl_format_tensor *t, int64_t begin, int64_t n, float *out);
/* The name of an output layer in files, if the model ties it to another parameter; else "". */
const char *weights_tied_name(const model *m);
/* The part's shape in files: [in, out] if it is stored transposed. */
void weights_file_dims(const nrl_part *part, int64_t dims[NRL_MAX_DIMS]);
int64_t weights_numel(const nrl_format_tensor *t);
/* Writes "[2, 3]" to text. */
void weights_shape_text(int n_dims, const int64_t *dims, char *text, size_t size);

#endif
