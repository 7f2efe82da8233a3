/*
 * lines.h - compares texts of "key: value" lines that must be equal on all ranks: which lines differ, with which
 * values, on which ranks. Each rank stores its differences from the text of rank 0 in a record of fixed size, so that
 * texts of any length can be compared by exchanging records.
 */
#ifndef BASE_LINES_H
#define BASE_LINES_H
#include <nrl/status.h>

enum { LINES_KEPT = 4, LINE_ROOM = 320 };

/* The first lines of a rank's text that differ from the text of rank 0, in the order of that text; lines that rank 0
 * does not have come last. All zero if the texts are equal. The record is exchanged as plain bytes. */
typedef struct {
    int32_t n, n_all;                 /* differing lines in the record; in the whole text */
    int32_t at[LINES_KEPT];           /* number of the line in rank 0's text; INT32_MAX if rank 0 does not have it */
    char line[LINES_KEPT][LINE_ROOM]; /* "key: value"; only "key" if this rank does not have the line */
} lines_record;

void lines_compare(const char *first, const char *own, lines_record *out);

/* Takes the records and hosts of all ranks, in rank order. NRL_ERR_CONFIG with the keys that differ, their values and
 * ranks; NRL_OK if all records are zero. `hint` is the last line of the message, or NULL. */
nrl_status lines_report(const lines_record *records, const char *const *hosts, int32_t world, const char *first,
                        const char *hint);

#endif
