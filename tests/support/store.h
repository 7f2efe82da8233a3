/*
 * store.h - stores for tests with several ranks: opens $NRL_PLUGIN_PATH/stores/NAME.so directly.
 */
#ifndef SUPPORT_STORE_H
#define SUPPORT_STORE_H
#include "mesh/store.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline store_kind test_store_kind(const char *name)
{
    const char *folder = getenv("NRL_PLUGIN_PATH");
    char path[4096];
    snprintf(path, sizeof path, "%s/stores/%s.so", folder ? folder : ".", name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const nrl_plugin *(*entry)(void) = NULL;
    if (library) *(void **)&entry = dlsym(library, "nrl_plugin_entry");
    if (!entry) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        abort();
    }
    return (store_kind){(const nrl_store_plugin *)(const void *)entry(), NULL};
}

static inline nrl_status test_store_open(const char *address, const secret_key *secret, double timeout_s,
                                         nrl_store **out)
{
    const store_kind kind = test_store_kind(*address == '/' ? "folder" : "tcp");
    return store_open(&kind, &(store_setup){.address = address, .secret = secret, .timeout_s = timeout_s}, out);
}

static inline nrl_status test_store_connect(int32_t port, double timeout_s, nrl_store **out)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)port);
    return test_store_open(address, NULL, timeout_s, out);
}

/* Serves any job; port 0 chooses a free port. */
static inline nrl_status test_store_serve(int32_t port, const secret_key *secret, store_server **out)
{
    const store_kind kind = test_store_kind("tcp");
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)port);
    return store_serve(&kind, &(store_setup){.address = address, .secret = secret}, out);
}

static inline int32_t test_store_port(const store_server *s)
{
    return (int32_t)strtol(strrchr(store_server_address(s), ':') + 1, NULL, 10);
}

/* A port that is in use until *fd is closed. */
static inline int32_t test_taken_port(int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(*fd, (struct sockaddr *)&a, n) || listen(*fd, 1) || getsockname(*fd, (struct sockaddr *)&a, &n)) abort();
    return ntohs(a.sin_port);
}

#endif
