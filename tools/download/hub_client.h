/*
 * hub_client.h - requests to the Hugging Face hub, or to a server that speaks its API, over libcurl; for `nrl download`
 * and `nrl upload`.
 *
 * HTTPS only, except for servers on this machine. A redirect is followed if it keeps to that; the token is sent to the
 * hub itself and to no other host. A failed connection, an overloaded server (429) and a server error (5xx) are tried
 * again after a wait.
 */
#ifndef DOWNLOAD_HUB_CLIENT_H
#define DOWNLOAD_HUB_CLIENT_H
#include "base/arena.h"
#include "base/node.h"
#include <stdbool.h>

typedef struct hub_client hub_client;

/* The server is HF_ENDPOINT; the token is HF_TOKEN, or HUGGING_FACE_HUB_TOKEN, or the file where the hub's own tools
 * store it. */
nrl_status hub_client_open(hub_client **out);
void hub_client_close(hub_client *c); /* c may be NULL */
const char *hub_client_endpoint(const hub_client *c);
/* The status code of the answer to the last request, such as 404; 0 = there was no answer. */
long hub_client_code(const hub_client *c);

/* A path of the server, with each part percent-encoded; "/" stays. In `a`. */
const char *hub_client_encode(hub_client *c, arena *a, const char *path);

/* What a request is about, for messages. */
typedef struct {
    const char *what; /* "model 'org/name'" */
    const char *page; /* its page in a browser; NULL = none */
} hub_subject;

/* GET or POST (with `body`, of the type `body_type`) of a path; the answer is JSON. */
nrl_status hub_client_json(hub_client *c, const hub_subject *about, const char *path, const char *body,
                           const char *body_type, arena *a, nrl_node **answer);

/* Downloads a path to the descriptor, from byte `begin`, of `size` bytes in total. The file may be shorter or longer
 * afterwards only if this fails. A server that cannot continue a file sends it from its start. */
nrl_status hub_client_download(hub_client *c, const hub_subject *about, const char *path, int fd, const char *name,
                               int64_t begin, int64_t size);

/* PUT of `size` bytes of the file from `begin` to a complete URL, without the token. *etag (may be NULL) is in `a`. */
nrl_status hub_client_put(hub_client *c, const hub_subject *about, const char *url, const char *file, int64_t begin,
                          int64_t size, arena *a, const char **etag);
/* POST of JSON to a complete URL, with the token if it is one of the hub itself; the answer is ignored. */
nrl_status hub_client_post(hub_client *c, const hub_subject *about, const char *url, const nrl_node *headers,
                           const char *body, const char *body_type);

#endif
