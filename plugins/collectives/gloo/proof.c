/*
 * proof.c - how both sides of a connection prove that they are ranks of the job, if the job has a
 * secret.
 *
 * Each rank publishes a challenge with its address. The connecting rank sends its rank, a nonce and a
 * proof over ranks, challenge and nonce; the listening rank answers with its own proof over the same,
 * and only then does the connection become a pair. A challenge is valid for one meeting, in which each
 * rank is accepted once, so a recorded hello is useless. Gloo's handshake is not sent then: such
 * connections are an extension of nrl.
 */
#include "gloo.h"
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#define CONNECT_LABEL "gloo connects"
#define ACCEPT_LABEL "gloo accepts"

/* The proved data; without padding. */
typedef struct {
    char label[16];
    int32_t from, to; /* the connecting rank, the listening rank */
    uint8_t challenge[PROOF_CHALLENGE], nonce[PROOF_CHALLENGE];
} statement;

static statement state_it(const char *label, int32_t from, int32_t to, const uint8_t *challenge, const uint8_t *nonce)
{
    statement s = {.from = from, .to = to};
    snprintf(s.label, sizeof s.label, "%s", label);
    memcpy(s.challenge, challenge, sizeof s.challenge);
    memcpy(s.nonce, nonce, sizeof s.nonce);
    return s;
}

static nrl_status draw(uint8_t bytes[PROOF_CHALLENGE])
{
    if (getrandom(bytes, PROOF_CHALLENGE, 0) == PROOF_CHALLENGE) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "cannot read random bytes: %s", strerror(errno));
}

nrl_status proof_open(gloo_engine *e, const nrl_store *store)
{
    uint8_t unused[NRL_PROOF_SIZE];
    if (!nrl_store_prove(store, "", 0, unused)) return NRL_OK;
    if (e->options.peers == PEERS_GLOO)
        return nrl_fail(NRL_ERR_CONFIG, "peers: gloo admits ranks that cannot prove the job's secret; expected a job "
                                        "without a secret, or peers: nrl");
    e->store = store;
    return draw(e->challenge);
}

nrl_status proof_hello(const gloo_engine *e, int32_t to, const uint8_t challenge[PROOF_CHALLENGE],
                       uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE])
{
    uint8_t *nonce = hello + sizeof(int64_t);
    const int64_t rank = e->rank;
    memcpy(hello, &rank, sizeof rank);
    NRL_TRY(draw(nonce));
    statement s = state_it(CONNECT_LABEL, e->rank, to, challenge, nonce);
    nrl_store_prove(e->store, &s, sizeof s, nonce + PROOF_CHALLENGE);
    s = state_it(ACCEPT_LABEL, e->rank, to, challenge, nonce);
    nrl_store_prove(e->store, &s, sizeof s, answer);
    return NRL_OK;
}

int64_t proof_check(const gloo_engine *e, const uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE])
{
    const uint8_t *nonce = hello + sizeof(int64_t);
    int64_t rank;
    memcpy(&rank, hello, sizeof rank);
    if (rank < 0 || rank >= e->world) return -1;
    statement s = state_it(CONNECT_LABEL, (int32_t)rank, e->rank, e->challenge, nonce);
    if (!nrl_store_verify(e->store, &s, sizeof s, nonce + PROOF_CHALLENGE)) return -1;
    s = state_it(ACCEPT_LABEL, (int32_t)rank, e->rank, e->challenge, nonce);
    nrl_store_prove(e->store, &s, sizeof s, answer);
    return rank;
}

bool proof_equal(const uint8_t a[NRL_PROOF_SIZE], const uint8_t b[NRL_PROOF_SIZE])
{
    unsigned differs = 0; /* constant time: independent of where they differ */
    for (int i = 0; i < NRL_PROOF_SIZE; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return !differs;
}
