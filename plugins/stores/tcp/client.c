/*
 * client.c - a client of a TCPStore server. A call takes an idle connection or opens one, sends its
 * request in one piece, reads the reply and returns the connection. After any error the connection
 * is closed instead, so that no reply is ever taken for that of another request.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "socket.h"
#include "tcp.h"
#include "wire.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_S 3.0  /* a server that is silent for longer is considered lost */
#define CONNECT_S 3.0 /* for connections after the first */
#define RETRY_S 0.1
enum { MAX_IDLE = 8 };

typedef struct {
    char *address;
    int32_t port;
    bool has_secret;
    secret_key secret;
    pthread_mutex_t lock;
    int idle[MAX_IDLE];
    int n_idle;
} client;

/* ---- connections ---- */

static uint32_t nonce_of(const void *p)
{
    return (uint32_t)((uintptr_t)p >> 4);
}

/* VALIDATE and PING, as in torch: the echo shows that the server is a store. */
static nrl_status greet(client *c, int fd, double deadline)
{
    unsigned char join_request[10] = {STORE_VALIDATE};
    uint32_t magic = STORE_MAGIC, nonce = nonce_of(c), echo;
    memcpy(join_request + 1, &magic, 4);
    join_request[5] = STORE_PING;
    memcpy(join_request + 6, &nonce, 4);
    NRL_TRY(socket_send(fd, join_request, sizeof join_request, deadline));
    NRL_TRY(socket_receive(fd, &echo, 4, deadline, NULL));
    if (echo == nonce) return NRL_OK;
    if (echo == STORE_REFUSAL)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the ranks' store at %s port %d requires the job's secret, but this process has none\n"
                        "hint: set NRL_JOB_SECRET_FILE to the file that the other processes use",
                        c->address, (int)c->port);
    return nrl_fail(NRL_ERR_PEER, "%s port %d is not a store of ranks", c->address, (int)c->port);
}

static nrl_status other_secret(const client *c)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "the ranks' store at %s port %d has a different secret than this process, or belongs to another "
                    "job\n"
                    "hint: give every process of a job the same secret, and every job its own port",
                    c->address, (int)c->port);
}

/* Each side answers the other's challenge to prove that it has the secret. */
static nrl_status greet_with_secret(const client *c, int fd, double deadline)
{
    unsigned char join_request[STORE_HELLO_BYTES] = {STORE_HELLO}, answer[STORE_CHALLENGE_BYTES - 1], yes;
    unsigned char nonces[2 * SECRET_NONCE];
    secret_random(nonces, SECRET_NONCE);
    memcpy(join_request + 1, nonces, SECRET_NONCE);
    NRL_TRY(socket_send(fd, join_request, sizeof join_request, deadline));
    NRL_TRY(socket_receive(fd, &yes, 1, deadline, NULL));
    if (!yes)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the ranks' store at %s port %d has no secret, but this process has one\n"
                        "hint: give the secret to every process of the job, including the one that runs the store",
                        c->address, (int)c->port);
    NRL_TRY(socket_receive(fd, answer, sizeof answer, deadline, NULL));
    memcpy(nonces + SECRET_NONCE, answer, SECRET_NONCE);
    if (!secret_verify(&c->secret, STORE_SERVER_LABEL, nonces, sizeof nonces, answer + SECRET_NONCE))
        return other_secret(c);
    join_request[0] = STORE_PROOF;
    secret_prove(&c->secret, STORE_CLIENT_LABEL, nonces, sizeof nonces, join_request + 1);
    NRL_TRY(socket_send(fd, join_request, sizeof join_request, deadline));
    NRL_TRY(socket_receive(fd, &yes, 1, deadline, NULL));
    return yes == 1 ? NRL_OK : other_secret(c);
}

static nrl_status open_connection(client *c, double deadline, int *fd)
{
    NRL_TRY(socket_connect(c->address, c->port, deadline, fd));
    nrl_status st = c->has_secret ? greet_with_secret(c, *fd, deadline) : greet(c, *fd, deadline);
    if (st) close(*fd);
    return st;
}

static nrl_status take_connection(client *c, int *fd)
{
    pthread_mutex_lock(&c->lock);
    *fd = c->n_idle ? c->idle[--c->n_idle] : -1;
    pthread_mutex_unlock(&c->lock);
    return *fd >= 0 ? NRL_OK : open_connection(c, clock_seconds() + CONNECT_S, fd);
}

static void give_connection(client *c, int fd, nrl_status st)
{
    pthread_mutex_lock(&c->lock);
    bool keep = !st && c->n_idle < MAX_IDLE;
    if (keep) c->idle[c->n_idle++] = fd;
    pthread_mutex_unlock(&c->lock);
    if (!keep) close(fd);
}

