/*
 * test_files.c - saves that survive crashes and full disks, and damage that is reported.
 */
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/index.h"
#include "support/checkpoint.h"
#include <errno.h>
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
enum { BIG = 2 * CODEC_CHUNK / 4 + 1001 };

static const checkpoint_tensor tensors[] = {
    {"model.embed.weight", "weight", NRL_DTYPE_F32, 2, {1, BIG}},
    {"model.embed.weight", "exp_avg", NRL_DTYPE_F32, 2, {1, BIG}},
    {"model.norm.weight", "weight", NRL_DTYPE_BF16, 1, {7}},
    {"model.empty", "weight", NRL_DTYPE_F32, 1, {0}},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static layout_shard whole_of(const checkpoint_tensor *t)
{
    return piece_of_whole(t->n_dims, t->dims);
}

static unsigned char *known(int64_t i)
{
    layout_shard whole = whole_of(&tensors[i]);
    return known_piece(&whole, i, nrl_dtype_size(tensors[i].dtype));
}

static checkpoint_writer *open_writer(bool async)
{
    checkpoint_writer *w;
    const checkpoint_writer_options o = {.out = out, .threads = 2, .async = async};
    assert_int_equal(checkpoint_writer_open(&o, &w), NRL_OK);
    return w;
}

static void fill(checkpoint_writer *w, int64_t step, double metric, unsigned char *bytes[N_TENSORS])
{
    arena a = {0};
    nrl_node *progress = node_new(&a, NRL_NODE_MAP);
    checkpoint_begin(w, step);
    for (int64_t i = 0; i < N_TENSORS; i++) {
        layout_shard whole = whole_of(&tensors[i]);
        bytes[i] = known(i);
        checkpoint_add_tensor(w, &tensors[i], &whole, bytes[i]);
    }
    node_append(&a, progress, "tokens", node_int(&a, INT64_MAX));
    node_append(&a, progress, "best", node_f64(&a, 0.1));
    checkpoint_add_node(w, "progress", progress);
    checkpoint_set_metric(w, metric);
    arena_free(&a);
}

static nrl_status try_save(int64_t step, double metric, bool async)
{
    checkpoint_outcome o;
    bool done;
    unsigned char *bytes[N_TENSORS];
    checkpoint_writer *w = open_writer(async);
    fill(w, step, metric, bytes);
    checkpoint_submit(w);
    for (int i = 0; i < N_TENSORS; i++) {
        if (async) memset(bytes[i], 0, 1); /* the snapshot is the writer's own */
        free(bytes[i]);
    }
    nrl_status st = checkpoint_poll(w, true, &o, &done);
    assert_true(done);
    checkpoint_writer_close(w, false);
    return st;
}

static void save(int64_t step, double metric)
{
    assert_int_equal(try_save(step, metric, step % 2), NRL_OK);
}

static char *path_of(int64_t step, const char *file)
{
    return mem_printf("%s/checkpoints/step-%08lld%s%s", out, (long long)step, *file ? "/" : "", file);
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
    st = checkpoint_verify(c, NULL, NULL);
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
    for (int64_t step = 200; step < 202; step++) {
        save(step, 1.5);
        checkpoint *c = open_step(step);
        assert_int_equal(checkpoint_step(c), step);
        assert_int_equal(checkpoint_world(c), 1);
        assert_true(checkpoint_metric(c) == 1.5);
        assert_int_equal(checkpoint_n_tensors(c), N_TENSORS);
        for (int64_t i = 0; i < N_TENSORS; i++) {
            const checkpoint_tensor *t = checkpoint_tensor_at(c, (size_t)i);
            size_t size = (size_t)checkpoint_tensor_bytes(c, (size_t)i);
            unsigned char *expected = known(i), *is = calloc(size + 1, 1);
            layout_shard whole = whole_of(t);
            assert_int_equal(checkpoint_find_tensor(c, tensors[i].name, tensors[i].slot), i);
            assert_int_equal(t->dtype, tensors[i].dtype);
            assert_memory_equal(t->dims, tensors[i].dims, (size_t)t->n_dims * sizeof *t->dims);
            assert_int_equal(checkpoint_read(c, (size_t)i, &whole, is), NRL_OK);
            assert_memory_equal(is, expected, size);
            free(expected);
            free(is);
        }
        const nrl_node *progress = checkpoint_node(c, "progress");
        assert_true(nrl_node_int(nrl_node_find(progress, "tokens"), 0) == INT64_MAX);
        assert_true(nrl_node_f64(nrl_node_find(progress, "best"), 0) == 0.1);
        assert_null(checkpoint_node(c, "nothing"));
        checkpoint_close(c);
    }
}

/* NFS before 4.2 and others can reserve no space. */
static bool space_can_be_reserved(void)
{
    char *path = mem_printf("%s/reserved", out);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    bool can = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 || errno != EOPNOTSUPP;
    close(fd);
    unlink(path);
    free(path);
    return can;
}

static void a_run_goes_on_while_a_save_is_written(void **state)
{
    checkpoint_outcome o;
    bool done = false;
    unsigned char *bytes[N_TENSORS];
    (void)state;
    checkpoint_writer *w = open_writer(true);
    assert_int_equal(checkpoint_prepare(w, 8 * BIG + 14, true), NRL_OK);
    char *trial = mem_printf("%s/checkpoints/trial-%d.tmp", out, 0);
    struct stat found;
    assert_int_equal(stat(trial, &found), 0); /* the space stays reserved until all ranks have theirs */
    if (space_can_be_reserved()) assert_true(found.st_blocks * 512 >= 8 * BIG + 14);
    checkpoint_prepared(w);
    assert_int_equal(stat(trial, &found), -1);
    free(trial);
    for (int64_t step = 1; step <= 3; step++, done = false) {
        fill(w, step, NAN, bytes);
        checkpoint_submit(w);
        for (int i = 0; i < N_TENSORS; i++)
            free(bytes[i]);
        while (!done)
            assert_int_equal(checkpoint_poll(w, false, &o, &done), NRL_OK);
        assert_int_equal(o.step, step);
        assert_int_equal(o.raw_bytes, 8 * BIG + 14);
        assert_true(o.stored_bytes < o.raw_bytes);
        assert_false(checkpoint_is_writing(w));
        assert_int_equal(open_and_verify(step), NRL_OK);
    }
    assert_int_equal(checkpoint_poll(w, true, &o, &done), NRL_OK);
    assert_false(done); /* told once */
    checkpoint_writer_close(w, false);
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
    assert_int_equal(checkpoint_look(out, &(int64_t){0}, &(double){0}), NRL_ERR_CORRUPT);
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
    if (child == 0) { /* as a kill between the ranks' files and the manifest leaves it */
        char *tmp_dir = path_of(2, "");
        char *dead = mem_printf("%s.tmp", tmp_dir), *file = mem_printf("%s/rank-00000.nrlc", dead);
        _exit(mkdir(dead, 0777) || creat(file, 0666) < 0);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(checkpoint_find_newest(out, &dir), NRL_OK);
    assert_non_null(strstr(dir, "step-00000001"));
    free(dir);
    assert_int_equal(checkpoint_prune(out, 1, 0, false), NRL_OK); /* and what it left is cleared */
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
    path = path_of(2, "rank-00000.nrlc");
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(open_and_verify(2), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "rank-00000.nrlc"));
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

static void every_flipped_bit_of_a_file_is_found(void **state)
{
    struct stat s;
    (void)state;
    save(3, NAN);
    char *path = path_of(3, "rank-00000.nrlc");
    assert_int_equal(stat(path, &s), 0);
    for (off_t i = 0; i < s.st_size; i += i < 200 || i > s.st_size - 600 ? 1 : 4099) {
        flip(path, i);
        assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT);
        assert_non_null(strstr(nrl_error_text(), "rank-00000.nrlc"));
        flip(path, i);
    }
    assert_int_equal(open_and_verify(3), NRL_OK);
    free(path);
}

static void every_truncation_is_found(void **state)
{
    static const char *const names[] = {"rank-00000.nrlc", "manifest.json"};
    struct stat s;
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 40; i++) {
            save(3, NAN);
            char *path = path_of(3, names[k]);
            assert_int_equal(stat(path, &s), 0);
            assert_int_equal(truncate(path, s.st_size * i / 40), 0);
            assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT);
            assert_int_equal(truncate(path, s.st_size + 1), 0);
            assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT);
            free(path);
        }
}

