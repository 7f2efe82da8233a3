/*
 * jsonl.h - a record as a line of JSON.
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

#endif
