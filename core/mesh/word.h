/*
 * word.h - the one word about why a run ended, which all ranks share: a key of the store that is set
 * once. Whoever finds or makes a failure tries to set it; the first wins, and everybody, the later
 * ones too, goes by what stands there. So connections that close in a cascade blame nobody. [any]
 */
#ifndef MESH_WORD_H
#define MESH_WORD_H
#include "mesh/store.h"

typedef enum {
    WORD_NONE = 0,
    WORD_TOLD,   /* the culprit itself said why it leaves: code and text */
    WORD_LOST,   /* its connection broke without a word */
    WORD_SILENT, /* its beats stopped */
    WORD_LATE,   /* a call took longer than allowed while everybody beat */
    WORD_STORE   /* the store is gone or silent; never in the store, of course */
} word_kind;

enum { WORD_TEXT = 2048 };

typedef struct {
    word_kind kind;
    nrl_status code;  /* of WORD_TOLD */
    int32_t culprit;  /* rank; -1 = nobody in particular */
    int32_t reporter; /* the rank that set the word */
    char text[WORD_TEXT];
} word;

/* *w is what stands there now; WORD_NONE = nothing yet. */
nrl_status word_read(nrl_store *s, word *w);
/* Sets the word unless there is one; *w becomes the one that stands. */
nrl_status word_tell(nrl_store *s, word *w);

#endif
