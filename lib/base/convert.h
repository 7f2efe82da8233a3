/*
 * convert.h - conversion between the number formats of weight files and f32. Rounds to nearest, ties to even.
 */
#ifndef BASE_CONVERT_H
#define BASE_CONVERT_H
#include <nrl/tensor.h>

/* Whether weight files may hold parameters of this type: f32, bf16, f16, f64. */
bool convert_known(nrl_dtype dtype);
/* Converts n elements of `dtype` to f32. `from` needs no alignment, because files align to 8 bytes at best. */
void convert_to_f32(nrl_dtype dtype, const void *from, int64_t n, float *to);
/* Converts n elements of f32 to `dtype`: f32, bf16 or f16. */
void convert_from_f32(nrl_dtype dtype, const float *from, int64_t n, void *to);

#endif
