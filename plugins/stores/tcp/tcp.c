/*
 * tcp.c - the store plugin tcp: "HOST:PORT", served by rank 0, by the launcher, or by a program of
 * PyTorch.
 *
 * torchrun's agent runs a store that requires no secret. In a job with a secret, rank 0 runs a
 * second store on a free port, and the agent's store only contains that port, with a proof.
 */
#include "tcp.h"
#include "base/arena.h"
#include "base/clock.h"
#include "wire.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND_LABEL "nrl store behind"
#define LOOK_S 0.05
enum { MAX_PORT = 65535 };

typedef struct {
    char *host;
    int32_t port;
} tcp_address;

/* "HOST:PORT" or "[IPv6]:PORT", optionally with "tcp://" before it. False if it is not such an
 * address; nothing is allocated then. */
static bool address_parse(const char *text, tcp_address *out)
{
    if (!strncmp(text, "tcp://", 6)) text += 6;
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon == text || strchr(text, '/')) return false;
    long port = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port < 0 || port > MAX_PORT || colon[1] == '+' || colon[1] == '-') return false;
    size_t n = (size_t)(colon - text);
    bool bracketed = *text == '[' && text[n - 1] == ']';
    if (!bracketed && memchr(text, ':', n)) return false;
    *out = (tcp_address){mem_printf("%.*s", (int)(bracketed ? n - 2 : n), text + bracketed), (int32_t)port};
    return true;
}

static nrl_status address_read(const char *text, tcp_address *out)
{
    if (address_parse(text, out)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot join at '%s': expected HOST:PORT with a port of 0 to %d", text, MAX_PORT);
}

static int32_t tcp_probe(const char *address)
{
    tcp_address a;
    if (!address_parse(address, &a)) return NRL_PROBE_NO;
    free(a.host);
    return NRL_PROBE_YES;
}

static const secret_key *secret_of(const nrl_store_setup *setup, secret_key *room)
{
    if (!setup->secret) return NULL;
    memcpy(room->key, setup->secret, sizeof room->key);
    return room;
}

/* ---- a second store in jobs with a secret ---- */

static bool is_behind(const nrl_store_setup *setup)
{
    return (setup->flags & NRL_STORE_FOREIGN) && setup->secret;
}

/* The address of rank 0's own store, as it is stored in the agent's store. */
typedef struct {
    int32_t port;
    unsigned char proof[SECRET_PROOF];
} behind;

static char *behind_key(const nrl_store_setup *setup)
{
    const char *job = setup->job ? setup->job : "";
    return mem_printf("nrl%s%s/behind", *job ? "/" : "", job);
}

static nrl_status foreign_open(const nrl_store_setup *setup, const tcp_address *a, void **foreign)
{
    const tcp_client_setup s = {
        .address = a->host, .port = a->port, .timeout_s = setup->timeout_s, .signal = setup->signal};
    return tcp_client_open(&s, foreign);
}

static nrl_status behind_write(const nrl_store_setup *setup, const tcp_address *a, int32_t port)
{
    void *foreign;
    secret_key secret;
    behind b = {.port = port};
    NRL_TRY(foreign_open(setup, a, &foreign));
    char *key = behind_key(setup);
    secret_prove(secret_of(setup, &secret), BEHIND_LABEL, &b.port, sizeof b.port, b.proof);
    nrl_status st = tcp_client_set(foreign, key, &b, sizeof b);
    tcp_client_close(foreign);
    secret_wipe(&secret, sizeof secret);
    free(key);
    return st;
}

static nrl_status behind_wait(const nrl_store_setup *setup, void *foreign, void **value, size_t *size)
{
    double deadline = clock_seconds() + setup->timeout_s;
    char *key = behind_key(setup);
    bool found = false;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && !found) {
        st = tcp_client_get(foreign, key, 0, &found, value, size);
        if (st == NRL_OK && setup->signal && *setup->signal) {
            if (found) free(*value);
            st = nrl_fail(NRL_ERR_STOPPED, "signal %d was received before rank 0 had a store", *setup->signal);
        } else if (st == NRL_OK && !found && clock_seconds() >= deadline) {
            st = nrl_fail(NRL_ERR_PEER, "rank 0 opened no store within %g s (launch.timeout_init)", setup->timeout_s);
        } else if (st == NRL_OK && !found) {
            clock_sleep(LOOK_S);
        }
    }
    free(key);
    return st;
}

