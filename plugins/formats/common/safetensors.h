/*
 * safetensors.h - one .safetensors file, mapped: 8 bytes of header length (little endian), a JSON
 * map of name -> {dtype, shape, data_offsets}, then the data. Nothing is believed: every offset,
 * size and product is checked before a tensor is handed out, and the data must be covered exactly
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
    nrl_dtype dtype;  /* NONE for types that cannot be parameters here */
    int n_dims;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    int64_t numel;
    const unsigned char *data; /* in the map; not aligned */
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

/* Maps a file and checks its header; names live in `a`. NRL_ERR_IO, or NRL_ERR_DATA with what is
 * wrong. */
nrl_status safetensors_open(arena *a, const char *path, safetensors *out);
void safetensors_close(safetensors *f);

/* The same from memory that outlives the result. */
nrl_status safetensors_parse(arena *a, const char *path, const unsigned char *bytes, size_t size, safetensors *out);

/* What nrl/format.h calls it: dtype is NONE for types that hold no weights. */
void safetensor_describe(const safetensor *t, nrl_format_tensor *out);

/* "[2, 3]" into text. */
void safetensors_shape_text(int n_dims, const int64_t *dims, char *text, size_t size);

#endif
