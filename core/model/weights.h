/*
 * weights.h - the struct behind hf_weights: all tensors of a directory, found by name.
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
#include "model/hf.h"
#include "model/safetensors.h"

struct hf_weights {
    arena memory; /* owns names, files and the list */
    const char *dir;
    int32_t n_files;
    safetensors *files;
    int64_t n;
    const safetensor **sorted; /* [n] by name */
};

const safetensor *weights_find(const hf_weights *w, const char *name); /* NULL if absent */

/* The file's tensor that holds a part, under any name the model allows: its own, without the
 * optional prefix, or for a tied head the head's. NULL if absent. */
const safetensor *weights_part(const hf_weights *w, const model *m, const nrl_part *part);

/* The name under which checkpoints keep an output layer; "" when the model does not tie it. */
const char *weights_tied_name(const model *m);

/* The part's shape as files hold it: [in, out] when transposed. */
void weights_file_dims(const nrl_part *part, int64_t dims[NRL_MAX_DIMS]);

#endif
