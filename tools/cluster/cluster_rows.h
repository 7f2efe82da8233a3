/*
 * cluster_rows.h - the keys of the section `cluster`, for cluster_section.c, which reads them, and cluster.c, which
 * lists them.
 */
#ifndef CLUSTER_ROWS_H
#define CLUSTER_ROWS_H
#include "cluster.h"
#include <stddef.h>

typedef enum { ROW_COUNT, ROW_TEXT, ROW_BOOL, ROW_MAP, ROW_LIST } cluster_row_type;

typedef struct {
    const char *name;
    cluster_row_type type;
    size_t offset;
    int64_t min;
    const char *help;
} cluster_row;

extern const cluster_row cluster_rows[];
extern const size_t cluster_n_rows;

#endif
