/*
 * jsonl.h - the two halves of the file format: writing a record as a line, and truncating a file to a
 * step.
 */
#ifndef JSONL_JSONL_H
#define JSONL_JSONL_H
#include <nrl/nrl.h>
#include <stdio.h>

/* Reused for every record; initialised to {0}. */
typedef struct {
    char *text;
    size_t size, capacity;
} jsonl_line;

/* Replaces the line with `record` and a newline. */
nrl_status jsonl_format(jsonl_line *line, const nrl_record *record);

/* Drops the records after `step` and an incomplete last line, through a temporary file, so that a crash
 * leaves either the old file or the new one. A missing file is not an error. */
nrl_status jsonl_cut(const char *path, int64_t step);

#endif
