/*
 * cluster_rows.h - the keys of the section `cluster`, for cluster_section.c, which reads them, and cluster.c, which
 * lists them.
 */
#ifndef CLUSTER_ROWS_H
#define CLUSTER_ROWS_H
#include "cluster.h"
#include <stddef.h>

typedef enum { ROW_COUNT, ROW_TEXT, ROW_BOOL, ROW_MAP, ROW_LIST } cluster_row_type;
/* Where a key stands: in the section, in the section and in each group, or in groups alone. */
typedef enum { ROW_OF_JOB, ROW_OF_BOTH, ROW_OF_GROUP } cluster_row_place;

typedef struct {
    const char *name;
    cluster_row_type type;
    cluster_row_place place;
    size_t offset; /* in cluster_job, or in cluster_group */
    int64_t min;
    const char *help;
} cluster_row;

extern const cluster_row cluster_rows[];
extern const size_t cluster_n_rows;

#endif
