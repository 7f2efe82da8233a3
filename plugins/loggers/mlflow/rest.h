/*
 * rest.h - calls of an MLflow tracking server over HTTP. All functions run on the thread that sends records.
 */
#ifndef MLFLOW_REST_H
#define MLFLOW_REST_H
#include "base/json.h"
#include "record_queue.h"
#include <curl/curl.h>

typedef struct {
    CURL *curl; /* NULL = not open */
    const char *url, *user, *password, *token;
    record_queue *const *queue; /* calls end when it gives up */
} rest;

/* Posts `body` (NULL: a GET) to URL/api/2.0/mlflow/PATH. *answer, if not NULL, is a tree in `a`. Errors: NRL_ERR_IO if
 * the server cannot be reached or refuses; then *refusal, if not NULL, is its error_code in `a`, or NULL. */
nrl_status rest_call(rest *r, arena *a, const char *path, const nrl_node *body, const nrl_node **answer,
                     const char **refusal);
void rest_prepare(void); /* once in a process, before other threads use curl [main] */
void rest_close(rest *r);
char *rest_escape(rest *r, arena *a, const char *text); /* for the query of a path */

#endif
