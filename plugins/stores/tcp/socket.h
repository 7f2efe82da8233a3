/*
 * socket.h - TCP in the few forms that the store needs: whole transfers before a deadline. Deadlines
 * are points of clock_seconds. Nothing here raises SIGPIPE, and no descriptor survives exec. [any]
 */
#ifndef TCP_SOCKET_H
#define TCP_SOCKET_H
#include <nrl/status.h>
#include <stdbool.h>

/* One try on each address that the name has, IPv4 or IPv6. NRL_ERR_PEER says why none answered. */
nrl_status socket_connect(const char *address, int32_t port, double deadline, int *fd);
/* A non-blocking listener at the first address of the name that this machine has; on all interfaces where it has
 * none of them (its name for others is a router's), and for NULL. Port 0 chooses a free one. NRL_ERR_CONFIG where the
 * port is taken or not allowed. */
nrl_status socket_listen(const char *address, int32_t port, int *fd, int32_t *bound);
nrl_status socket_send(int fd, const void *bytes, size_t size, double deadline);
/* *late (may be NULL) tells a time-out, with NRL_OK and nothing read, from a failure; without it, or
 * in the middle of the bytes, a time-out is NRL_ERR_PEER. */
nrl_status socket_receive(int fd, void *bytes, size_t size, double deadline, bool *late);
/* A name, no number and not "localhost", that stands for loopback here. */
bool socket_is_loopback_name(const char *address);

enum { SOCKET_NAME = 96 };
/* "10.0.0.1 port 29500", "all interfaces, port 29500"; false: a loopback address. */
bool socket_own_name(int fd, char text[SOCKET_NAME]);
void socket_peer_name(int fd, char text[SOCKET_NAME]); /* "10.0.0.1" */
void socket_set_options(int fd);                       /* no delay, keep-alive */

#endif
