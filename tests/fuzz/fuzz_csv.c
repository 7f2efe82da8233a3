/*
 * fuzz_csv.c - any bytes as a file of tables: see rows.h.
 */
#define _GNU_SOURCE /* memfd_create */
#define FUZZ_READER "csv"
#define FUZZ_OPTIONS                                                                                                   \
    "{}", "{\"delimiter\": \";\", \"names\": [\"prompt\", \"completion\"]}",                                           \
        "{\"quote\": \"\", \"delimiter\": \"\\t\"}", "{\"json\": [\"text\"]}"
#include "rows.h"
