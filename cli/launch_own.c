/*
 * launch_own.c - finds this machine in a list of machines.
 */
#include "cli/launch_nodes.h"
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static bool same_address(const struct sockaddr *x, const struct sockaddr *y)
{
    if (!x || !y || x->sa_family != y->sa_family) return false;
    if (x->sa_family == AF_INET) {
        const struct sockaddr_in *p = (const void *)x, *q = (const void *)y;
        return p->sin_addr.s_addr == q->sin_addr.s_addr;
    }
    if (x->sa_family != AF_INET6) return false;
    const struct sockaddr_in6 *p = (const void *)x, *q = (const void *)y;
    return !memcmp(&p->sin6_addr, &q->sin6_addr, sizeof p->sin6_addr);
}

/* All of 127.0.0.0/8 is this machine, although the interface has only one of these addresses. */
static bool is_loopback(const struct sockaddr *x)
{
    const struct sockaddr_in *p = (const void *)x;
    return x->sa_family == AF_INET && ntohl(p->sin_addr.s_addr) >> 24 == 127;
}

static bool has_interface(const struct ifaddrs *interfaces, const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;
    bool here = false;
    if (getaddrinfo(address, NULL, &hints, &found)) return false;
    for (at = found; at && !here; at = at->ai_next) {
        here = is_loopback(at->ai_addr);
        for (const struct ifaddrs *i = interfaces; i && !here; i = i->ifa_next)
            here = same_address(i->ifa_addr, at->ai_addr);
    }
    freeaddrinfo(found);
    return here;
}

/* "gpu1" and "gpu1.cluster" name the same machine. */
static bool is_host_name(const char *own, const char *address)
{
    size_t n = strcspn(own, "."), m = strcspn(address, ".");
    if (!strcmp(own, address)) return true;
    return n == m && !strncmp(own, address, n) && (!own[n] || !address[m]);
}

nrl_status launch_nodes_own(const launch_nodes *nodes, size_t *own)
{
    char name[256] = "";
    struct ifaddrs *interfaces = NULL;
    size_t found = 0;
    if (gethostname(name, sizeof name - 1)) *name = 0;
    if (getifaddrs(&interfaces)) interfaces = NULL;
    for (size_t i = 0; i < nodes->n; i++) {
        const char *address = nodes->list[i].address;
        if (!is_host_name(name, address) && !has_interface(interfaces, address)) continue;
        if (!found++) *own = i;
    }
    if (interfaces) freeifaddrs(interfaces);
    if (found == 1) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s of the %zu nodes %s this machine (%s)\nhint: set --node-rank K, from 0",
                    found ? "several" : "none", nodes->n, found ? "are" : "is", name);
}
