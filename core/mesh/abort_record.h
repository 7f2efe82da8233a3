/*
 * abort_record.h - the one word about why a run ended, which all ranks share: a key of the store that is set
 * once. Whoever finds or makes a failure tries to set it; the first wins, and everybody, the later
 * ones too, goes by what stands there. So connections that close in a cascade blame nobody. [any]
 */
#ifndef MESH_ABORT_RECORD_H
#define MESH_ABORT_RECORD_H
#include "mesh/store.h"

typedef enum {
    ABORT_NONE = 0,
    ABORT_REPORTED, /* the culprit itself said why it leaves: code and text */
    ABORT_LOST,     /* its connection broke without an abort record */
    ABORT_SILENT,   /* its heartbeats stopped */
    ABORT_LATE,     /* a call took longer than allowed while everybody heartbeat */
    ABORT_STORE     /* the store is gone or silent; never in the store, of course */
} abort_kind;

enum { ABORT_TEXT = 2048 };

typedef struct {
    abort_kind kind;
    nrl_status code;  /* of ABORT_REPORTED */
    int32_t culprit;  /* rank; -1 = nobody in particular */
    int32_t reporter; /* the rank that set the abort record */
    char text[ABORT_TEXT];
} abort_record;

/* *w is what stands there now; ABORT_NONE = nothing yet. */
nrl_status abort_record_read(nrl_store *s, abort_record *w);
/* Sets the abort record unless there is one; *w becomes the one that stands. */
nrl_status abort_record_write(nrl_store *s, abort_record *w);

#endif
