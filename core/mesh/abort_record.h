/*
 * abort_record.h - the reason why a run ended, shared by all ranks: a key of the store that is set once. Every rank
 * that fails or detects a failure tries to set it. The first one succeeds, and all ranks report what it contains, so
 * connections that close as a consequence blame nobody. [any]
 */
#ifndef MESH_ABORT_RECORD_H
#define MESH_ABORT_RECORD_H
#include "mesh/store.h"

typedef enum {
    ABORT_NONE = 0,
    ABORT_REPORTED, /* the culprit itself reported its error: code and text */
    ABORT_LOST,     /* its connection broke without an abort record */
    ABORT_SILENT,   /* its heartbeats stopped */
    ABORT_LATE,     /* a call timed out while all ranks sent heartbeats */
    ABORT_STORE     /* the store is lost or does not answer; this kind is never stored */
} abort_kind;

enum { ABORT_TEXT = 2048 };

typedef struct {
    abort_kind kind;
    nrl_status code;  /* of ABORT_REPORTED */
    int32_t culprit;  /* the rank that failed; -1 = unknown */
    int32_t reporter; /* the rank that set the abort record */
    char text[ABORT_TEXT];
} abort_record;

/* Reads the record. ABORT_NONE: there is none yet. */
nrl_status abort_record_read(nrl_store *s, abort_record *w);
/* Sets the record unless there is one. *w becomes the record in the store. */
nrl_status abort_record_write(nrl_store *s, abort_record *w);

#endif
