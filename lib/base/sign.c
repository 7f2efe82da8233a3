/*
 * sign.c - signs and verifies with the Ed25519 and BLAKE2b of libsodium; reads and writes key and signature files.
 */
#include "base/sign.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/disk.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1024, MAX_HEX = 2 * SIGN_SECRET + 1 };

static const char secret_word[] = "nrl-ed25519-secret", public_word[] = "nrl-ed25519-public",
                  signature_word[] = "nrl-ed25519-signature";

/* ---- files with one line: a keyword and hex digits ---- */

static nrl_status write_line(const char *path, int mode, const char *word, const unsigned char *bytes, size_t n)
{
    char hex[MAX_HEX], line[MAX_FILE];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) return nrl_fail(NRL_ERR_CONFIG, "%s: already exists", path);
    if (fd < 0) return disk_fail(path, errno);
    sodium_bin2hex(hex, sizeof hex, bytes, n);
    int size = snprintf(line, sizeof line, "%s %s\n", word, hex);
    nrl_status st = disk_finish(fd, path, disk_write(fd, path, line, (size_t)size));
    sodium_memzero(hex, sizeof hex);
    sodium_memzero(line, sizeof line);
    return st;
}

/* Parses exactly n bytes after the keyword. */
static bool parse_line(const char *text, size_t size, const char *word, unsigned char *bytes, size_t n)
{
    size_t begin = strlen(word) + 1, found;
    const char *end;
    if (size < begin + 2 * n || memcmp(text, word, begin - 1) || text[begin - 1] != ' ') return false;
    if (sodium_hex2bin(bytes, n, text + begin, 2 * n, NULL, &found, &end)) return false;
    return found == n && end == text + begin + 2 * n && strspn(end, "\r\n") == strlen(end);
}

static nrl_status read_key(const char *path, const char *word, unsigned char *bytes, size_t n)
{
    char *text;
    size_t size;
    if (file_read(path, MAX_FILE, &text, &size) != NRL_OK) return nrl_fail(NRL_ERR_CONFIG, "%s", nrl_error_text());
    bool is_key = parse_line(text, size, word, bytes, n);
    sodium_memzero(text, size);
    free(text);
    if (is_key) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: is not a key file; expected a line with '%s' and %zu hex digits", path, word,
                    2 * n);
}

/* ---- keys ---- */

nrl_status sign_make_keys(const char *path)
{
    sign_secret_key secret;
    sign_public_key public;
    char *public_path = mem_printf("%s.pub", path);
    NRL_ASSERT(sodium_init(), >=, 0);
    crypto_sign_keypair(public.bytes, secret.bytes);
    nrl_status st = write_line(path, 0600, secret_word, secret.bytes, sizeof secret.bytes);
    if (st == NRL_OK && (st = write_line(public_path, 0666, public_word, public.bytes, sizeof public.bytes)) != NRL_OK)
        unlink(path); /* this call created it, and it is useless without the public key */
    sign_forget(&secret);
    free(public_path);
    return st;
}

nrl_status sign_read_secret(const char *path, sign_secret_key *out)
{
    struct stat s;
    if (stat(path, &s) == 0 && (s.st_mode & (S_IRWXG | S_IRWXO)))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: other users can read it (mode %03o), expected mode 600\nhint: chmod 600 %s", path,
                        (unsigned)(s.st_mode & 0777), path);
    return read_key(path, secret_word, out->bytes, sizeof out->bytes);
}

nrl_status sign_read_public(const char *path, sign_public_key *out)
{
    return read_key(path, public_word, out->bytes, sizeof out->bytes);
}

void sign_forget(sign_secret_key *key)
{
    sodium_memzero(key->bytes, sizeof key->bytes);
}

/* ---- signatures ---- */

nrl_status sign_write(const sign_secret_key *key, const char *path, const char *text, size_t size)
{
    unsigned char signature[crypto_sign_BYTES];
    NRL_ASSERT(sodium_init(), >=, 0);
    crypto_sign_detached(signature, NULL, (const unsigned char *)text, size, key->bytes);
    return write_line(path, 0666, signature_word, signature, sizeof signature);
}

nrl_status sign_check(const sign_public_key *key, const char *path, const char *what, const char *text, size_t size)
{
    unsigned char signature[crypto_sign_BYTES];
    struct stat s;
    char *line;
    size_t n;
    if (lstat(path, &s) != 0 && errno == ENOENT)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: is not signed, but a public key was given", what);
    NRL_TRY(disk_read_whole(path, MAX_FILE, &line, &n));
    bool is_signature = parse_line(line, n, signature_word, signature, sizeof signature);
    free(line);
    if (!is_signature) return nrl_fail(NRL_ERR_CORRUPT, "%s: is not a signature", path);
    NRL_ASSERT(sodium_init(), >=, 0);
    if (!crypto_sign_verify_detached(signature, (const unsigned char *)text, size, key->bytes)) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: is not a signature of this manifest by the public key", path);
}

/* ---- hashes ---- */

void sign_digest(const void *bytes, size_t size, unsigned char digest[SIGN_DIGEST])
{
    crypto_generichash(digest, SIGN_DIGEST, bytes, size, NULL, 0);
}

void sign_digest_text(const void *bytes, size_t size, char text[SIGN_DIGEST_TEXT])
{
    unsigned char digest[SIGN_DIGEST];
    sign_digest(bytes, size, digest);
    sodium_bin2hex(text, SIGN_DIGEST_TEXT, digest, sizeof digest);
}
