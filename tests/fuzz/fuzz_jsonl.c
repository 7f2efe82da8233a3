/*
 * fuzz_jsonl.c - any bytes as a file of JSON lines and JSON arrays: see rows.h.
 */
#define _GNU_SOURCE /* memfd_create */
#define FUZZ_READER "jsonl"
#define FUZZ_OPTIONS "{}"
#include "rows.h"
