/*
 * suggest.h - "did you mean": the nearest of some names, by edits and swaps of neighbours.
 */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H
#include <stddef.h>

typedef struct {
    const char *word; /* what was written */
    const char *best; /* the nearest name so far, NULL if none is near */
    size_t distance;
} suggestion;

/* Start with {.word = word} and offer every name. Far names are never taken: at most one edit in
 * three letters. */
void suggest_offer(suggestion *s, const char *name);

#endif
