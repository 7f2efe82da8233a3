/*
 * gemm_choices.c - a list of classes of products, and its file: a line for each class, with its numbers in decimal and
 * the bytes of the choice in hexadecimal.
 */
#include "gemm_choices.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIGNIFICANT = 4, LINE = 512 };

static int64_t rounded(int64_t n)
{
    int64_t step = 1;
    while (n > step << SIGNIFICANT)
        step <<= 1;
    return (n + step - 1) / step * step;
}

/* Algorithms may need aligned rows, too. */
static uint32_t alignment_with(uint32_t alignment, int64_t stride, uint32_t type)
{
    const uint64_t bytes = (uint64_t)stride * nrl_dtype_size((nrl_dtype)type);
    while (bytes % alignment)
        alignment /= 2;
    return alignment;
}

/* In a row-major matrix, rows are limited by no stride: tokens, where the operand or the result has a row for each. */
gemm_product gemm_largest(const gemm_product *p)
{
    gemm_product largest = *p;
    if (!p->transpose_right) largest.cols = rounded(p->cols);
    if (!p->transpose_left && p->transpose_right) largest.depth = rounded(p->depth);
    return largest;
}

static gemm_product class_of(const gemm_choices *of, const gemm_product *p)
{
    gemm_product c = *p;
    if (of->has_strides) return gemm_largest(p);
    c.rows = rounded(p->rows);
    c.cols = rounded(p->cols);
    c.depth = rounded(p->depth);
    c.left_alignment = alignment_with(p->left_alignment, p->left_stride, p->type);
    c.right_alignment = alignment_with(p->right_alignment, p->right_stride, p->type);
    c.out_alignment = alignment_with(p->out_alignment, p->out_stride, p->out_type);
    c.left_stride = c.right_stride = c.out_stride = 0;
    return c;
}

/* ---- lines of the file ---- */

/* The members of a class in the order of a line. */
/* clang-format off */
#define CLASS_MEMBERS(X)                                                                           \
    X(rows) X(cols) X(depth) X(type) X(out_type) X(left_alignment) X(right_alignment)              \
    X(out_alignment) X(transpose_left) X(transpose_right) X(accumulate) X(has_bias) X(tf32)        \
    X(left_fp8) X(right_fp8) X(left_blocks) X(right_blocks)
/* clang-format on */

static void print_line(const gemm_class *k, char *line)
{
    size_t at = 0;
#define PRINT(member) at += (size_t)snprintf(line + at, LINE - at, "%" PRId64 " ", (int64_t)k->product.member);
    CLASS_MEMBERS(PRINT)
    for (size_t i = 0; i < sizeof k->choice.bytes; i++)
        at += (size_t)snprintf(line + at, LINE - at, "%02x", k->choice.bytes[i]);
    snprintf(line + at, LINE - at, "\n");
}

static bool read_number(const char **text, int64_t most, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    bool right = end != *text && *end == ' ' && !errno && *out >= 0 && *out <= most;
    *text = end + right;
    return right;
}

static bool read_line(const char *line, gemm_class *k)
{
    int64_t n;
    *k = (gemm_class){.product.relaxed = 1};
#define READ(member)                                                                                                   \
    if (!read_number(&line, sizeof k->product.member == sizeof(uint32_t) ? INT32_MAX : INT64_MAX, &n)) return false;   \
    k->product.member = (__typeof__(k->product.member))n;
    CLASS_MEMBERS(READ)
    for (size_t i = 0; i < sizeof k->choice.bytes; i++, line += 2) {
        unsigned byte;
        if (!isxdigit((unsigned char)line[0]) || !isxdigit((unsigned char)line[1])) return false;
        if (sscanf(line, "%2x", &byte) != 1) return false;
        k->choice.bytes[i] = (unsigned char)byte;
    }
    return !strcmp(line, "\n");
}

/* ---- the list ---- */

static bool keep(gemm_choices *c, const gemm_class *k)
{
    if (c->n == c->room) {
        const int room = c->room ? 2 * c->room : 64;
        gemm_class *more = realloc(c->classes, (size_t)room * sizeof *more);
        if (!more) return false; /* it is timed again */
        c->classes = more;
        c->room = room;
    }
    c->classes[c->n++] = *k;
    return true;
}

static void read_file(gemm_choices *c)
{
    FILE *f = fopen(c->path, "r");
    char line[LINE];
    int number = 0, wrong = 0;
    if (!f && errno != ENOENT) nrl_warn("product_cache: cannot read '%s': %s", c->path, strerror(errno));
    while (f && fgets(line, sizeof line, f)) {
        gemm_class k;
        number++;
        if (read_line(line, &k))
            (void)keep(c, &k);
        else if (!wrong)
            wrong = number;
    }
    if (wrong)
        nrl_warn("product_cache: %s:%d: expected 17 numbers and %zu hexadecimal digits; such lines are ignored",
                 c->path, wrong, 2 * sizeof(gemm_choice));
    if (f) fclose(f);
}

void gemm_choices_open(gemm_choices *c, const char *folder, const char *device, int driver, size_t library)
{
    *c = (gemm_choices){0};
    if (!*folder) return;
    const size_t room = strlen(folder) + strlen(device) + 80;
    c->path = malloc(room);
    if (!c->path) return;
    int at = snprintf(c->path, room, "%s/", folder);
    snprintf(c->path + at, room - (size_t)at, "%s-driver-%d-cublaslt-%zu.txt", device, driver, library);
    for (char *s = c->path + at; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '.') *s = '-';
    if (mkdir(folder, 0777) && errno != EEXIST)
        nrl_warn("product_cache: cannot create the directory '%s': %s", folder, strerror(errno));
    read_file(c);
}

void gemm_choices_close(gemm_choices *c)
{
    free(c->path);
    free(c->classes);
    *c = (gemm_choices){0};
}

bool gemm_choices_find(const gemm_choices *c, const gemm_product *p, gemm_choice *out)
{
    const gemm_product wanted = class_of(c, p);
    for (int i = 0; i < c->n; i++) {
        if (memcmp(&c->classes[i].product, &wanted, sizeof wanted) != 0) continue;
        *out = c->classes[i].choice;
        return true;
    }
    return false;
}

void gemm_choices_add(gemm_choices *c, const gemm_product *p, const gemm_choice *choice)
{
    const gemm_class k = {class_of(c, p), *choice};
    char line[LINE];
    if (!keep(c, &k) || !c->path) return;
    print_line(&k, line);
    const int file = open(c->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    const size_t n = strlen(line);
    const bool written = file >= 0 && write(file, line, n) == (ssize_t)n; /* in one piece: ranks write the same file */
    if (!written) {
        nrl_warn("product_cache: cannot write '%s': %s", c->path, strerror(errno));
        free(c->path);
        c->path = NULL;
    }
    if (file >= 0) close(file);
}
