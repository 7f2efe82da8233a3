/*
 * sign.h - checkpoints that say who wrote them: Ed25519 over the manifest, which holds BLAKE2b hashes of the indices,
 * which hold those of the chunks. So each part is checked as it is read, and nothing is believed before. The hashes of
 * an unsigned checkpoint (XXH3) find accidents; anyone can make two texts with the same.
 *
 * Keys are files of one line: "nrl-ed25519-secret <128 hex digits>", mode 600, and FILE.pub with
 * "nrl-ed25519-public <64 hex digits>".
 */
#ifndef CHECKPOINT_SIGN_H
#define CHECKPOINT_SIGN_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>

enum { SIGN_PUBLIC = 32, SIGN_SECRET = 64, SIGN_DIGEST = 32, SIGN_DIGEST_TEXT = 2 * SIGN_DIGEST + 1 };

typedef struct {
    unsigned char bytes[SIGN_PUBLIC];
} sign_public_key;

typedef struct {
    unsigned char bytes[SIGN_SECRET];
} sign_secret_key;

/* Makes `path` and `path`.pub, which must not be there yet. NRL_ERR_CONFIG, NRL_ERR_IO. */
nrl_status sign_make_keys(const char *path);
/* NRL_ERR_CONFIG where the file is no such key; a secret key that others may read is refused. */
nrl_status sign_read_secret(const char *path, sign_secret_key *out);
nrl_status sign_read_public(const char *path, sign_public_key *out);
void sign_forget(sign_secret_key *key); /* overwrites it */

/* Writes DIR/manifest.json.sig for the manifest's text, durable. */
nrl_status sign_write(const sign_secret_key *key, const char *dir, const char *text, size_t size);
/* Whether DIR/manifest.json.sig is this key's for the text. NRL_ERR_CORRUPT: it is not, or there is none. */
nrl_status sign_check(const sign_public_key *key, const char *dir, const char *text, size_t size);

/* BLAKE2b-256. [any] */
void sign_digest(const void *bytes, size_t size, unsigned char digest[SIGN_DIGEST]);
void sign_digest_text(const void *bytes, size_t size, char text[SIGN_DIGEST_TEXT]);

#endif
