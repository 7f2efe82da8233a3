/*
 * socket.c - non-blocking sockets and poll, so that every wait is bounded.
 */
#include "socket.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

void socket_set_options(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* 1 ready, 0 timed out, -1 failed */
static int wait_for(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - clock_seconds();
        if (left < 0) left = 0;
        if (left > 3600) left = 3600;
        struct pollfd p = {fd, events, 0};
        int n = poll(&p, 1, (int)(left * 1000) + (left > 0));
        if (n > 0) return 1;
        if (n < 0 && errno != EINTR) return -1;
        if (clock_seconds() >= deadline) return 0;
    }
}

static nrl_status resolve(const char *address, int32_t port, int flags, struct addrinfo **list)
{
    char service[16];
    snprintf(service, sizeof service, "%d", (int)port);
    struct addrinfo want = {.ai_flags = flags | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int bad = getaddrinfo(address, service, &want, list);
    if (!bad) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "address '%s': %s", address ? address : "*",
                    bad == EAI_SYSTEM ? strerror(errno) : gai_strerror(bad));
}

/* errno of the attempt, 0 = connected */
static int connect_one(const struct addrinfo *a, double deadline, int *out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    int error = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (error == EINPROGRESS) {
        socklen_t n = sizeof error;
        int ready = wait_for(fd, POLLOUT, deadline);
        if (ready > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n)) error = errno;
        if (ready <= 0) error = ready ? errno : ETIMEDOUT;
    }
    if (error) {
        close(fd);
        return error;
    }
    socket_set_options(fd);
    *out = fd;
    return 0;
}

/* A connection can by chance be connected to itself: a client that connects to a port in the
 * ephemeral range on which nobody listens may get that port as its own. */
static bool is_own_end(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n = sizeof here, m = sizeof there;
    return !getsockname(fd, (struct sockaddr *)&here, &n) && !getpeername(fd, (struct sockaddr *)&there, &m) &&
           n == m && !memcmp(&here, &there, n);
}

nrl_status socket_connect(const char *address, int32_t port, double deadline, int *fd)
{
    struct addrinfo *list;
    NRL_TRY(resolve(address, port, 0, &list));
    int error = EADDRNOTAVAIL, left = 0;
    for (struct addrinfo *a = list; a; a = a->ai_next)
        left++;
    for (struct addrinfo *a = list; a && error; a = a->ai_next, left--) {
        double now = clock_seconds();
        error = connect_one(a, now + (deadline - now) / left, fd);
        if (!error && is_own_end(*fd)) {
            close(*fd);
            error = ECONNREFUSED;
        }
    }
    freeaddrinfo(list);
    if (!error) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "%s port %d: %s", address, (int)port, strerror(error));
}

/* ---- listening ---- */

/* An address of any family that sockets here have. */
typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} socket_address;

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool socket_is_loopback_name(const char *address)
{
    struct addrinfo want = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *list;
    if (!strcmp(address, "localhost")) return false;
    if (!getaddrinfo(address, NULL, &want, &list)) {
        freeaddrinfo(list);
        return false;
    }
    want.ai_flags = 0;
    if (getaddrinfo(address, NULL, &want, &list)) return false;
    bool all = true;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        all &= is_loopback(a->ai_addr);
    freeaddrinfo(list);
    return all;
}

static int listen_at(const struct addrinfo *a, int *out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0;
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        return error;
    }
    *out = fd;
    return 0;
}

static int listen_everywhere(int32_t port, int *fd)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct addrinfo a = {.ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&v6, .ai_addrlen = sizeof v6};
    int error = listen_at(&a, fd);
    if (!error || error == EADDRINUSE || error == EACCES) return error;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a = (struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&v4, .ai_addrlen = sizeof v4};
    return listen_at(&a, fd);
}

/* Listens at the first address that belongs to this machine; IPv4 before IPv6, because clients that
 * cannot use all addresses of a name use IPv4. */
static int listen_at_any(const struct addrinfo *list, int32_t port, int *fd)
{
    static const int families[] = {AF_INET, AF_INET6};
    int error = EADDRNOTAVAIL;
    for (int i = 0; i < 2; i++)
        for (const struct addrinfo *a = list; a && error == EADDRNOTAVAIL; a = a->ai_next)
            if (a->ai_family == families[i]) error = listen_at(a, fd);
    return error == EADDRNOTAVAIL ? listen_everywhere(port, fd) : error;
}

