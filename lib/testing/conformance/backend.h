/*
 * backend.h - what the files of the backend suite share: an open backend, and matrices on its
 * device with a copy in double on the host.
 *
 * Every matrix has a gap between its rows. The gap and one row past the end contain GUARD and must
 * still contain it afterwards. Values are rounded to the dtype of the matrix when they are set, so
 * the references start from the values that the backend sees. Operations are tested in f16 only if
 * the backend's info reports it.
 */
#ifndef CONFORMANCE_BACKEND_H
#define CONFORMANCE_BACKEND_H
#include "suites.h"

typedef struct mat mat;
typedef struct {
    const nrl_backend *table;
    const void *options; /* to open with */
    nrl_ops ops;         /* members that the backend lacks are NULL */
    void *self;
    conformance_report *report;
    uint64_t random;
    mat *mats; /* all live matrices, freed by suite_clear */
    void *devices[64];
    int n_devices;
    int n_dtypes; /* how many of suite_dtypes the backend computes on: all, or all but the last */
    bool bf16_logits, has_fp8, has_fp8_blocks;
    char what[160]; /* the current case, for messages */
} suite;

struct mat {
    mat *next;
    uint32_t dtype;
    int64_t rows, cols, stride;
    double *host; /* [rows, stride] */
    void *device;
};

extern const uint32_t suite_dtypes[3]; /* f32, bf16, f16 */

void suite_case(suite *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void suite_clear(suite *s); /* frees matrices and arrays */

double suite_uniform(suite *s, double low, double high);
/* A matrix with `gap` unused elements after each row; zero. */
mat *mat_new(suite *s, uint32_t dtype, int64_t rows, int64_t cols, int64_t gap);
mat *mat_random(suite *s, uint32_t dtype, int64_t rows, int64_t cols, int64_t gap, double low, double high);
double *mat_value(mat *m, int64_t row, int64_t col);
void mat_set(suite *s, mat *m, int64_t row, int64_t col, double value); /* rounded to dtype */
void mat_upload(suite *s, mat *m);                                      /* host to device, with guards */
/* Device to host; false (and a failed check) if a guard was overwritten. */
bool mat_download(suite *s, mat *m);
nrl_mat mat_args(const mat *m); /* NULL gives an absent operand */
double mat_round(uint32_t dtype, double x);

/* An array on the device, from host memory. */
void *suite_array(suite *s, const void *host, size_t bytes);
void suite_read(suite *s, void *host, const void *device, size_t bytes);

/* Checks that the call succeeded; a failed check has the error text. */
bool suite_ok(suite *s, nrl_status st, const char *rule);
/* Compares the values on the device with want[rows * cols]; |error| <= rel |want| + abs, where both
 * are raised to the error of one rounding to the dtype. */
bool suite_expect(suite *s, const char *rule, mat *m, const double *want, double rel, double abs);

/* The parts. */
void suite_elementwise(suite *s);
void suite_reductions(suite *s);
void suite_moves(suite *s);
void suite_gemm(suite *s);
void suite_norms(suite *s);
void suite_layers(suite *s);
void suite_head(suite *s);
void suite_attention(suite *s);
void suite_attention_rotated(suite *s); /* if the backend rotates gradients */
void suite_updates(suite *s);
void suite_measure(suite *s);
/* Runs operations with sums and writes all their results to out (bytes), for comparison. */
size_t suite_sums(suite *s, unsigned char *out, size_t size);

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#endif
