/*
 * convert.h - the number formats of weight files to f32 and back; rounding is to nearest, ties to
 * even.
 */
#ifndef BASE_CONVERT_H
#define BASE_CONVERT_H
#include <nrl/tensor.h>

/* Whether files may hold parameters of this type: f32, bf16, f16, f64. */
bool convert_known(nrl_dtype dtype);
/* n elements of `dtype` at any address (files align to 8 at best) to f32. */
void convert_to_f32(nrl_dtype dtype, const void *from, int64_t n, float *to);
/* And back, to f32, bf16 or f16. */
void convert_from_f32(nrl_dtype dtype, const float *from, int64_t n, void *to);

#endif
