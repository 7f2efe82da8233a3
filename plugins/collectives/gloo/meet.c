/*
 * meet.c - how ranks find each other: each rank publishes where it listens and reads what the others
 * published, and of every two ranks one connects. [main] All listeners are open before anything is
 * published, and the kernel completes connections, so the order of ranks cannot cause a deadlock.
 */
#include "gloo.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TRIES = 3, TRY_AGAIN_MS = 200, LOBBY_MS = 100 };

static double left(double deadline)
{
    double s = deadline - engine_now();
    return s > 0 ? s : 0;
}

static nrl_status publish(gloo_engine *e, nrl_store *store, const struct sockaddr_storage *addresses)
{
    char host[WIRE_HOST_MAX + 1] = "", key[32];
    gethostname(host, sizeof host - 1);
    if (!*host) snprintf(host, sizeof host, "localhost");
    if (!e->dialect->blob) { /* Gloo counts the ranks of its host by these keys */
        snprintf(key, sizeof key, "rank_%d", e->rank);
        NRL_TRY(nrl_store_set(store, key, host, strlen(host)));
    }
    size_t size = wire_value_size(e->dialect, e->world, host) + (e->store ? PROOF_CHALLENGE : 0);
    uint8_t *value = malloc(size);
    if (!value) return nrl_fail(NRL_ERR_MEMORY, "no memory for %zu bytes of addresses", size);
    wire_value_put(e->dialect, e->rank, e->world, host, addresses, value);
    if (e->store) memcpy(value + size - PROOF_CHALLENGE, e->challenge, PROOF_CHALLENGE);
    snprintf(key, sizeof key, "%d", e->rank);
    nrl_status st = nrl_store_set(store, key, value, size);
    free(value);
    return st;
}

/* After the first missing rank: names all missing ranks. */
static void name_missing(gloo_engine *e, nrl_store *store, int32_t first, double timeout_s)
{
    char who[200], key[32], text[320];
    size_t n = (size_t)snprintf(who, sizeof who, "rank %d", first);
    snprintf(text, sizeof text, "%s", nrl_error_text());
    for (int32_t i = first + 1; i < e->world && n + 16 < sizeof who; i++) {
        void *value = NULL;
        size_t size;
        if (i == e->rank) continue;
        snprintf(key, sizeof key, "%d", i);
        if (nrl_store_get(store, key, 0, &value, &size)) n += (size_t)snprintf(who + n, sizeof who - n, ", rank %d", i);
        free(value);
    }
    nrl_fail(NRL_ERR_PEER, "%s did not join within %g s (%s)", who, timeout_s, text);
}

/* What a rank published: its addresses, and its challenge if connections are proved. */
typedef struct {
    wire_peer at;
    uint8_t challenge[PROOF_CHALLENGE];
} published_peer;

static const char *read_value(const gloo_engine *e, int32_t peer, const uint8_t *value, size_t size,
                              published_peer *out)
{
    if (e->store) {
        if (size < PROOF_CHALLENGE) return "a value without a challenge";
        size -= PROOF_CHALLENGE;
        memcpy(out->challenge, value + size, PROOF_CHALLENGE);
    }
    return wire_value_get(e->dialect, e->rank, peer, e->world, value, size, &out->at);
}

static nrl_status look_up(gloo_engine *e, nrl_store *store, int32_t peer, double deadline, double timeout_s,
                          published_peer *out)
{
    char key[32];
    void *value;
    size_t size;
    snprintf(key, sizeof key, "%d", peer);
    nrl_status st = nrl_store_get(store, key, left(deadline), &value, &size);
    if (st == NRL_ERR_PEER) name_missing(e, store, peer, timeout_s);
    if (st) return st;
    const char *wrong = read_value(e, peer, value, size, out);
    free(value);
    if (wrong)
        return nrl_fail(NRL_ERR_CONFIG, "rank %d published %s (%zu bytes); this is rank %d of %d with dialect %s", peer,
                        wrong, size, e->rank, e->world, e->dialect->name);
    return NRL_OK;
}

/* ---- connecting ---- */

/* One attempt; *fd is -1 if it was refused or took too long. */
static int try_connect(const struct sockaddr_storage *to, double deadline, int *fd)
{
    int error = 0, s = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof error;
    *fd = -1;
    if (s < 0) return errno;
    if (connect(s, (const struct sockaddr *)to, address_length(to)) && errno != EINPROGRESS) {
        error = errno;
    } else {
        struct pollfd p = {.fd = s, .events = POLLOUT};
        double seconds = left(deadline);
        if (poll(&p, 1, seconds > 1e6 ? 1000000000 : (int)(seconds * 1e3) + 1) <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &size))
            error = errno;
    }
    if (error) {
        close(s);
        return error;
    }
    *fd = s;
    return 0;
}

