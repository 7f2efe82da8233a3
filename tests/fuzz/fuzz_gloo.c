/*
 * fuzz_gloo.c - any bytes from a peer of the gloo plugin while calls of every kind are in flight: a
 * header is valid or the peer is lost; payload is only written to a matching receive. The same
 * bytes are used as the data that a rank publishes. The first byte selects the dialect, the second
 * the calls.
 */
#include "../../plugins/collectives/gloo/gloo.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { N_ELEMENTS = 9, N_CALLS = 6, BYTES_MAX = 60000, TURNS = 200 };

typedef nrl_status (*call)(void *self, const nrl_comm_args *a, nrl_request **request);

/* What a rank published is read with as many ranks as the bytes say, 2 to 9. */
static void read_value(const uint8_t *bytes, size_t size)
{
    wire_peer peer;
    int32_t world = 2 + bytes[0] % 8;
    for (int d = 0; d < WIRE_DIALECTS; d++)
        (void)wire_value_get(&wire_dialects[d], 0, 1, world, bytes, size, &peer);
}

static gloo_group *pair_up(gloo_engine *e)
{
    gloo_group *g = calloc(1, sizeof *g + 2 * sizeof *g->ranks);
    g->engine = e;
    g->size = 2;
    g->ranks[1] = 1;
    e->groups = g;
    return g;
}

static void start_calls(gloo_group *g, float *in, float *out, nrl_request **requests, unsigned which)
{
    static const call calls[N_CALLS] = {gloo_all_reduce, gloo_broadcast, gloo_all_gather,
                                        gloo_reduce,     gloo_barrier,   gloo_recv};
    for (unsigned i = 0; i < N_CALLS; i++) {
        const nrl_comm_args a = {.size = sizeof a,
                                 .dtype = which & 1 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32,
                                 .reduce = NRL_REDUCE_OP_SUM,
                                 .peer = calls[i] == gloo_recv || calls[i] == gloo_broadcast,
                                 .send = in,
                                 .receive = out,
                                 .count = N_ELEMENTS,
                                 .tag = 7};
        requests[i] = NULL;
        if (which >> (i + 1) & 1) (void)calls[i](g, &a, &requests[i]);
    }
}

/* The reader's whole way, as it runs under the lock. */
static void deliver(gloo_engine *e, int fd, const uint8_t *bytes, size_t size)
{
    size_t sent = 0;
    for (int turn = 0; turn < TURNS && (sent < size || turn < 2); turn++) {
        size_t some = size - sent < 4096 ? size - sent : 4096;
        ssize_t n = some ? send(fd, bytes + sent, some, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (n > 0) sent += (size_t)n;
        if (e->pairs[1].state == PAIR_OPEN) pair_read(&e->pairs[1]);
        engine_settle(e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    /* Each result has memory of its own size, so that the sanitizer sees what goes beyond. */
    float in[2 * N_ELEMENTS] = {0}, *out = malloc(2 * N_ELEMENTS * sizeof *out);
    nrl_request *requests[N_CALLS];
    gloo_options options = {.interface = "", .address = ""};
    gloo_engine *e;
    int fds[2];
    if (size < 2 || size > BYTES_MAX || socketpair(AF_UNIX, SOCK_STREAM, 0, fds)) {
        free(out);
        return 0;
    }
    options.dialect = bytes[0] % WIRE_DIALECTS;
    options.peers = bytes[0] >> 7;
    read_value(bytes, size);
    NRL_ASSERT(engine_create(&options, 0, 2, &e), ==, NRL_OK);
    gloo_group *g = pair_up(e);
    NRL_ASSERT(pair_open(&e->pairs[1], fds[0]), ==, NRL_OK);
    start_calls(g, in, out, requests, bytes[1]);
    deliver(e, fds[1], bytes + 2, size - 2);
    close(fds[1]);
    engine_abort(e, "over");
    for (int i = 0; i < N_CALLS; i++)
        if (requests[i]) request_give_back(requests[i]);
    engine_destroy(e);
    free(out);
    return 0;
}
