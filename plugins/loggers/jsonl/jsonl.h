/*
 * jsonl.h - the two halves of the file format: writing a record as a line, and cutting a file back
 * to a step.
 */
#ifndef JSONL_JSONL_H
#define JSONL_JSONL_H
#include <nrl/nrl.h>
#include <stdio.h>

/* Reused from record to record; starts as {0}. */
typedef struct {
    char *text;
    size_t size, capacity;
} jsonl_line;

/* Replaces the line by `record` with its newline. */
nrl_status jsonl_format(jsonl_line *line, const nrl_record *record);

/* Drops records after `step` and a torn last line; through a temporary file, so that a crash leaves
 * the old file or the new one. A missing file is fine. */
nrl_status jsonl_cut(const char *path, int64_t step);

#endif
