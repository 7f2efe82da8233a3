/*
 * quantize.h - block-wise quantization of weights that are not trained, with the numbers of bitsandbytes: nf4 and fp4
 * (Dettmers et al. 2023) in blocks of 64 elements of a matrix in row-major order, with double quantization of the
 * blocks' scales; int8 with a scale for each row (the weights of LLM.int8(), Dettmers et al. 2022). For core/model,
 * which stores weights so, and core/run, which reads them back. [any]
 */
#ifndef BASE_QUANTIZE_H
#define BASE_QUANTIZE_H
#include <nrl/param.h>
#include <stdbool.h>

typedef enum { QUANTIZE_NONE = 0, QUANTIZE_NF4 = 1, QUANTIZE_FP4 = 2, QUANTIZE_INT8 = 3 } quantize_kind;

enum { QUANTIZE_BLOCK = 64, QUANTIZE_NESTED = 256, QUANTIZE_CODES = 256 };

/* "nf4", ...; "" for NONE. And back: NONE for an unknown name. */
const char *quantize_name(quantize_kind kind);
quantize_kind quantize_kind_of(const char *name);

/* The number that a code stands for, times the scale of its block; 16 codes of 4 bits, 256 of int8 (two's complement).
 * Returns how many there are. */
int quantize_codes(quantize_kind kind, float codes[QUANTIZE_CODES]);
/* The dynamic map of 8 bits (Dettmers 2016), 256 ascending numbers in [-1, 1]; without a sign in [0, 1]. */
void quantize_dynamic_map(bool has_sign, float codes[QUANTIZE_CODES]);

/* Elements that share a scale in a matrix with that many columns, and bytes of the codes of n elements. */
int64_t quantize_block(quantize_kind kind, int64_t columns);
int64_t quantize_bytes(quantize_kind kind, int64_t n);

/* Encodes n elements, which begin with a block: scale [ceil(n / block)], q [quantize_bytes(n)]. Two codes of 4 bits
 * share a byte, the first in its upper half. */
void quantize_encode(quantize_kind kind, int64_t block, const float *x, int64_t n, float *scale, uint8_t *q);
/* Double quantization of n scales: *offset is their mean, and what they differ from it has a code of the dynamic map
 * in q [n] and a scale for 256 of them, nested [ceil(n / 256)]. scale becomes what they stand for then. */
void quantize_scales(float *scale, int64_t n, uint8_t *q, float *nested, float *offset);

/* ---- matrices ---- */

/* A whole matrix of n elements. */
typedef struct {
    quantize_kind kind;
    int64_t block, n, n_scales;
    uint8_t *q;
    float *scales;     /* [n_scales] after double quantization */
    uint8_t *nested_q; /* of 4 bits */
    float *nested, offset;
} quantized_matrix;

/* Elements [begin, begin + n) of a matrix as f32; `asked` is the caller's. */
typedef nrl_status (*quantized_source)(void *user, const nrl_param *asked, int64_t begin, int64_t n, float *out);
/* Reads a matrix in ascending ranges of a few MiB. NRL_ERR_MEMORY. */
nrl_status quantized_read(quantize_kind kind, int64_t n, int64_t columns, quantized_source source, void *user,
                          const nrl_param *asked, quantized_matrix *out);
void quantized_decode(const quantized_matrix *v, int64_t begin, int64_t n, float *out);
void quantized_free(quantized_matrix *v);

/* What a device keeps of a matrix, or of a rank's share of it: arrays at these offsets in one block of memory, 64-byte
 * aligned. A share has its scales in f32: their blocks of 256 do not end where the share does. */
typedef struct {
    bool nested;
    int n_codes;
    int64_t block, n_scales, n_nested;
    int64_t codes, nested_codes, offset, nests, scales, q, bytes;
} quantized_layout;
quantized_layout quantize_layout(quantize_kind kind, int64_t n, int64_t columns, bool is_whole);
/* Fills it, except the ranges: elements [begin, begin + n) of the matrix, which are at `local` of the share. */
void quantized_store(const quantized_matrix *v, const quantized_layout *at, void *bytes);
void quantized_store_range(const quantized_matrix *v, const quantized_layout *at, int64_t local, int64_t begin,
                           int64_t n, void *bytes);

#endif