/* ---- requests and replies ---- */

static void put_u64(buffer *b, uint64_t n)
{
    buffer_add(b, (const char *)&n, 8);
}

static void put_text(buffer *b, const void *text, size_t size)
{
    put_u64(b, size);
    buffer_add(b, text, size);
}

static void put_key(buffer *b, const char *key)
{
    bool bare = !strcmp(key, STORE_INIT_KEY);
    put_u64(b, strlen(key) + !bare);
    if (!bare) buffer_puts(b, "/");
    buffer_puts(b, key);
}

static void put_request(buffer *b, int request)
{
    char byte = (char)request;
    buffer_add(b, &byte, 1);
}

static nrl_status receive_text(int fd, void **value, size_t *size)
{
    uint64_t n;
    double deadline = clock_seconds() + ANSWER_S;
    NRL_TRY(socket_receive(fd, &n, 8, deadline, NULL));
    if (n > NRL_STORE_MAX_VALUE)
        return nrl_fail(NRL_ERR_PEER, "the store returned a value of %llu bytes, expected at most %d",
                        (unsigned long long)n, NRL_STORE_MAX_VALUE);
    char *text = malloc(n + 1);
    if (!text) return nrl_fail(NRL_ERR_MEMORY, "a value of %llu bytes", (unsigned long long)n);
    nrl_status st = socket_receive(fd, text, n, deadline, NULL);
    if (st) {
        free(text);
        return st;
    }
    text[n] = 0;
    *value = text;
    *size = n;
    return NRL_OK;
}

static nrl_status send_request(int fd, buffer *b)
{
    nrl_status st = socket_send(fd, b->text, b->size, clock_seconds() + ANSWER_S);
    buffer_free(b);
    return st;
}

/* Sends and reads a reply of a known size, on a connection of its own. */
static nrl_status ask(client *c, buffer *b, void *reply, size_t size)
{
    int fd;
    nrl_status st = take_connection(c, &fd);
    if (st) {
        buffer_free(b);
        return st;
    }
    st = send_request(fd, b);
    if (!st && size) st = socket_receive(fd, reply, size, clock_seconds() + ANSWER_S, NULL);
    give_connection(c, fd, st);
    return st;
}

/* ---- the verbs ---- */

/* SET has no reply: the reply to the PING after it shows that it was accepted. */
nrl_status tcp_client_set(void *self, const char *key, const void *value, size_t size)
{
    client *c = self;
    buffer b = {0};
    uint32_t nonce = nonce_of(c), echo = 0;
    int fd;
    NRL_TRY(take_connection(c, &fd));
    put_request(&b, STORE_SET);
    put_key(&b, key);
    put_text(&b, value, size);
    put_request(&b, STORE_PING);
    buffer_add(&b, (const char *)&nonce, 4);
    nrl_status st = send_request(fd, &b);
    if (!st) st = socket_receive(fd, &echo, 4, clock_seconds() + ANSWER_S, NULL);
    if (!st && echo != nonce)
        st = nrl_fail(NRL_ERR_PEER,
                      echo == STORE_FULL ? "the ranks' store has no room for %zu bytes of '%s'"
                                         : "the ranks' store did not accept %zu bytes of '%s'",
                      size, key);
    give_connection(c, fd, st);
    return st;
}

nrl_status tcp_client_add(void *self, const char *key, int64_t amount, int64_t *result)
{
    buffer b = {0};
    put_request(&b, STORE_ADD);
    put_key(&b, key);
    put_u64(&b, (uint64_t)amount);
    return ask(self, &b, result, 8);
}

nrl_status tcp_client_remove(void *self, const char *key)
{
    buffer b = {0};
    int64_t n_removed;
    put_request(&b, STORE_DELETE_KEY);
    put_key(&b, key);
    return ask(self, &b, &n_removed, 8);
}

static void put_keys(buffer *b, int request, const char *const *keys, size_t n)
{
    put_request(b, request);
    put_u64(b, n);
    for (size_t i = 0; i < n; i++)
        put_key(b, keys[i]);
}

nrl_status tcp_client_all_there(void *self, const char *const *keys, size_t n, bool *all)
{
    buffer b = {0};
    uint8_t answer;
    put_keys(&b, STORE_CHECK, keys, n);
    NRL_TRY(ask(self, &b, &answer, 1));
    *all = answer == STORE_CHECK_READY;
    return NRL_OK;
}

/* After a timeout, the server may have answered the wait at the same moment, so up to two bytes
 * arrive. */
