/*
 * compare.h - "key: value" lines that must be the same on all ranks: which lines differ, with which
 * values, on which ranks. Rank 0's text is the measure; each rank's differences from it are a record of
 * fixed size, so that texts of any length are compared by an exchange of records.
 * Private to core/mesh.
 */
#ifndef MESH_COMPARE_H
#define MESH_COMPARE_H
#include <nrl/status.h>

enum { COMPARE_LINES = 4, COMPARE_LINE = 320 };

/* The first lines of a rank's text that differ from rank 0's, in the order of rank 0's text; lines that
 * rank 0 lacks come last. All zero: the texts are equal. Plain bytes, to be exchanged. */
typedef struct {
    int32_t n, n_all;                       /* lines below; of the whole text */
    int32_t at[COMPARE_LINES];              /* the line's number in rank 0's text; INT32_MAX where rank 0 lacks it */
    char line[COMPARE_LINES][COMPARE_LINE]; /* "key: value"; only "key" where this rank lacks the line */
} compare_record;

void compare_texts(const char *first, const char *own, compare_record *out);

/* records and hosts of all ranks, in rank order. NRL_ERR_CONFIG naming the keys that differ, with the
 * values and ranks; NRL_OK where all records are zero. `hint` is the last line of the message; NULL =
 * none. */
nrl_status compare_result(const compare_record *records, const char *const *hosts, int32_t world, const char *first,
                          const char *hint);

#endif
