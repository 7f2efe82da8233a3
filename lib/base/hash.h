/*
 * hash.h - XXH3-128 hashes of memory and files, as 32 hex digits. XXH3 detects accidental differences; it is not
 * cryptographic and does not detect deliberate forgery.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include <nrl/status.h>

enum { HASH_TEXT = 33 }; /* 32 digits and a NUL */

void hash_bytes(const void *bytes, size_t size, char out[HASH_TEXT]);
/* Hashes from the descriptor's current position to the end of the file. `name` is used in error messages.
 * Errors: NRL_ERR_IO, NRL_ERR_MEMORY. */
nrl_status hash_descriptor(int fd, const char *name, char out[HASH_TEXT]);
nrl_status hash_file(const char *path, char out[HASH_TEXT]);

/* SHA-256 of a file as `sha256sum` prints it, for files that someone may try to forge. Errors: NRL_ERR_IO. */
enum { HASH_SHA256_TEXT = 65 };
nrl_status hash_sha256_file(const char *path, char out[HASH_SHA256_TEXT]);

#endif
