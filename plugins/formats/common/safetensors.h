/*
 * safetensors.h - one .safetensors file, mapped: 8 bytes of header length (little endian), a JSON map
 * of name -> {dtype, shape, data_offsets}, then the data. The file is not trusted: every offset, size
 * and product is checked before a tensor is returned, and the tensors must cover the data exactly
 * once.
 */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H
#include "base/arena.h"
#include <nrl/format.h>

enum { SAFETENSORS_MAX_DIMS = NRL_FORMAT_MAX_DIMS };

typedef struct {
    const char *name;
    const char *type; /* as in the file: "F32", "BF16", "I64", ... */
    nrl_dtype dtype;  /* NONE for types that parameters cannot have */
    int n_dims;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    int64_t numel;
    const unsigned char *data; /* in the mapped file; not aligned */
    size_t begin, size_bytes;  /* in the data part of the file */
    const char *path;          /* of its file */
} safetensor;

typedef struct {
    const char *path;
    const unsigned char *map; /* NULL when parsed from memory */
    size_t map_bytes;
    int64_t n;
    safetensor *tensors; /* in order of the header */
} safetensors;

/* Maps a file and checks its header; `a` owns the names. NRL_ERR_IO, or NRL_ERR_DATA with the reason. */
nrl_status safetensors_open(arena *a, const char *path, safetensors *out);
void safetensors_close(safetensors *f);

/* The same from memory that outlives the result. */
nrl_status safetensors_parse(arena *a, const char *path, const unsigned char *bytes, size_t size, safetensors *out);

/* Describes a tensor for nrl/format.h: dtype is NONE for types that hold no weights. */
void safetensor_describe(const safetensor *t, nrl_format_tensor *out);

/* Formats a shape as "[2, 3]". */
void safetensors_shape_text(int n_dims, const int64_t *dims, char *text, size_t size);

#endif
