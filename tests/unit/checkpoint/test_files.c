/*
 * test_files.c - saves that survive crashes and full disks, and damage that is told.
 */
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

static char out[] = "/tmp/nrl-checkpoint-XXXXXX";

/* A tensor of more than two chunks whose bytes are known. */
enum { BIG = 2 * CHECKPOINT_CHUNK / 4 + 1001 };

static unsigned char byte_at(int64_t i, int64_t salt)
{
    return (unsigned char)((uint64_t)(i * 2654435761u + salt) >> 13);
}

static nrl_status give_bytes(void *user, int64_t begin, size_t size, void *to)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = byte_at(begin + (int64_t)i, *(int64_t *)user);
    return NRL_OK;
}

static nrl_status check_bytes(void *user, int64_t begin, size_t size, const void *from)
{
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)from)[i] != byte_at(begin + (int64_t)i, *(int64_t *)user))
            return nrl_fail(NRL_ERR_BUG, "byte %lld differs", (long long)begin + (long long)i);
    return NRL_OK;
}

static const checkpoint_tensor tensors[] = {
    {"model.embed.weight", "weight", NRL_DTYPE_F32, 2, {1, BIG}},
    {"model.embed.weight", "exp_avg", NRL_DTYPE_F32, 2, {1, BIG}},
    {"model.norm.weight", "weight", NRL_DTYPE_BF16, 1, {7}},
    {"model.empty", "weight", NRL_DTYPE_F32, 1, {0}},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static checkpoint_writer *begin_save(int64_t step, double metric)
{
    checkpoint_writer *w;
    arena a = {0};
    nrl_node *progress = node_new(&a, NRL_NODE_MAP);
    assert_int_equal(checkpoint_begin(out, step, 8 * BIG, &w), NRL_OK);
    for (int64_t i = 0; i < N_TENSORS; i++)
        assert_int_equal(checkpoint_add_tensor(w, &tensors[i], give_bytes, &i), NRL_OK);
    node_append(&a, progress, "tokens", node_int(&a, INT64_MAX));
    node_append(&a, progress, "best", node_f64(&a, 0.1));
    checkpoint_add_node(w, "progress", progress);
    checkpoint_set_metric(w, metric);
    arena_free(&a);
    return w;
}

static void save(int64_t step, double metric)
{
    char *dir;
    assert_int_equal(checkpoint_commit(begin_save(step, metric), &dir), NRL_OK);
    free(dir);
}

static char *path_of(int64_t step, const char *file)
{
    return mem_printf("%s/checkpoints/step-%08lld%s%s", out, (long long)step, *file ? "/" : "",
                      file);
}

static bool is_there(int64_t step)
{
    char *path = path_of(step, "");
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static checkpoint *open_step(int64_t step)
{
    checkpoint *c;
    char *path = path_of(step, "");
    assert_int_equal(checkpoint_open(path, &c), NRL_OK);
    free(path);
    return c;
}

static nrl_status open_and_verify(int64_t step)
{
    checkpoint *c;
    char *path = path_of(step, "");
    nrl_status st = checkpoint_open(path, &c);
    free(path);
    if (st != NRL_OK) return st;
    st = checkpoint_verify(c);
    checkpoint_close(c);
    return st;
}

static int empty_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s/checkpoints", out);
    return system(command);
}

static void what_was_saved_is_read_back(void **state)
{
    (void)state;
    save(200, 1.5);
    checkpoint *c = open_step(200);
    assert_int_equal(checkpoint_step(c), 200);
    assert_true(checkpoint_metric(c) == 1.5);
    assert_int_equal(checkpoint_n_tensors(c), N_TENSORS);
    for (int64_t i = 0; i < N_TENSORS; i++) {
        const checkpoint_tensor *t = checkpoint_tensor_at(c, (size_t)i);
        assert_int_equal(checkpoint_find_tensor(c, tensors[i].name, tensors[i].slot), i);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_memory_equal(t->dims, tensors[i].dims, (size_t)t->n_dims * sizeof *t->dims);
        assert_int_equal(checkpoint_read_tensor(c, (size_t)i, check_bytes, &i), NRL_OK);
    }
    const nrl_node *progress = checkpoint_node(c, "progress");
    assert_true(nrl_node_int(nrl_node_find(progress, "tokens"), 0) == INT64_MAX);
    assert_true(nrl_node_f64(nrl_node_find(progress, "best"), 0) == 0.1);
    assert_null(checkpoint_node(c, "nothing"));
    checkpoint_close(c);
}

static void a_second_save_of_a_step_replaces_the_first(void **state)
{
    (void)state;
    save(5, 1);
    save(5, 2);
    checkpoint *c = open_step(5);
    assert_true(checkpoint_metric(c) == 2);
    checkpoint_close(c);
    char *tmp = mem_printf("%s/checkpoints/step-00000005.tmp", out);
    assert_int_not_equal(access(tmp, F_OK), 0);
    free(tmp);
}

static void the_newest_is_found_and_none_is_fine(void **state)
{
    char *dir;
    (void)state;
    assert_int_equal(checkpoint_find_newest(out, &dir), NRL_OK);
    assert_null(dir);
    save(9, NAN);
    save(100, NAN);
    save(20, NAN);
    assert_int_equal(checkpoint_find_newest(out, &dir), NRL_OK);
    assert_non_null(strstr(dir, "step-00000100"));
    free(dir);
}

static void a_save_that_dies_half_way_leaves_the_last_one(void **state)
{
    char *dir;
    (void)state;
    save(1, NAN);
    pid_t child = fork();
    if (child == 0) {
        begin_save(2, NAN);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(checkpoint_find_newest(out, &dir), NRL_OK);
    assert_non_null(strstr(dir, "step-00000001"));
    free(dir);
    assert_int_equal(checkpoint_prune(out, 1, 0), NRL_OK); /* and what it left is cleared */
    char *tmp = mem_printf("%s/checkpoints/step-00000002.tmp", out);
    assert_int_not_equal(access(tmp, F_OK), 0);
    free(tmp);
}

static void an_incomplete_one_is_passed_over(void **state)
{
    char *dir, *path;
    (void)state;
    save(1, NAN);
    save(2, NAN);
    path = path_of(2, "rank-00000.bin");
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(open_and_verify(2), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "rank-00000.bin"));
    assert_int_equal(checkpoint_find_newest(out, &dir), NRL_OK);
    assert_non_null(strstr(dir, "step-00000001"));
    free(dir);
    free(path);
    path = path_of(2, "manifest.json");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_and_verify(2), NRL_ERR_CORRUPT);
    free(path);
}