static nrl_status unreachable(int32_t peer, const wire_peer *at, int error)
{
    char text[64];
    address_text(&at->address, text, sizeof text);
    return nrl_fail(NRL_ERR_PEER, "cannot connect to rank %d at %s: %s", peer, text, strerror(error));
}

static nrl_status connect_to(gloo_engine *e, listener *l, int32_t peer, const published_peer *to, double deadline)
{
    uint8_t hello[PROOF_HELLO], answer[NRL_PROOF_SIZE];
    int fd = -1, error = 0;
    size_t size = PROOF_HELLO;
    if (e->store)
        NRL_TRY(proof_hello(e, peer, to->challenge, hello, answer));
    else
        size = wire_handshake_put(e->dialect, to->at.number, hello);
    for (int i = 0; i < TRIES && fd < 0; i++) {
        if (i) poll(NULL, 0, TRY_AGAIN_MS);
        error = try_connect(&to->at.address, deadline, &fd);
    }
    if (error) return unreachable(peer, &to->at, error);
    if (size && send(fd, hello, size, MSG_NOSIGNAL) != (ssize_t)size) {
        error = errno ? errno : EIO;
        close(fd);
        return unreachable(peer, &to->at, error);
    }
    if (!e->store) return pair_open(&e->pairs[peer], fd);
    listener_expect(l, peer, fd, answer);
    return NRL_OK;
}

/* Both sides compare the two published addresses; two groups in one process compare their numbers. */
static bool connects(const struct sockaddr_storage *mine, const wire_peer *theirs, int32_t me, int32_t peer)
{
    int order = wire_compare(mine, &theirs->address);
    return order ? order > 0 : me > peer;
}

static nrl_status meet_one(gloo_engine *e, listener *l, int32_t peer, const published_peer *to,
                           const struct sockaddr_storage *mine, double deadline)
{
    const wire_peer *at = &to->at;
    if (at->address.ss_family != mine->ss_family)
        return nrl_fail(NRL_ERR_CONFIG,
                        "rank %d listens at an %s address and rank %d at the other kind\nhint: set family", peer,
                        at->address.ss_family == AF_INET ? "IPv4" : "IPv6", e->rank);
    if (!connects(mine, at, e->rank, peer)) {
        e->pairs[peer].state = PAIR_AWAITED;
        return NRL_OK;
    }
    listener_unlisten(l, peer);
    return connect_to(e, l, peer, to, deadline);
}

static bool anybody_awaited(const gloo_engine *e, const bool *late)
{
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].state == PAIR_AWAITED && !(late && late[i])) return true;
    return false;
}

/* Waits for the ranks that connect to this one; ranks that number by rank may connect as late as at the first call. */
static nrl_status receive_all(gloo_engine *e, listener *l, const bool *late, double deadline, double timeout_s)
{
    char who[200];
    while (anybody_awaited(e, late)) {
        if (left(deadline) <= 0) {
            listener_missing(e, who, sizeof who);
            return nrl_fail(NRL_ERR_PEER, "%s did not connect within %g s", who, timeout_s);
        }
        NRL_TRY(listener_turn(l, LOBBY_MS));
    }
    return NRL_OK;
}

static nrl_status meet_all(gloo_engine *e, nrl_store *store, listener *l, const struct sockaddr_storage *published,
                           bool *late, double timeout_s)
{
    double deadline = engine_now() + timeout_s;
    bool each = e->dialect->listener_per_peer;
    NRL_TRY(publish(e, store, published));
    for (int32_t i = 0; i < e->world; i++) {
        published_peer peer;
        if (i == e->rank) continue;
        NRL_TRY(look_up(e, store, i, deadline, timeout_s, &peer));
        late[i] = peer.at.no_numbers && !e->store;
        NRL_TRY(meet_one(e, l, i, &peer, each ? &published[i] : published, deadline));
    }
    return receive_all(e, l, late, deadline, timeout_s);
}

nrl_status meet(gloo_engine *e, nrl_store *store, double timeout_s)
{
    nrl_status st = NRL_OK;
    char where[96];
    struct sockaddr_storage at, *published = calloc((size_t)e->world, sizeof *published);
    bool *late = calloc((size_t)e->world, sizeof *late);
    listener *l = NULL;
    if (!published || !late) {
        st = nrl_fail(NRL_ERR_MEMORY, "no memory for %d addresses", e->world);
        goto done;
    }
    NRL_TRY_DONE(address_find(&e->options, &at, where, sizeof where));
    snprintf(e->text, sizeof e->text, "gloo, %s, %s", e->dialect->name, where);
    if (e->world == 1) goto done;
    NRL_TRY_DONE(proof_open(e, store));
    NRL_TRY_DONE(listener_open(e, &at, published, &l));
    NRL_TRY_DONE(meet_all(e, store, l, published, late, timeout_s));
    if (anybody_awaited(e, NULL)) {
        e->late = l;
        l = NULL;
    }
done:
    listener_close(l);
    e->store = NULL;
    free(late);
    free(published);
    return st;
}
