/*
 * tcp.h - the two parts of tcp.c: a client, and the server that rank 0 or a launcher runs. They use
 * the protocol of torch.distributed's TCPStore (torch 2.15), so the server may also be that of
 * PyTorch or torchrun.
 *
 * Each call of a client has a connection of its own (idle ones are kept), so a waiting get delays
 * no other call. Errors: NRL_ERR_PEER if the server is gone, silent or refuses.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H
#include "base/secret.h"
#include <nrl/store.h>

/* ---- client.c ---- */

typedef struct {
    const char *address;
    int32_t port;
    double timeout_s;
    const volatile int *signal; /* a value other than 0 ends the attempts with NRL_ERR_STOPPED; NULL = no signal is
                                 * checked */
    const secret_key *secret;   /* copied; the server must have the same secret. NULL = none */
} tcp_client_setup;

/* Connects, and retries for timeout_s because the server may start late. NRL_ERR_CONFIG at once if
 * only one side has a secret or the secrets differ. The members of the table are called with *self. */
nrl_status tcp_client_open(const tcp_client_setup *setup, void **self);
void tcp_client_close(void *self);
nrl_status tcp_client_set(void *self, const char *key, const void *value, size_t size);
nrl_status tcp_client_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size);
nrl_status tcp_client_set_once(void *self, const char *key, const char *text, char **now);
nrl_status tcp_client_remove(void *self, const char *key);
nrl_status tcp_client_add(void *self, const char *key, int64_t amount, int64_t *result);
nrl_status tcp_client_all_there(void *self, const char *const *keys, size_t n, bool *all);
nrl_status tcp_client_get_all(void *self, const char *const *keys, size_t n, char **values);

/* ---- server.c: a thread of this process ---- */

typedef struct tcp_server tcp_server;

typedef struct {
    const char *address;      /* as for socket_listen; NULL = all interfaces */
    int32_t port;             /* 0 chooses a free one */
    const char *job;          /* "" = a job without an id; NULL = clients of any job */
    const secret_key *secret; /* copied; every client must have the same secret. NULL = no secret, and a warning if
                               * the address is not loopback */
    bool other_machines;      /* some clients run on other machines */
} tcp_server_setup;

nrl_status tcp_server_open(const tcp_server_setup *setup, tcp_server **out);
int32_t tcp_server_port(const tcp_server *s);
int32_t tcp_server_clients(tcp_server *s); /* open connections that sent a request */
void tcp_server_close(tcp_server *s);      /* accepts NULL; clients see the connection close */

#endif
