/*
 * socket.h - the few TCP functions that the store needs: complete transfers with a deadline.
 * Deadlines are values of clock_seconds. Nothing here raises SIGPIPE, and no descriptor survives
 * exec. [any]
 */
#ifndef TCP_SOCKET_H
#define TCP_SOCKET_H
#include <nrl/status.h>
#include <stdbool.h>

/* Tries each address of the name once, IPv4 or IPv6. NRL_ERR_PEER gives the reasons if none
 * answers. */
nrl_status socket_connect(const char *address, int32_t port, double deadline, int *fd);
/* A non-blocking listener at the first address of the name that belongs to this machine. It listens
 * on all interfaces if none does (the name may be that of a router), or if `address` is NULL. Port
 * 0 chooses a free port. NRL_ERR_CONFIG if the port is in use or not permitted. */
nrl_status socket_listen(const char *address, int32_t port, int *fd, int32_t *bound);
nrl_status socket_send(int fd, const void *bytes, size_t size, double deadline);
/* *late (may be NULL) is set if the deadline passes before the first byte; the result is then
 * NRL_OK. Without `late`, or after the first byte, a timeout is NRL_ERR_PEER. */
nrl_status socket_receive(int fd, void *bytes, size_t size, double deadline, bool *late);
/* A name, neither a number nor "localhost", that resolves to loopback on this machine. */
bool socket_is_loopback_name(const char *address);

enum { SOCKET_NAME = 96 };
/* "10.0.0.1 port 29500", "all interfaces, port 29500"; false for a loopback address. */
bool socket_own_name(int fd, char text[SOCKET_NAME]);
void socket_peer_name(int fd, char text[SOCKET_NAME]); /* "10.0.0.1" */
void socket_set_options(int fd); /* no delay, keep-alive, retransmissions at a constant interval */

#endif