static nrl_status cancel_wait(int fd, bool *found)
{
    buffer b = {0};
    uint8_t answer;
    double deadline = clock_seconds() + ANSWER_S;
    put_request(&b, STORE_CANCEL_WAIT);
    NRL_TRY(send_request(fd, &b));
    *found = false;
    for (;;) {
        NRL_TRY(socket_receive(fd, &answer, 1, deadline, NULL));
        if (answer == STORE_WAIT_CANCELED) return NRL_OK;
        *found = true;
    }
}

static nrl_status wait_for_key(int fd, const char *key, double timeout_s, bool *found)
{
    buffer b = {0};
    uint8_t answer;
    bool late = false;
    put_keys(&b, timeout_s > 0 ? STORE_WAIT : STORE_CHECK, &key, 1);
    NRL_TRY(send_request(fd, &b));
    double patience = timeout_s > 0 ? timeout_s : ANSWER_S;
    NRL_TRY(socket_receive(fd, &answer, 1, clock_seconds() + patience, timeout_s > 0 ? &late : NULL));
    if (timeout_s > 0 && late) return cancel_wait(fd, found);
    *found = answer == 0; /* both requests were answered */
    return NRL_OK;
}

nrl_status tcp_client_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    client *c = self;
    int fd;
    NRL_TRY(take_connection(c, &fd));
    nrl_status st = wait_for_key(fd, key, timeout_s, found);
    if (!st && *found) {
        buffer b = {0};
        put_request(&b, STORE_GET);
        put_key(&b, key);
        st = send_request(fd, &b);
        if (!st) st = receive_text(fd, value, size);
    }
    give_connection(c, fd, st);
    return st;
}

nrl_status tcp_client_set_once(void *self, const char *key, const char *text, char **now)
{
    client *c = self;
    buffer b = {0};
    void *value;
    size_t size;
    int fd;
    NRL_TRY(take_connection(c, &fd));
    put_request(&b, STORE_COMPARE_SET);
    put_key(&b, key);
    put_text(&b, "", 0); /* the expected value: the server treats "" and absent alike */
    put_text(&b, text, strlen(text));
    nrl_status st = send_request(fd, &b);
    if (!st) st = receive_text(fd, &value, &size);
    if (!st) *now = value;
    give_connection(c, fd, st);
    return st;
}

nrl_status tcp_client_get_all(void *self, const char *const *keys, size_t n, char **values)
{
    client *c = self;
    buffer b = {0};
    size_t done = 0, size;
    int fd;
    NRL_TRY(take_connection(c, &fd));
    put_keys(&b, STORE_MULTI_GET, keys, n);
    nrl_status st = send_request(fd, &b);
    while (!st && done < n) {
        void *value;
        st = receive_text(fd, &value, &size);
        if (!st) values[done++] = value;
    }
    for (; st && done; done--)
        free(values[done - 1]);
    give_connection(c, fd, st);
    return st;
}

void tcp_client_close(void *self)
{
    client *c = self;
    for (int i = 0; i < c->n_idle; i++)
        close(c->idle[i]);
    pthread_mutex_destroy(&c->lock);
    secret_wipe(&c->secret, sizeof c->secret);
    free(c->address);
    free(c);
}

/* ---- the first connection ---- */

/* A server may start later, so a failed connection is retried; a refusal is not. */
static nrl_status connect_patiently(client *c, const tcp_client_setup *setup, int *fd)
{
    double deadline = clock_seconds() + setup->timeout_s;
    for (;;) {
        double now = clock_seconds(), tries = now + ANSWER_S;
        nrl_status st = open_connection(c, tries < deadline ? tries : deadline, fd);
        if (!st || st == NRL_ERR_CONFIG) return st;
        if (clock_seconds() + RETRY_S >= deadline) {
            nrl_add_context("no store of the ranks within %g s", setup->timeout_s);
            return st;
        }
        if (setup->signal && *setup->signal)
            return nrl_fail(NRL_ERR_STOPPED, "received signal %d before the ranks had a store", *setup->signal);
        clock_sleep(RETRY_S);
    }
}

nrl_status tcp_client_open(const tcp_client_setup *setup, void **self)
{
    int fd;
    int64_t joined;
    client *c = mem_alloc(sizeof *c);
    c->address = mem_strdup(setup->address);
    c->port = setup->port;
    c->has_secret = setup->secret != NULL;
    if (setup->secret) c->secret = *setup->secret;
    pthread_mutex_init(&c->lock, NULL);
    nrl_status st = connect_patiently(c, setup, &fd);
    if (!st) {
        give_connection(c, fd, NRL_OK);
        st = tcp_client_add(c, STORE_INIT_KEY, 1, &joined); /* rank 0 of torch waits for this count */
    }
    if (st)
        tcp_client_close(c);
    else
        *self = c;
    return st;
}
