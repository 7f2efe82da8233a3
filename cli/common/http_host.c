/*
 * http_host.c - see http_host.h.
 */
#include "cli/common/http_host.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

bool http_host_is_loopback(const char *host)
{
    char name[INET_ADDRSTRLEN] = {0};
    struct in_addr v4;
    if (!host) return false;
    const char *colon = strrchr(host, ':');
    const bool has_port = colon && !colon[1 + strspn(colon + 1, "0123456789")]; /* not so within [::1] */
    const size_t n = has_port ? (size_t)(colon - host) : strlen(host);
    if (n >= sizeof name) return false;
    memcpy(name, host, n);
    return !strcasecmp(name, "localhost") || !strcmp(name, "[::1]") ||
           (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}
