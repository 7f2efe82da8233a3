/*
 * fuzz_txt.c - any bytes as a file of plain text: see rows.h.
 */
#define _GNU_SOURCE /* memfd_create */
#define FUZZ_READER "txt"
#define FUZZ_OPTIONS                                                                                                   \
    "{}", "{\"sample_by\": \"paragraph\"}", "{\"sample_by\": \"document\", \"chunk\": 10, \"overlap\": 3}",            \
        "{\"sample_by\": \"line\", \"chunk\": 4}"
#include "rows.h"
