/*
 * http_host.h - which requests name this machine, for the servers of nrl (nrl serve, nrl watch).
 */
#ifndef CLI_COMMON_HTTP_HOST_H
#define CLI_COMMON_HTTP_HOST_H
#include <stdbool.h>

/* Whether the header Host of a request names the loopback interface: localhost, 127.0.0.0/8 or [::1], with a port or
 * without. A page whose own name resolves to this machine (DNS rebinding) sends that name. NULL: no such header. */
bool http_host_is_loopback(const char *host);

#endif
