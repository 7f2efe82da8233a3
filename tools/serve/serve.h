/*
 * serve.h - the parts of `nrl serve`. http.c has the connections, in a thread of libmicrohttpd; request.c reads what
 * was asked; serve.c has the model, in the main thread; reply.c writes what was generated.
 */
#ifndef SERVE_H
#define SERVE_H
#include "base/arena.h"
#include "base/buffer.h"
#include "cli/common/tool_calls.h"
#include <nrl/inference.h>
#include <pthread.h>

enum { SERVE_MAX_CHOICES = 128, SERVE_MAX_STOPS = 64, SERVE_MAX_TOP = 20 };

/* One text of an answer. */
typedef struct {
    buffer text, logprobs;            /* collected unless the answer is streamed; logprobs: members of a JSON list */
    buffer text_logps, tops, offsets; /* of completions: members of more lists */
    int64_t n_tokens;
    size_t n_characters; /* of the text so far */
    uint32_t finish;     /* nrl_sampled_token.finish */
    tool_parser *parser; /* NULL: calls of tools stay text */
    buffer calls;        /* members of a JSON list, collected as the text is */
    size_t n_calls;
} choice;

typedef enum { JOB_WAITING, JOB_ADDED, JOB_DONE } job_state;

/* A request. The thread of connections creates it; the main thread owns it from job_queue on until it is JOB_DONE.
 * Members from `lock` on are guarded by server.lock. */
typedef struct job {
    arena memory;
    bool is_chat, is_stream, wants_usage, wants_logprobs;
    const nrl_node *tools; /* that may be called; NULL = none */
    size_t most_calls;     /* in a text */
    nrl_prompt *prompts;
    size_t n_prompts;
    nrl_sample_options options;
    const char *stop[SERVE_MAX_STOPS];
    /* the main thread's */
    uint64_t number, call_seed; /* call_seed: of the ids of calls, which differ even if the seed is the same */
    int64_t created;
    struct job_prompt *added; /* [n_prompts] */
    choice *choices;          /* [n_prompts * options.n] */
    size_t n_choices, n_left; /* n_left: that have not ended */
    bool has_failed;          /* no token could be chosen for one of them */
    int64_t prompt_tokens, completion_tokens;
    struct server *server;
    /* shared */
    job_state state;
    struct job *next;  /* in the queue, or among the jobs of the main thread */
    bool is_abandoned; /* the client has gone */
    bool is_suspended; /* the connection waits for wake() */
    int socket;        /* of the connection, while it is suspended */
    void *connection;
    unsigned http_status; /* 0 = not known yet */
    buffer out;           /* the answer, or the part of it that was not sent yet */
    size_t n_sent;
} job;

/* What options.token of a prompt receives. */
struct job_prompt {
    job *job;
    size_t first; /* its first choice */
    uint64_t id;  /* of nrl_generator_add; 0 = not added */
};

typedef struct server {
    const char *name, *api_key; /* of the model; NULL = no key is needed */
    const char *allow_origin;   /* whose pages may send requests from a browser, or "*"; NULL = only the server's own */
    int64_t max_queue, max_tokens, max_body;
    bool is_local; /* it listens on the loopback interface; set by http_open */
    nrl_inference *model;
    const nrl_open_tokenizer *tokenizer;
    tool_markers markers;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    job *queue, **queue_end;            /* waiting */
    int64_t n_queued, n_active, n_open; /* jobs: waiting, of the main thread, with a connection */
    nrl_generator_stats stats;
    bool is_ending;
} server;

/* ---- request.c ---- */

/* Fills a job from the body of a request. A mistake is NRL_ERR_CONFIG or NRL_ERR_DATA; *param is the member at fault or
 * NULL. */
nrl_status request_read(const server *s, job *j, const char *body, size_t size, const char **param);

/* ---- reply.c: all append to a buffer ---- */

void reply_error(buffer *b, unsigned http_status, const char *message, const char *param, const char *code);
void reply_models(const server *s, buffer *b, int64_t created, bool as_list); /* or the one model */
/* A token of choice i: an event of a stream, or a part of the final answer. */
void reply_token(job *j, size_t i, const nrl_sampled_token *t);
void reply_stream_begin(job *j);
void reply_end(job *j); /* the whole answer, or the end of the stream */

/* ---- http.c ---- */

typedef struct http http;
/* Listens; *port 0 becomes the port that was chosen. NRL_ERR_IO. */
nrl_status http_open(server *s, const char *host, int64_t *port, http **out);
void http_stop_listening(http *h);
void http_close(http *h);
/* The connection of a job goes on; with server.lock. */
void http_wake(job *j);
/* Whether the client of a suspended connection has closed it, or its sending side, which looks the same; with
 * server.lock. */
bool http_is_gone(const job *j);
void job_free(job *j);

#endif