static void a_damaged_chunk_is_found_before_use_and_others_are_read(void **state)
{
    (void)state;
    save(3, NAN);
    char *path = path_of(3, "rank-00000.nrlc"), *bytes = malloc(4 * BIG);
    flip(path, CODEC_CHUNK + 5);
    checkpoint *c = open_step(3);
    layout_shard whole = whole_of(&tensors[0]), first = whole;
    first.flat_end = 1000;
    assert_int_equal(checkpoint_read(c, 0, &whole, bytes), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "model.embed.weight"));
    assert_int_equal(checkpoint_read(c, 0, &first, bytes), NRL_OK); /* only its own chunk is read */
    assert_int_equal(checkpoint_read(c, 1, &whole, bytes), NRL_OK);
    checkpoint_close(c);
    free(bytes);
    free(path);
}

static void links_in_the_place_of_files_are_not_followed(void **state)
{
    static const char *const names[] = {"rank-00000.nrlc", "manifest.json"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        save(3, NAN);
        char *path = path_of(3, names[k]), *aside = mem_printf("%s/aside", out);
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(symlink(aside, path), 0);
        assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0666), 0);
        assert_int_equal(open_and_verify(3), NRL_ERR_CORRUPT); /* and does not wait for a writer */
        assert_int_equal(unlink(path), 0);
        unlink(aside);
        free(aside);
        free(path);
    }
}

