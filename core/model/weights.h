/*
 * weights.h - weights on disk in any format (nrl/format.h): the tensors of a path found by name, compared with the
 * parts of a model, read part by part, and told apart by hashes.
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
#include "base/hash.h"
#include "model/format.h"
#include "model/model.h"

/* Gives elements [begin, begin+n) of a parameter as f32, in order; called with rising ranges. */
typedef nrl_status (*weights_source)(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out);

typedef struct weight_files {
    const nrl_format *format;
    void *reader;
    nrl_format_info info;
    arena memory;
    int64_t n;
    const nrl_format_tensor *tensors; /* [n] by name, after weights_load */
    const int64_t *index;             /* [n] their numbers in the format */
} weight_files;

/* Finds the format of a path and reads what describes the weights. `holds`: a model or an adapter. [main] */
nrl_status weights_open(const format_scope *scope, uint32_t holds, const char *path, weight_files **out);
/* The same for a path whose format is known: info.path of an earlier open. [main] */
nrl_status weights_open_as(const nrl_format *format, const char *path, weight_files **out);
/* Opens the files and lists their tensors; once. [main] */
nrl_status weights_load(weight_files *w);
void weights_close(weight_files *w); /* NULL is fine */
/* The description as a tree, in `a`. [main] */
nrl_status weights_config(const weight_files *w, arena *a, const nrl_node **out);

/* A model's config from a file of its own, in `a`. [main] */
nrl_status weights_read_config(const format_scope *scope, const char *path, arena *a, const nrl_node **out);

const nrl_format_tensor *weights_find(const weight_files *w, const char *name); /* NULL if absent */

/* Compares the files' tensors with the model's parts: names, shapes, missing, surplus (tied heads and
 * ignored suffixes considered). All differences in one error, NRL_ERR_DATA. [main] */
nrl_status weights_check(const weight_files *w, const model *m);
/* The tensors have the shapes that the model's adapters need. [main] */
nrl_status weights_check_adapters(const weight_files *w, const model *m);
/* Elements [begin, begin+n) of a parameter (all its parts in order, orientation of the parameter) as
 * f32; reads only those where the layout on disk allows. [any] */
nrl_status weights_read(const weight_files *w, const model *m, const nrl_param *p, int64_t begin, int64_t n,
                        float *out);
/* Elements of the tensor called `name`. NRL_ERR_DATA: there are none. [any] */
nrl_status weights_read_tensor(const weight_files *w, const char *name, int64_t begin, int64_t n, float *out);
/* Malloc'd: a line a tensor, "WHOSE'NAME': F32 [2, 3], 1f3a...": what its header says and a hash of samples: of
 * a small tensor all bytes, of a larger one four blocks. Reads little, however large the files are. [main] */
nrl_status weights_identity(const weight_files *w, const char *whose, char **lines);
/* 32 hex digits over names, shapes, dtypes and bytes; of adapters over their description too. [main] */
nrl_status weights_hash(const weight_files *w, char out[HASH_TEXT]);

/* ---- for the files of this folder ---- */

/* The file's tensor that holds a part, under any name the model allows: its own, without the
 * optional prefix, or for a tied head the head's. NULL if absent. */
const nrl_format_tensor *weights_part(const weight_files *w, const model *m, const nrl_part *part);
nrl_status weights_values(const weight_files *w, const nrl_format_tensor *t, int64_t begin, int64_t n, float *out);
/* The name under which checkpoints keep an output layer; "" when the model does not tie it. */
const char *weights_tied_name(const model *m);
/* The part's shape as files hold it: [in, out] when transposed. */
void weights_file_dims(const nrl_part *part, int64_t dims[NRL_MAX_DIMS]);
int64_t weights_numel(const nrl_format_tensor *t);
/* "[2, 3]" into text. */
void weights_shape_text(int n_dims, const int64_t *dims, char *text, size_t size);

#endif