/* Sets a->port to that of rank 0's own store. */
static nrl_status behind_read(const nrl_store_setup *setup, tcp_address *a)
{
    void *foreign, *value = NULL;
    secret_key secret;
    behind b;
    size_t size;
    NRL_TRY(foreign_open(setup, a, &foreign));
    nrl_status st = behind_wait(setup, foreign, &value, &size);
    tcp_client_close(foreign);
    if (st != NRL_OK) return st;
    bool proved = size == sizeof b;
    if (proved) memcpy(&b, value, sizeof b);
    proved = proved && secret_verify(secret_of(setup, &secret), BEHIND_LABEL, &b.port, sizeof b.port, b.proof);
    secret_wipe(&secret, sizeof secret);
    free(value);
    if (!proved)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the entry for rank 0's store in the store at %s is not proved by the job's secret\nhint: rank "
                        "0 has another secret, or another program writes to that store",
                        setup->address);
    a->port = b.port;
    return NRL_OK;
}

/* ---- opening ---- */

/* A server without a job, such as that of PyTorch, is accepted. */
static nrl_status check_job(void *client, const char *job)
{
    void *theirs = NULL;
    size_t size;
    bool found;
    NRL_TRY(tcp_client_get(client, STORE_JOB_KEY, 0, &found, &theirs, &size));
    if (!found) return NRL_OK;
    nrl_status st = NRL_OK;
    if (strcmp(theirs, job) != 0)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "the ranks' store belongs to job '%s', but this rank belongs to job '%s'\n"
                      "hint: two jobs share a port; give each its own",
                      (const char *)theirs, job);
    free(theirs);
    return st;
}

static nrl_status tcp_open(const void *options, const nrl_store_setup *setup, void **self)
{
    tcp_address a;
    secret_key secret;
    (void)options;
    NRL_TRY(address_read(setup->address, &a));
    nrl_status st = is_behind(setup) ? behind_read(setup, &a) : NRL_OK;
    if (st == NRL_OK) {
        const tcp_client_setup s = {.address = a.host,
                                    .port = a.port,
                                    .timeout_s = setup->timeout_s,
                                    .signal = setup->signal,
                                    .secret = secret_of(setup, &secret)};
        st = tcp_client_open(&s, self);
        secret_wipe(&secret, sizeof secret);
    }
    if (st == NRL_OK && setup->job && (st = check_job(*self, setup->job)) != NRL_OK) tcp_client_close(*self);
    free(a.host);
    return st;
}

/* ---- serving ---- */

typedef struct {
    tcp_server *server;
    char *address; /* the address that ranks open; the given one if another program serves there */
} held;

static void tcp_server_end(void *server)
{
    held *h = server;
    tcp_server_close(h->server);
    free(h->address);
    free(h);
}

static nrl_status tcp_serve(const void *options, const nrl_store_setup *setup, void **server)
{
    tcp_address a;
    secret_key secret;
    (void)options;
    NRL_TRY(address_read(setup->address, &a));
    held *h = mem_alloc(sizeof *h);
    const tcp_server_setup s = {.address = a.host,
                                .port = is_behind(setup) ? 0 : a.port,
                                .job = setup->job,
                                .secret = secret_of(setup, &secret),
                                .other_machines = setup->flags & NRL_STORE_OTHER_MACHINES};
    nrl_status st = tcp_server_open(&s, &h->server);
    secret_wipe(&secret, sizeof secret);
    if (st == NRL_OK && is_behind(setup)) {
        st = behind_write(setup, &a, tcp_server_port(h->server));
        h->address = mem_strdup(setup->address);
    } else if (st == NRL_OK) {
        h->address = mem_printf(strchr(a.host, ':') ? "[%s]:%d" : "%s:%d", a.host, (int)tcp_server_port(h->server));
    }
    free(a.host);
    if (st == NRL_OK)
        *server = h;
    else
        tcp_server_end(h);
    return st;
}

static const char *tcp_server_address(const void *server)
{
    return ((const held *)server)->address;
}

static int32_t tcp_server_count(void *server)
{
    return tcp_server_clients(((held *)server)->server);
}

static const nrl_store_plugin tcp = {
    NRL_PLUGIN_PLAIN(NRL_KIND_STORE, nrl_store_plugin, "tcp", "0.1.0",
                     "a server at HOST:PORT that speaks PyTorch's TCPStore protocol"),
    .probe = tcp_probe,
    .open = tcp_open,
    .close = tcp_client_close,
    .set = tcp_client_set,
    .get = tcp_client_get,
    .set_once = tcp_client_set_once,
    .remove = tcp_client_remove,
    .add = tcp_client_add,
    .all_there = tcp_client_all_there,
    .get_all = tcp_client_get_all,
    .serve = tcp_serve,
    .server_address = tcp_server_address,
    .server_clients = tcp_server_count,
    .server_close = tcp_server_end,
};
NRL_EXPORT(tcp)
