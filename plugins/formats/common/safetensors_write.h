/*
 * safetensors_write.h - writes the tensors of a format's writer into one or more .safetensors files.
 */
#ifndef FORMATS_SAFETENSORS_WRITE_H
#define FORMATS_SAFETENSORS_WRITE_H
#include "base/output.h"
#include <nrl/format.h>

typedef struct {
    nrl_format_write what;
    output out;         /* its `temporary` is what.dir */
    const char *single; /* name of the only file */
    bool splits;        /* into several files, named model-00001-of-00002.safetensors */
    int32_t n_files;
    int32_t *file_of; /* [n_tensors] */
    uint64_t total_bytes;
    int32_t at; /* the file that is open */
    output_file file;
    bool is_open;
    char name[64];
    void *raw;
    size_t raw_bytes;
} safetensors_writer;

/* Without `splits`, writes one file of any size. Opens the first file. */
nrl_status safetensors_begin(safetensors_writer *w, const nrl_format_write *what, const char *single, bool splits);
nrl_status safetensors_write(safetensors_writer *w, int64_t i, int64_t n, const float *values);
/* If st is NRL_OK, completes all files. Frees what w holds; returns st or the first error. */
nrl_status safetensors_end(safetensors_writer *w, nrl_status st);

const nrl_format_tensor *safetensors_tensor(const safetensors_writer *w, int64_t i);
const char *safetensors_file_name(safetensors_writer *w, int32_t file); /* borrowed until the next call */

#endif