static void flip(const char *path, off_t at)
{
    unsigned char c;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x10;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void every_flipped_bit_of_the_manifest_is_found(void **state)
{
    struct stat s;
    (void)state;
    save(3, NAN);
    char *path = path_of(3, "manifest.json");
    assert_int_equal(stat(path, &s), 0);
    for (off_t i = 0; i < s.st_size; i++) {
        flip(path, i);
        assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT);
        flip(path, i);
    }
    assert_int_equal(open_and_verify(3), NRL_OK);
    free(path);
}

static void a_flipped_bit_of_a_tensor_is_found_before_use(void **state)
{
    (void)state;
    save(3, NAN);
    char *path = path_of(3, "rank-00000.bin");
    flip(path, CHECKPOINT_CHUNK + 5);
    checkpoint *c = open_step(3);
    int64_t salt = 0;
    assert_int_equal(checkpoint_read_tensor(c, 0, check_bytes, &salt), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "model.embed.weight"));
    salt = 1;
    assert_int_equal(checkpoint_read_tensor(c, 1, check_bytes, &salt), NRL_OK);
    checkpoint_close(c);
    free(path);
}

/* In a child: the limit stays, and nothing may end it by a signal. */
static void a_file_size_limit_is_a_full_disk_and_keeps_the_last_one(void **state)
{
    (void)state;
    save(1, NAN);
    for (int announced = 0; announced < 2; announced++) {
        pid_t child = fork();
        if (child == 0) {
            checkpoint_writer *w;
            int64_t salt = 0;
            struct rlimit limit = {CHECKPOINT_CHUNK + 10, CHECKPOINT_CHUNK + 10};
            setrlimit(RLIMIT_FSIZE, &limit);
            nrl_status st = checkpoint_begin(out, 2, announced ? 4 * BIG : 0, &w);
            if (st == NRL_OK) {
                st = checkpoint_add_tensor(w, &tensors[0], give_bytes, &salt);
                checkpoint_abandon(w);
            }
            bool told =
                strstr(nrl_error_text(), "needs") && strstr(nrl_error_text(), "rank-00000.bin");
            _exit(st == NRL_ERR_FULL && told ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(open_and_verify(1), NRL_OK);
    assert_false(is_there(2));
}

/* Puts the hash of the text behind it where the zeros were: a forger's manifest, not a damaged one.
 */
static void seal(char *text)
{
    enum { BEGIN = sizeof "{\n \"xxh3\": \"" - 1, AFTER = BEGIN + 32 };
    char digits[33];
    XXH128_hash_t h = XXH3_128bits(text + AFTER, strlen(text + AFTER));
    snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    memcpy(text + BEGIN, digits, 32);
}

/* Rewrites the manifest with the first `from` replaced by `to`. */
static void forge(int64_t step, const char *from, const char *to, bool sealed)
{
    char *text, *path = path_of(step, "manifest.json");
    size_t size;
    assert_int_equal(file_read(path, 1 << 20, &text, &size), NRL_OK);
    char *at = strstr(text, from);
    assert_non_null(at);
    char *forged = mem_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    if (sealed) seal(forged);
    FILE *f = fopen(path, "w");
    fputs(forged, f);
    fclose(f);
    free(text);
    free(forged);
    free(path);
}

static void forged_sizes_and_names_are_refused(void **state)
{
    static const struct {
        const char *from, *to;
        nrl_status want;
    } cases[] = {
        {"\"format\": 1", "\"format\": 2", NRL_ERR_DATA},
        {"\"name\": \"rank-00000.bin\"", "\"name\": \"../../../etc/passwd\"", NRL_ERR_DATA},
        {"\"shape\": [\n", "\"shape\": [\n9223372036854775807,\n", NRL_ERR_CORRUPT},
        {"\"offset\": 0", "\"offset\": -64", NRL_ERR_CORRUPT},
        {"\"offset\": 0", "\"offset\": 9223372036854775807", NRL_ERR_CORRUPT},
        {"\"dtype\": \"f32\"", "\"dtype\": \"f31\"", NRL_ERR_CORRUPT},
        {"\"slot\": \"weight\"", "\"slot\": 7", NRL_ERR_CORRUPT},
        {"\"chunks\": \"", "\"chunks\": \"zz", NRL_ERR_CORRUPT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save(4, NAN);
        forge(4, cases[i].from, cases[i].to, false);
        assert_int_equal(open_and_verify(4), NRL_ERR_CORRUPT); /* the hash */
        save(4, NAN);
        forge(4, cases[i].from, cases[i].to, true);
        nrl_status st = open_and_verify(4);
        if (st != cases[i].want) fail_msg("case %zu: status %d: %s", i, st, nrl_error_text());
    }
}

static void pruning_keeps_the_newest_and_the_best(void **state)
{
    (void)state;
    save(1, 3.0);
    save(2, 1.0);
    save(3, 2.0);
    save(4, NAN);
    save(5, 9.0);
    assert_int_equal(checkpoint_prune(out, 2, 1), NRL_OK);
    assert_false(is_there(1));
    assert_true(is_there(2));
    assert_false(is_there(3));
    assert_true(is_there(4) && is_there(5));
    assert_int_equal(checkpoint_prune(out, 0, 0), NRL_OK); /* 0 keeps all */
    assert_true(is_there(2));
}

static void a_damaged_one_does_not_count_among_the_kept(void **state)
{
    (void)state;
    save(1, NAN);
    save(2, NAN);
    char *path = path_of(2, "manifest.json");
    flip(path, 100);
    free(path);
    assert_int_equal(checkpoint_prune(out, 1, 0), NRL_OK);
    assert_int_equal(open_and_verify(1), NRL_OK);
}

int main(void)
{
    if (!mkdtemp(out)) return 1;
#define CASE(f) cmocka_unit_test_setup(f, empty_folder)
    const struct CMUnitTest tests[] = {
        CASE(what_was_saved_is_read_back),
        CASE(a_second_save_of_a_step_replaces_the_first),
        CASE(the_newest_is_found_and_none_is_fine),
        CASE(a_save_that_dies_half_way_leaves_the_last_one),
        CASE(an_incomplete_one_is_passed_over),
        CASE(every_flipped_bit_of_the_manifest_is_found),
        CASE(a_flipped_bit_of_a_tensor_is_found_before_use),
        CASE(a_file_size_limit_is_a_full_disk_and_keeps_the_last_one),
        CASE(forged_sizes_and_names_are_refused),
        CASE(pruning_keeps_the_newest_and_the_best),
        CASE(a_damaged_one_does_not_count_among_the_kept),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command) || failed;
}
