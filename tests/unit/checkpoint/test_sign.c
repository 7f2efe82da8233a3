/*
 * test_sign.c - each link from a signature to the values: manifest, index, chunk. The forger in
 * these tests corrects every XXH3 hash, as anyone can; only BLAKE2b and Ed25519 detect changes.
 */
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

enum { NUMEL = 100000 };

static char out[64];
static char *dir, *manifest_path, *rank_path, *key_path;
static sign_secret_key secret;
static sign_public_key public;

static int make_keys(void **state)
{
    (void)state;
    strcpy(out, "/tmp/nrl-sign-XXXXXX");
    if (!mkdtemp(out)) return -1;
    dir = mem_printf("%s/checkpoints/step-00000001", out);
    manifest_path = mem_printf("%s/manifest.json", dir);
    rank_path = mem_printf("%s/rank-00000.nrlc", dir);
    key_path = mem_printf("%s/key", out);
    char *public_path = mem_printf("%s.pub", key_path);
    bool ok = sign_make_keys(key_path) == NRL_OK && sign_read_secret(key_path, &secret) == NRL_OK &&
              sign_read_public(public_path, &public) == NRL_OK;
    free(public_path);
    return ok ? 0 : -1;
}

static int remove_all(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", out);
    free(dir);
    free(manifest_path);
    free(rank_path);
    free(key_path);
    return system(command);
}

/* A signed checkpoint of one tensor of several chunks. */
static void save(void)
{
    static float values[NUMEL];
    checkpoint_writer_options o = {.out = out, .threads = 1, .is_signed = true, .key = &secret};
    checkpoint_tensor t = {.name = "w", .slot = "weight", .dtype = NRL_DTYPE_F32, .n_dims = 1, .dims = {NUMEL}};
    layout_shard whole = piece_of_whole(1, t.dims);
    checkpoint_writer *w;
    checkpoint_outcome outcome;
    bool done;
    for (int i = 0; i < NUMEL; i++)
        values[i] = sinf((float)i);
    assert_int_equal(checkpoint_writer_open(&o, &w), NRL_OK);
    checkpoint_begin(w, 1);
    checkpoint_add_tensor(w, &t, &whole, values);
    checkpoint_submit(w);
    if (checkpoint_poll(w, true, &outcome, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    checkpoint_writer_close(w, false);
}

static nrl_status verify(const sign_public_key *key)
{
    checkpoint *c;
    nrl_status st = checkpoint_open_signed(dir, key, &c);
    if (st != NRL_OK) return st;
    st = checkpoint_verify(c, NULL, NULL);
    checkpoint_close(c);
    return st;
}

static void write_file(const char *path, const char *text, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, size, f) == size && !fclose(f));
}

/* What a forger with some of the means does: one byte of the first chunk changed, its XXH3 put right in the index and
 * that of the index in the manifest; then, where asked, the index's BLAKE2b and the signature. */
static void forge(bool digest_too, bool sign_too)
{
    arena a = {0};
    manifest m;
    char *text, *file;
    size_t size, file_size;
    assert_int_equal(file_read(manifest_path, 1 << 20, &text, &size), NRL_OK);
    assert_int_equal(manifest_parse(&a, "manifest", text, size, &m), NRL_OK);
    free(text);
    assert_int_equal(file_read(rank_path, 1 << 24, &file, &file_size), NRL_OK);
    char *index = file + m.files[0].index;
    size_t index_size = file_size - (size_t)m.files[0].index;
    file_index parsed;
    assert_int_equal(index_parse(&a, "index", index, index_size, m.files[0].index, &parsed), NRL_OK);
    const index_entry *e = &parsed.entries[0];
    assert_true(e->has_digests && e->n_chunks > 1);
    char *chunk = file + e->chunks[0].offset, hash[17];
    chunk[3] ^= 1; /* of the first plane, which is stored as it is: low bits of a mantissa */
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(chunk, (size_t)index_chunk_stored(e, 0)));
    char *at = strstr(index, "\"chunks\": \"");
    assert_non_null(at);
    memcpy(at + strlen("\"chunks\": \""), hash, 16);
    write_file(rank_path, file, file_size);
    index_hash(index, index_size, m.files[0].hash);
    if (digest_too) sign_digest_text(index, index_size, m.files[0].digest);
    text = manifest_write(&m, &size);
    write_file(manifest_path, text, size);
    if (sign_too) {
        char *signature = mem_printf("%s/manifest.json.sig", dir);
        unlink(signature);
        assert_int_equal(sign_write(&secret, signature, text, size), NRL_OK);
        free(signature);
    }
    free(text);
    free(file);
    arena_free(&a);
}