/* A folder elsewhere, reached by a link in the place of the unfinished save, stays as it is. */
static void nothing_is_written_or_removed_through_a_link(void **state)
{
    (void)state;
    save(1, NAN);
    char *elsewhere = mem_printf("%s/elsewhere", out), *file = mem_printf("%s/file", elsewhere);
    char *final = path_of(2, ""), *tmp = mem_printf("%s.tmp", final);
    assert_int_equal(mkdir(elsewhere, 0777), 0);
    close(creat(file, 0666));
    assert_int_equal(symlink(elsewhere, tmp), 0);
    save(2, NAN);
    assert_int_equal(open_and_verify(2), NRL_OK);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(symlink(elsewhere, tmp), 0);
    assert_int_equal(checkpoint_prune(out, 1, 0, false), NRL_OK);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(unlink(tmp), 0); /* the link is not ours either */
    unlink(file);
    rmdir(elsewhere);
    free(elsewhere);
    free(file);
    free(final);
    free(tmp);
}

/* In a child: the limit stays, and nothing may end it by a signal. */
static void a_file_size_limit_is_a_full_disk_and_keeps_the_last_one(void **state)
{
    (void)state;
    save(1, NAN);
    for (int tried = 0; tried < 2; tried++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {CODEC_CHUNK + 10, CODEC_CHUNK + 10};
            setrlimit(RLIMIT_FSIZE, &limit);
            nrl_status st;
            if (tried) {
                checkpoint_writer *w = open_writer(false);
                st = checkpoint_prepare(w, 8 * BIG, true);
                checkpoint_prepared(w);
            } else
                st = try_save(2, NAN, true);
            bool told = strstr(nrl_error_text(), "needs") && strstr(nrl_error_text(), "checkpoints/");
            _exit(st == NRL_ERR_FULL && told ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(open_and_verify(1), NRL_OK);
    assert_false(is_there(2));
    char *final = path_of(2, ""), *tmp = mem_printf("%s.tmp", final);
    assert_int_not_equal(access(tmp, F_OK), 0);
    free(final);
    free(tmp);
}

/* Puts the hash of the text behind it where the zeros were: a forger's manifest, not a damaged one.
 */
static void seal(char *text)
{
    enum { BEGIN = sizeof "{\n \"xxh3\": \"" - 1, AFTER = BEGIN + 32 };
    char digits[33];
    XXH128_hash_t h = XXH3_128bits(text + AFTER, strlen(text + AFTER));
    snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
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

/* What stands there goes first: a save does not replace what it takes for a later version's. */
static void save_afresh(int64_t step)
{
    char *path = path_of(step, "manifest.json");
    unlink(path);
    free(path);
    save(step, NAN);
}

static void forged_manifests_are_refused(void **state)
{
    static const struct {
        const char *from, *to;
        nrl_status want;
    } cases[] = {
        {"\"format\": 3", "\"format\": 2", NRL_ERR_DATA},
        {"\"format\": 3", "\"format\": 4", NRL_ERR_DATA},
        {"\"world\": 1", "\"world\": 2", NRL_ERR_CORRUPT},
        {"\"world\": 1", "\"world\": 1000000000", NRL_ERR_CORRUPT},
        {"\"step\": 4", "\"step\": 5", NRL_ERR_CORRUPT}, /* the files are those of another step */
        {"\"step\": 4", "\"step\": -1", NRL_ERR_CORRUPT},
        {"\"size\": ", "\"size\": 1", NRL_ERR_CORRUPT},
        {"\"index\": ", "\"index\": 9", NRL_ERR_CORRUPT},
        {"\"index\": ", "\"index\": -", NRL_ERR_CORRUPT},
        {"\"files\": [", "\"files\": [ {},", NRL_ERR_CORRUPT},
        {"\"nodes\": {", "\"nodes\": [", NRL_ERR_CORRUPT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_later = !strcmp(cases[i].to, "\"format\": 4"); /* which may be hashed in another way */
        save_afresh(4);
        forge(4, cases[i].from, cases[i].to, false);
        assert_int_equal(open_and_verify(4), is_later ? NRL_ERR_DATA : NRL_ERR_CORRUPT);
        save_afresh(4);
        forge(4, cases[i].from, cases[i].to, true);
        nrl_status st = open_and_verify(4);
        if (st != cases[i].want) fail_msg("case %zu: status %d: %s", i, st, nrl_error_text());
    }
}

static void a_later_format_is_never_replaced(void **state)
{
    (void)state;
    save(4, NAN);
    forge(4, "\"format\": 3", "\"format\": 4", true);
    assert_int_equal(try_save(4, NAN, false), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "cannot replace a checkpoint of another version"));
    assert_int_equal(open_and_verify(4), NRL_ERR_DATA);
    char *tmp = mem_printf("%s/checkpoints/step-00000004.tmp", out);
    assert_int_not_equal(access(tmp, F_OK), 0);
    free(tmp);
}

/* One entry of 3 f32 in a file whose index begins at byte 76, with a piece of the text replaced. */
static nrl_status parse_with(const char *from, const char *to)
{
    static const char good[] =
        "{\"rank\":0,\"world\":1,\"entries\":[{\"name\":\"w\",\"slot\":\"weight\",\"dtype\":\"f32\",\"shape\":[3],"
        "\"begin\":[0],\"end\":[3],\"flat\":[0,3],\"offset\":64,"
        "\"chunks\":\"0123456789abcdef000003000003000003000003\"}],\"nodes\":{}}";
    arena a = {0};
    file_index index;
    const char *at = strstr(good, from);
    assert_non_null(at);
    char *text = mem_printf("%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    nrl_status st = index_parse(&a, "rank-00000.nrlc", text, strlen(text), 76, &index);
    free(text);
    arena_free(&a);
    return st;
}

static void an_index_of_any_dtype_is_read_back(void **state)
{
    int n_dtypes = 0;
    (void)state;
    for (nrl_dtype d = NRL_DTYPE_F32; nrl_dtype_size(d); d++, n_dtypes++) {
        arena a = {0};
        size_t size;
        index_entry e = {.tensor = {"w", "weight", d, 1, {0}}, .piece = piece_of_whole(1, (int64_t[]){0})};
        file_index index = {.world = 1, .n_entries = 1, .entries = &e}, back;
        char *text = index_write(&index, &size);
        if (index_parse(&a, "rank-00000.nrlc", text, size, FORMAT_HEADER, &back) != NRL_OK)
            fail_msg("%s", nrl_error_text());
        assert_int_equal(back.entries[0].tensor.dtype, d);
        free(text);
        arena_free(&a);
    }
    assert_int_equal(n_dtypes, NRL_DTYPE_U16);
}

static void forged_indices_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\"rank\":0", "\"rank\":1"},
        {"\"rank\":0", "\"rank\":-1"},
        {"\"world\":1", "\"world\":99999999999"},
        {"\"name\":\"w\"", "\"name\":\"\""},
        {"\"name\":\"w\"", "\"name\":7"},
        {"\"slot\":\"weight\"", "\"slot\":null"},
        {"\"f32\"", "\"f31\""},
        {"\"f32\"", "\"bf16\""},
        {"\"shape\":[3]", "\"shape\":[-3]"},
        {"\"shape\":[3]", "\"shape\":[]"},
        {"\"shape\":[3]", "\"shape\":[3,3,3,3,3,3,3,3,3]"},
        {"\"shape\":[3]", "\"shape\":[9223372036854775807,9223372036854775807]"},
        {"\"shape\":[3]", "\"shape\":[9223372036854775807]"},
        {"\"shape\":[3]", "\"shape\":[3.0]"},
        {"\"begin\":[0]", "\"begin\":[1]"},
        {"\"begin\":[0]", "\"begin\":[0,0]"},
        {"\"end\":[3]", "\"end\":[4]"},
        {"\"end\":[3]", "\"end\":3"},
        {"\"flat\":[0,3]", "\"flat\":[0,2]"},
        {"\"flat\":[0,3]", "\"flat\":[-1,2]"},
        {"\"flat\":[0,3]", "\"flat\":[2,5]"},
        {"\"flat\":[0,3]", "\"flat\":[0,4]"},
        {"\"offset\":64", "\"offset\":60"},
        {"\"offset\":64", "\"offset\":65"},
        {"\"offset\":64", "\"offset\":64,\"rotate\":2"},
        {"\"offset\":64", "\"offset\":64,\"rotate\":-1"},
        {"\"offset\":64", "\"offset\":64,\"rotate\":\"1\""},
        {"\"f32\",\"shape\":[3]", "\"u8\",\"rotate\":1,\"shape\":[3]"},
        {"abcdef", "abcdeg"},
        {"000003000003", "000003000004"}, /* a plane longer than its elements */
        {"000003000003", "000003000000"},
        {"000003000003", "000003000002"}, /* bytes of the file that are nobody's */
        {"000003000003", "000003"},
        {"\"nodes\":{}", "\"nodes\":{"},
        {"\"entries\":[", "\"entries\":7,\"more\":["},
    };
    (void)state;
    assert_int_equal(parse_with("w", "w"), NRL_OK);
    assert_int_equal(parse_with("\"offset\":64", "\"offset\":64,\"rotate\":1"), NRL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (parse_with(cases[i][0], cases[i][1]) != NRL_ERR_CORRUPT)
            fail_msg("case %zu: %s became %s", i, cases[i][0], cases[i][1]);
}

static void pruning_keeps_the_newest_and_the_best(void **state)
{
    (void)state;
    save(1, 3.0);
    save(2, 1.0);
    save(3, 2.0);
    save(4, NAN);
    save(5, 9.0);
    assert_int_equal(checkpoint_prune(out, 2, 1, false), NRL_OK);
    assert_false(is_there(1));
    assert_true(is_there(2));
    assert_false(is_there(3));
    assert_true(is_there(4) && is_there(5));
    assert_int_equal(checkpoint_prune(out, 0, 0, false), NRL_OK); /* 0 keeps all */
    assert_true(is_there(2));
}

static void what_a_trial_for_room_left_is_removed(void **state)
{
    (void)state;
    save(1, NAN);
    char *trial = mem_printf("%s/checkpoints/trial-3.tmp", out), *other = mem_printf("%s/checkpoints/notes.tmp", out);
    close(creat(trial, 0666));
    close(creat(other, 0666));
    assert_int_equal(checkpoint_prune(out, 1, 0, false), NRL_OK);
    assert_int_not_equal(access(trial, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0); /* not ours */
    free(trial);
    free(other);
}

static void a_damaged_one_does_not_count_among_the_kept(void **state)
{
    (void)state;
    save(1, NAN);
    save(2, NAN);
    char *path = path_of(2, "manifest.json");
    flip(path, 100);
    free(path);
    assert_int_equal(checkpoint_prune(out, 1, 0, false), NRL_OK);
    assert_int_equal(open_and_verify(1), NRL_OK);
}

int main(void)
{
    if (!mkdtemp(out)) return 1;
#define CASE(f) cmocka_unit_test_setup(f, empty_folder)
    const struct CMUnitTest tests[] = {
        CASE(what_was_saved_is_read_back),
        CASE(a_run_goes_on_while_a_save_is_written),
        CASE(a_second_save_of_a_step_replaces_the_first),
        CASE(the_newest_is_found_and_none_is_fine),
        CASE(a_save_that_dies_half_way_leaves_the_last_one),
        CASE(an_incomplete_one_is_passed_over),
        CASE(every_flipped_bit_of_the_manifest_is_found),
        CASE(every_flipped_bit_of_a_file_is_found),
        CASE(every_truncation_is_found),
        CASE(a_damaged_chunk_is_found_before_use_and_others_are_read),
        CASE(links_in_the_place_of_files_are_not_followed),
        CASE(nothing_is_written_or_removed_through_a_link),
        CASE(a_file_size_limit_is_a_full_disk_and_keeps_the_last_one),
        CASE(forged_manifests_are_refused),
        CASE(a_later_format_is_never_replaced),
        CASE(an_index_of_any_dtype_is_read_back),
        cmocka_unit_test(forged_indices_are_refused),
        CASE(pruning_keeps_the_newest_and_the_best),
        CASE(what_a_trial_for_room_left_is_removed),
        CASE(a_damaged_one_does_not_count_among_the_kept),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command) || failed;
}
