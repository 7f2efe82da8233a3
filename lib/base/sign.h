/*
 * sign.h - keys, signatures (Ed25519) and digests (BLAKE2b) of files. Checkpoints sign their manifest, which contains
 * the digests of the indices, which contain the digests of the chunks, so each part is verified as it is read. Other
 * hashes (XXH3) detect accidents only: anyone can construct two texts with the same hash.
 *
 * Keys are files of one line: "nrl-ed25519-secret <128 hex digits>", mode 600, and FILE.pub with
 * "nrl-ed25519-public <64 hex digits>".
 */
#ifndef BASE_SIGN_H
#define BASE_SIGN_H
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

/* Creates a key pair in `path` and `path`.pub, which must not exist. NRL_ERR_CONFIG, NRL_ERR_IO. */
nrl_status sign_make_keys(const char *path);
/* NRL_ERR_CONFIG if the file is not such a key, or if other users can read the file of a secret key. */
nrl_status sign_read_secret(const char *path, sign_secret_key *out);
nrl_status sign_read_public(const char *path, sign_public_key *out);
void sign_forget(sign_secret_key *key); /* overwrites the key in memory */

/* Writes a signature of the text to `path`, which must not exist, and makes it durable. */
nrl_status sign_write(const sign_secret_key *key, const char *path, const char *text, size_t size);
/* NRL_ERR_CORRUPT unless the file `path` is a signature of the text by this key; `what` names the signed object if
 * there is no file. */
nrl_status sign_check(const sign_public_key *key, const char *path, const char *what, const char *text, size_t size);

/* BLAKE2b-256. [any] */
void sign_digest(const void *bytes, size_t size, unsigned char digest[SIGN_DIGEST]);
void sign_digest_text(const void *bytes, size_t size, char text[SIGN_DIGEST_TEXT]);

#endif