static void what_was_signed_is_read(void **state)
{
    (void)state;
    save();
    assert_true(checkpoint_is_signed(dir));
    assert_int_equal(verify(&public), NRL_OK);
    assert_int_equal(verify(NULL), NRL_OK);
    sign_public_key other = public;
    other.bytes[0] ^= 1;
    assert_int_equal(verify(&other), NRL_ERR_CORRUPT);
}

static void each_link_is_checked(void **state)
{
    (void)state;
    save();
    forge(true, false);
    assert_int_equal(verify(NULL), NRL_OK); /* XXH3 alone does not tell */
    assert_int_equal(verify(&public), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "is not a signature of this manifest"));
    save();
    forge(false, true);
    assert_int_equal(verify(NULL), NRL_OK);
    assert_int_equal(verify(&public), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "the index differs from what was signed"));
    save();
    forge(true, true);
    assert_int_equal(verify(NULL), NRL_OK);
    assert_int_equal(verify(&public), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "it differs from what was signed"));
}

/* RFC 8032, 7.1, TEST 2: what others sign with such a key is what this reads. */
static void signatures_are_ed25519(void **state)
{
    static const char key[] = "nrl-ed25519-public 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\n";
    static const char signature[] =
        "nrl-ed25519-signature 92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00\n";
    sign_public_key rfc;
    char *path = mem_printf("%s/rfc.pub", out), *folder = mem_printf("%s/rfc", out),
         *sig = mem_printf("%s/manifest.json.sig", folder);
    (void)state;
    write_file(path, key, strlen(key));
    assert_int_equal(mkdir(folder, 0777), 0);
    write_file(sig, signature, strlen(signature));
    assert_int_equal(sign_read_public(path, &rfc), NRL_OK);
    assert_int_equal(sign_check(&rfc, sig, folder, "\x72", 1), NRL_OK);
    assert_int_equal(sign_check(&rfc, sig, folder, "\x73", 1), NRL_ERR_CORRUPT);
    free(path);
    free(folder);
    free(sig);
}

static void files_that_are_no_keys_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "nrl-ed25519-public",
        "nrl-ed25519-public 00\n",
        "nrl-ed25519-public zz\n",
        "nrl-ed25519-secret 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\n",
        "nrl-ed25519-public 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c00\n"};
    char *path = mem_printf("%s/no.pub", out);
    sign_public_key key;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(path, texts[i], strlen(texts[i]));
        if (sign_read_public(path, &key) != NRL_ERR_CONFIG) fail_msg("taken for a key: %s", texts[i]);
    }
    assert_int_equal(sign_make_keys(key_path), NRL_ERR_CONFIG); /* never over another key */
    assert_int_equal(chmod(key_path, 0640), 0);
    assert_int_equal(sign_read_secret(key_path, &secret), NRL_ERR_CONFIG);
    assert_int_equal(chmod(key_path, 0600), 0);
    assert_int_equal(sign_read_secret(key_path, &secret), NRL_OK);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_signed_is_read),
        cmocka_unit_test(each_link_is_checked),
        cmocka_unit_test(signatures_are_ed25519),
        cmocka_unit_test(files_that_are_no_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, make_keys, remove_all);
}
