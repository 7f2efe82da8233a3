/*
 * encode.h - the encodings of tensors in GGUF files, as ggml's headers define them. Values are encoded in blocks of
 * consecutive elements of a row.
 *
 * | type | elements | bytes | value of element i |
 * | --- | --- | --- | --- |
 * | Q8_0 | 32 | 34 | d * q[i] |
 * | Q4_K | 256 | 144 | d * scale[i / 32] * q[i] - dmin * min[i / 32]: 4-bit q, 6-bit scale and min, f16 d and dmin |
 * | Q6_K | 256 | 210 | d * scale[i / 16] * (q[i] - 32): 6-bit q, 8-bit scale, f16 d |
 */
#ifndef GGUF_ENCODE_H
#define GGUF_ENCODE_H
#include <nrl/tensor.h>

/* The numbers are those of the files (enum ggml_type). */
typedef enum { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_Q4_K = 12, GGUF_Q6_K = 14, GGUF_BF16 = 30 } gguf_type;

typedef struct {
    gguf_type type;
    const char *name; /* "Q4_K" */
    nrl_dtype dtype;  /* of a type without blocks, else NRL_DTYPE_NONE */
    uint32_t file;    /* general.file_type of a file whose matrices have this type (enum llama_ftype) */
    int64_t block;    /* elements */
    size_t bytes;     /* of a block */
} gguf_encoding;

const gguf_encoding *gguf_encoding_of(uint32_t type);           /* NULL: unknown */
const gguf_encoding *gguf_encoding_named(const char *name);     /* ignores case; NULL: unknown */
const gguf_encoding *gguf_encoding_next(const gguf_encoding *); /* NULL: the first one; returns NULL at the end */

/* Encodes n elements, a multiple of the block. [any] */
void gguf_encode(const gguf_encoding *e, const float *x, int64_t n, unsigned char *out);
/* Decodes n elements, a multiple of the block. `in` needs no alignment. [any] */
void gguf_decode(const gguf_encoding *e, const unsigned char *in, int64_t n, float *out);

#endif
