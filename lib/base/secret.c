/*
 * secret.c - libsodium's hashes under the names of what they are for.
 */
#include "base/secret.h"
#include <nrl/status.h>
#include <sodium.h>
#include <string.h>

/* Whoever is first prepares the library; all later calls do nothing. */
static void prepare(void)
{
    NRL_ASSERT(sodium_init(), >=, 0);
}

void secret_derive(const void *text, size_t size, const char *run_id, secret_key *out)
{
    unsigned char key[crypto_generichash_KEYBYTES];
    prepare();
    crypto_generichash(key, sizeof key, text, size, NULL, 0);
    crypto_generichash(out->key, sizeof out->key, (const unsigned char *)run_id, strlen(run_id), key, sizeof key);
    sodium_memzero(key, sizeof key);
}

void secret_random(void *bytes, size_t size)
{
    prepare();
    randombytes_buf(bytes, size);
}

void secret_prove(const secret_key *s, const char *label, const void *message, size_t size,
                  unsigned char proof[SECRET_PROOF])
{
    crypto_auth_hmacsha512256_state state;
    crypto_auth_hmacsha512256_init(&state, s->key, sizeof s->key);
    crypto_auth_hmacsha512256_update(&state, (const unsigned char *)label, strlen(label) + 1);
    crypto_auth_hmacsha512256_update(&state, message, size);
    crypto_auth_hmacsha512256_final(&state, proof);
    sodium_memzero(&state, sizeof state);
}

bool secret_verify(const secret_key *s, const char *label, const void *message, size_t size,
                   const unsigned char proof[SECRET_PROOF])
{
    unsigned char own[SECRET_PROOF];
    secret_prove(s, label, message, size, own);
    return sodium_memcmp(own, proof, sizeof own) == 0;
}

void secret_wipe(void *bytes, size_t size)
{
    sodium_memzero(bytes, size);
}