static int32_t port_of(const socket_address *s)
{
    return ntohs(s->any.sa_family == AF_INET ? s->v4.sin_port : s->v6.sin6_port);
}

static int32_t own_port(int fd)
{
    socket_address s = {.room = {0}};
    socklen_t n = sizeof s;
    return getsockname(fd, &s.any, &n) ? 0 : port_of(&s);
}

static bool is_everywhere(const socket_address *s)
{
    return s->any.sa_family == AF_INET ? !s->v4.sin_addr.s_addr : IN6_IS_ADDR_UNSPECIFIED(&s->v6.sin6_addr);
}

bool socket_own_name(int fd, char text[SOCKET_NAME])
{
    socket_address s = {.room = {0}};
    socklen_t n = sizeof s;
    char host[SOCKET_NAME - 32];
    if (getsockname(fd, &s.any, &n) || is_loopback(&s.any)) return false;
    if (is_everywhere(&s))
        snprintf(text, SOCKET_NAME, "all interfaces, port %d,", (int)port_of(&s));
    else if (getnameinfo(&s.any, n, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        *text = 0;
    else
        snprintf(text, SOCKET_NAME, "%s port %d", host, (int)port_of(&s));
    return true;
}

void socket_peer_name(int fd, char text[SOCKET_NAME])
{
    struct sockaddr_storage s = {0};
    socklen_t n = sizeof s;
    if (getpeername(fd, (struct sockaddr *)&s, &n) ||
        getnameinfo((struct sockaddr *)&s, n, text, SOCKET_NAME, NULL, 0, NI_NUMERICHOST))
        snprintf(text, SOCKET_NAME, "a connection");
}

nrl_status socket_listen(const char *address, int32_t port, int *fd, int32_t *bound)
{
    struct addrinfo *list = NULL;
    int error;
    if (address) NRL_TRY(resolve(address, port, AI_PASSIVE, &list));
    error = list ? listen_at_any(list, port, fd) : listen_everywhere(port, fd);
    if (list) freeaddrinfo(list);
    if (error == EADDRINUSE)
        return nrl_fail(NRL_ERR_CONFIG,
                        "port %d is in use on this machine, but the ranks' store needs it\nhint: another run may use "
                        "it; choose another port",
                        (int)port);
    if (error)
        return nrl_fail(error == EACCES ? NRL_ERR_CONFIG : NRL_ERR_IO, "listening on port %d: %s", (int)port,
                        strerror(error));
    *bound = own_port(*fd);
    return NRL_OK;
}

/* ---- transfers ---- */

nrl_status socket_send(int fd, const void *bytes, size_t size, double deadline)
{
    for (const char *at = bytes; size;) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            int ready = wait_for(fd, POLLOUT, deadline);
            if (!ready) return nrl_fail(NRL_ERR_PEER, "the store does not accept data");
            if (ready < 0) return nrl_fail(NRL_ERR_PEER, "the store: %s", strerror(errno));
        } else if (errno != EINTR) {
            return nrl_fail(NRL_ERR_PEER, "the connection to the store was lost: %s", strerror(errno));
        }
    }
    return NRL_OK;
}

nrl_status socket_receive(int fd, void *bytes, size_t size, double deadline, bool *late)
{
    char *at = bytes, *end = at + size;
    if (late) *late = false;
    while (at < end) {
        ssize_t n = recv(fd, at, (size_t)(end - at), 0);
        if (n > 0) {
            at += n;
        } else if (!n) {
            return nrl_fail(NRL_ERR_PEER, "the store closed the connection");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int ready = wait_for(fd, POLLIN, deadline);
            if (ready < 0) return nrl_fail(NRL_ERR_PEER, "the store: %s", strerror(errno));
            if (!ready && late && at == bytes) {
                *late = true;
                return NRL_OK;
            }
            if (!ready) return nrl_fail(NRL_ERR_PEER, "the store does not respond");
        } else if (errno != EINTR) {
            return nrl_fail(NRL_ERR_PEER, "the connection to the store was lost: %s", strerror(errno));
        }
    }
    return NRL_OK;
}
