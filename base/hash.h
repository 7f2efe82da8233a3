/*
 * hash.h - identities of bytes: XXH3 with 128 bits, as 32 hex digits. It tells apart what differs by
 * accident; it does not withstand someone who wants two files to have the same identity.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include <nrl/status.h>

enum { HASH_TEXT = 33 }; /* 32 digits and a NUL */

void hash_bytes(const void *bytes, size_t size, char out[HASH_TEXT]);
/* From the file's current position to its end, a MiB at a time; `name` is for messages. NRL_ERR_IO. */
nrl_status hash_descriptor(int fd, const char *name, char out[HASH_TEXT]);
nrl_status hash_file(const char *path, char out[HASH_TEXT]);

/* SHA-256 of a file as `sha256sum` prints it, where somebody may want two files to look alike. NRL_ERR_IO. */
enum { HASH_SHA256_TEXT = 65 };
nrl_status hash_sha256_file(const char *path, char out[HASH_SHA256_TEXT]);

#endif
