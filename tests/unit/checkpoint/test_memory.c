/*
 * test_memory.c - the n-th allocation of a save and of reading a checkpoint fails, for every n: the error is
 * NRL_ERR_MEMORY, and what is on the disk is the earlier checkpoint.
 */
#include "support/checkpoint.h"
#include "support/folder.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_TENSORS = 3, MOST_ALLOCATIONS = 10000 };

/* Hundreds of saves, each with syncs: in memory where there is such a directory. */
static char out[64];
static const checkpoint_tensor tensors[N_TENSORS] = {{"a.weight", "weight", NRL_DTYPE_F32, 2, {300, 500}},
                                                     {"b.weight", "weight", NRL_DTYPE_BF16, 1, {1000}},
                                                     {"b.weight", "exp_avg", NRL_DTYPE_F32, 1, {1000}}};

static nrl_status save(bool async, int64_t step)
{
    checkpoint_writer *w;
    checkpoint_outcome o;
    bool done;
    arena a = {0};
    unsigned char *bytes[N_TENSORS];
    const checkpoint_writer_options options = {.out = out, .threads = 2, .async = async};
    nrl_status st = checkpoint_writer_open(&options, &w);
    if (st != NRL_OK) return st;
    checkpoint_begin(w, step);
    for (int i = 0; i < N_TENSORS; i++) {
        layout_shard whole = piece_of_whole(tensors[i].n_dims, tensors[i].dims);
        bytes[i] = known_piece(&whole, step, nrl_dtype_size(tensors[i].dtype));
        checkpoint_add_tensor(w, &tensors[i], &whole, bytes[i]);
    }
    checkpoint_add_node(w, "progress", node_int(&a, step));
    checkpoint_add_rank_node(w, "parallel", node_int(&a, step));
    checkpoint_submit(w);
    st = checkpoint_poll(w, true, &o, &done);
    checkpoint_writer_close(w, false);
    for (int i = 0; i < N_TENSORS; i++)
        free(bytes[i]);
    arena_free(&a);
    return st;
}

static nrl_status read_back(int64_t step)
{
    checkpoint *c;
    char *dir = checkpoint_dir_of(out, step);
    nrl_status st = checkpoint_open(dir, &c);
    free(dir);
    if (st != NRL_OK) return st;
    assert_int_equal(checkpoint_n_tensors(c), N_TENSORS);
    st = checkpoint_use_threads(c, 2);
    for (int i = 0; i < N_TENSORS && st == NRL_OK; i++) {
        layout_shard whole = piece_of_whole(tensors[i].n_dims, tensors[i].dims);
        size_t width = nrl_dtype_size(tensors[i].dtype), size = (size_t)piece_numel(&whole) * width;
        unsigned char *expected = known_piece(&whole, step, width), *is = malloc(size);
        st = checkpoint_read(c, (size_t)i, &whole, is);
        if (st == NRL_OK) assert_memory_equal(is, expected, size);
        free(expected);
        free(is);
    }
    checkpoint_close(c);
    return st;
}

static size_t n_checkpoints(void)
{
    char **dirs;
    size_t n;
    assert_int_equal(checkpoint_list(out, &dirs, &n), NRL_OK);
    checkpoint_list_free(dirs, n);
    return n;
}

/* How many names are in OUT/checkpoints. */
static int n_names(void)
{
    char *dir = mem_printf("%s/checkpoints", out);
    DIR *d = opendir(dir);
    int n = -2; /* without . and .. */
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    free(dir);
    return n;
}

static void a_save_without_memory_leaves_the_earlier_checkpoint(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        int64_t n = 0, step = 10 + async;
        nrl_status st = NRL_ERR_MEMORY;
        assert_int_equal(save(false, 1), NRL_OK);
        for (; n < MOST_ALLOCATIONS && st != NRL_OK; n++) {
            mem_try_fail_after(n);
            st = save(async, step);
            mem_try_fail_after(-1);
            if (st == NRL_OK) break;
            assert_int_equal(st, NRL_ERR_MEMORY);
            assert_non_null(strstr(nrl_error_text(), "out of memory"));
            assert_int_equal(n_checkpoints(), 1);
            assert_int_equal(n_names(), 1);
        }
        assert_in_range(n, 15, MOST_ALLOCATIONS);
        assert_int_equal(n_checkpoints(), 2);
        assert_int_equal(read_back(step), NRL_OK);
        assert_int_equal(checkpoint_clear(out), NRL_OK);
    }
}

static void reading_without_memory_is_an_error(void **state)
{
    (void)state;
    int64_t n = 0;
    nrl_status st = NRL_ERR_MEMORY;
    assert_int_equal(save(false, 1), NRL_OK);
    for (; n < MOST_ALLOCATIONS && st != NRL_OK; n++) {
        mem_try_fail_after(n);
        st = read_back(1);
        mem_try_fail_after(-1);
        if (st != NRL_OK) assert_int_equal(st, NRL_ERR_MEMORY);
    }
    assert_in_range(n, 15, MOST_ALLOCATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_without_memory_leaves_the_earlier_checkpoint),
        cmocka_unit_test(reading_without_memory_is_an_error),
    };
    snprintf(out, sizeof out, "%s/test-nrl-checkpoint-memory-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(out)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(out);
    return failed;
}
