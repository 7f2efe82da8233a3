/*
 * suggest.h - "did you mean": the nearest of several names, by edits and swaps of adjacent letters.
 */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H
#include <stddef.h>

typedef struct {
    const char *word; /* the misspelled word */
    const char *best; /* the nearest name so far; NULL if no name is near enough */
    size_t distance;
} suggestion;

/* Start with {.word = word} and offer every name. A name is near enough if it differs by at most one edit in three
 * letters. */
void suggest_offer(suggestion *s, const char *name);

#endif
