/*
 * address.c - the address that this rank listens at and publishes: the option `address`; else the
 * address of `interface`; else of the interface in the environment variable GLOO_SOCKET_IFNAME, which
 * PyTorch also reads; else the address of the host's name if it can be bound; else 127.0.0.1.
 */
#include "gloo.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

socklen_t address_length(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void address_text(const struct sockaddr_storage *a, char *out, size_t size)
{
    if (getnameinfo((const struct sockaddr *)a, address_length(a), out, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        snprintf(out, size, "?");
}

static bool wanted(const gloo_options *o, int family)
{
    if (family == AF_INET) return o->family != FAMILY_IPV6;
    return family == AF_INET6 && o->family != FAMILY_IPV4;
}

static const char *family_name(const gloo_options *o)
{
    return o->family == FAMILY_IPV4 ? "IPv4 " : o->family == FAMILY_IPV6 ? "IPv6 " : "";
}

static bool can_bind(const struct sockaddr_storage *a)
{
    int fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool ok = bind(fd, (const struct sockaddr *)a, address_length(a)) == 0;
    close(fd);
    return ok;
}

/* The first address of a host name that can be bound on this machine. */
static bool from_name(const gloo_options *o, const char *name, struct sockaddr_storage *out)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list, *i;
    bool found = false;
    if (getaddrinfo(name, NULL, &hints, &list)) return false;
    for (i = list; i && !found; i = i->ai_next) {
        if (!wanted(o, i->ai_family)) continue;
        memset(out, 0, sizeof *out);
        memcpy(out, i->ai_addr, i->ai_addrlen);
        found = can_bind(out);
    }
    freeaddrinfo(list);
    return found;
}

/* IPv4 before IPv6, and link-local addresses last. */
static int preference(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) return 3;
    const struct sockaddr_in6 *six = (const void *)a;
    return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 1 : 2;
}

static bool from_interface(const gloo_options *o, const char *name, struct sockaddr_storage *out)
{
    struct ifaddrs *list, *i;
    int best = 0;
    if (getifaddrs(&list)) return false;
    for (i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || strcmp(i->ifa_name, name) != 0) continue;
        if (!wanted(o, i->ifa_addr->sa_family) || preference(i->ifa_addr) <= best) continue;
        best = preference(i->ifa_addr);
        memset(out, 0, sizeof *out);
        memcpy(out, i->ifa_addr, best == 3 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    }
    freeifaddrs(list);
    return best > 0;
}

static nrl_status no_interface(const gloo_options *o, const char *name, const char *who)
{
    char known[256] = "";
    size_t n = 0;
    struct if_nameindex *list = if_nameindex();
    for (struct if_nameindex *i = list; i && i->if_name && n + IF_NAMESIZE + 2 < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", i->if_name);
    if_freenameindex(list);
    return nrl_fail(NRL_ERR_CONFIG, "%s: no interface '%s' with an %saddress; expected one of: %s", who, name,
                    family_name(o), known);
}

/* The name of the interface that has the address, for the plan. */
static void interface_of(const struct sockaddr_storage *a, char *out, size_t size)
{
    struct ifaddrs *list, *i;
    char mine[64], its[64];
    struct sockaddr_storage other;
    *out = 0;
    if (getifaddrs(&list)) return;
    address_text(a, mine, sizeof mine);
    for (i = list; i && !*out; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != a->ss_family) continue;
        memcpy(&other, i->ifa_addr, address_length(a));
        other.ss_family = a->ss_family;
        address_text(&other, its, sizeof its);
        if (strcmp(mine, its) == 0) snprintf(out, size, "%s ", i->ifa_name);
    }
    freeifaddrs(list);
}

static nrl_status choose(const gloo_options *o, struct sockaddr_storage *out)
{
    char host[WIRE_HOST_MAX + 1] = "";
    const char *environment = getenv("GLOO_SOCKET_IFNAME");
    if (o->address && *o->address) {
        if (from_name(o, o->address, out)) return NRL_OK;
        return nrl_fail(NRL_ERR_CONFIG, "address: '%s' is not an %saddress of this machine", o->address,
                        family_name(o));
    }
    if (o->interface && *o->interface) {
        if (from_interface(o, o->interface, out)) return NRL_OK;
        return no_interface(o, o->interface, "interface");
    }
    if (environment && *environment) {
        if (from_interface(o, environment, out)) return NRL_OK;
        return no_interface(o, environment, "GLOO_SOCKET_IFNAME");
    }
    if (gethostname(host, sizeof host - 1) == 0 && from_name(o, host, out)) return NRL_OK;
    if (from_name(o, o->family == FAMILY_IPV6 ? "::1" : "127.0.0.1", out)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot find an %saddress to listen at\nhint: set address or interface",
                    family_name(o));
}

nrl_status address_find(const gloo_options *o, struct sockaddr_storage *out, char *text, size_t size)
{
    char interface[IF_NAMESIZE + 2], address[64];
    NRL_TRY(choose(o, out));
    if (out->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)out)->sin6_port = 0;
    else
        ((struct sockaddr_in *)out)->sin_port = 0;
    interface_of(out, interface, sizeof interface);
    address_text(out, address, sizeof address);
    snprintf(text, size, "%s%s", interface, address);
    return NRL_OK;
}
