/*
 * gemm_choices.h - the fastest algorithm of each class of products, and the file that keeps them from run to run.
 *
 * Products of a class differ in sizes that are equal when rounded up to 4 significant bits, so that packed batches,
 * which have ever new numbers of tokens, are timed a few times and not in each step. A file belongs to one name of a
 * device, one driver and one version of the library: for others there are other files in the same directory.
 *
 * Where nothing is timed, the same lists keep the library's own choices, each for the largest product of a class that
 * has all strides of the product (gemm_largest). So the algorithm depends only on the product, whatever came before.
 */
#ifndef CUDA_GEMM_CHOICES_H
#define CUDA_GEMM_CHOICES_H
#include "gemm_library.h"

typedef struct {
    gemm_product product; /* with rounded sizes and without strides */
    gemm_choice choice;
} gemm_class;

typedef struct {
    char *path; /* NULL: they are not kept */
    gemm_class *classes;
    int n, room;
    bool has_strides; /* classes are those of gemm_largest */
} gemm_choices;

/* Reads what earlier runs found. What cannot be read is a warning, and found again. [step] */
void gemm_choices_open(gemm_choices *c, const char *folder, const char *device, int driver, size_t library);
void gemm_choices_close(gemm_choices *c);
/* The product with the numbers that vary with the tokens, which no stride limits, rounded up to 4 significant bits. */
gemm_product gemm_largest(const gemm_product *p);
bool gemm_choices_find(const gemm_choices *c, const gemm_product *p, gemm_choice *out);
/* Remembers the choice, and appends it to the file, which ranks share; a file that cannot be written is a warning. */
void gemm_choices_add(gemm_choices *c, const gemm_product *p, const gemm_choice *choice);

#endif
