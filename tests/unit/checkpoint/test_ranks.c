/*
 * test_ranks.c - saves by several ranks (threads with a store in memory), read back by any other
 * number of ranks with other layouts; and the errors on all ranks when one fails.
 */
#include "support/checkpoint.h"
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char out[] = "/tmp/nrl-ranks-XXXXXX";
enum { MAX_WORLD = 5 };

static const checkpoint_tensor tensors[] = {
    {"embed", "weight", NRL_DTYPE_F32, 2, {100, 700}},
    {"embed", "exp_avg", NRL_DTYPE_F32, 2, {100, 700}},
    {"wide", "weight", NRL_DTYPE_BF16, 3, {3, 64, 130}},
    {"norm", "weight", NRL_DTYPE_F32, 1, {7}},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

/* How rank r of n holds a tensor. */
typedef enum { FLAT = 0, ROWS, COLUMNS, COLUMNS_THEN_FLAT, REPLICATED, N_KINDS } layout_kind;

static layout_shard held(const checkpoint_tensor *t, layout_kind kind, int32_t r, int32_t n)
{
    layout_shard p = piece_of_whole(t->n_dims, t->dims);
    int d = kind == ROWS ? 0 : t->n_dims - 1;
    if (kind == REPLICATED) return p;
    if (kind == FLAT) return piece_share(&p, r, n, 1);
    int32_t placements = kind == COLUMNS_THEN_FLAT && n > 1 ? 2 : n, at = r % placements;
    p.begin[d] = t->dims[d] * at / placements;
    p.end[d] = t->dims[d] * (at + 1) / placements;
    p.flat_end = 1;
    for (int i = 0; i < t->n_dims; i++)
        p.flat_end *= p.end[i] - p.begin[i];
    /* the ranks that share a column: r = at, at + placements, ... */
    int32_t sharers = (n - at + placements - 1) / placements;
    return piece_share(&p, r / placements, sharers, 1);
}

typedef struct {
    memory_store *store;
    int32_t rank, world;
    layout_kind kind;
    int64_t step;
    double timeout_s;
    nrl_status fails; /* this rank abandons with it */
    bool absent;      /* this rank never comes */
    nrl_status status;
    char text[512];
} rank_run;

/* What ranks that hold the same do: each saves its share. */
static layout_shard saved(const checkpoint_tensor *t, const rank_run *k)
{
    layout_shard p = held(t, k->kind, k->rank, k->world);
    return k->kind == REPLICATED ? piece_share(&p, k->rank, k->world, 4096) : p;
}

static void add_rank_state(checkpoint_writer *w, const rank_run *k)
{
    arena a = {0};
    checkpoint_tensor own = {"parallel/residual", "rank", NRL_DTYPE_F32, 1, {100 + k->rank}};
    layout_shard whole = piece_of_whole(1, own.dims);
    void *room;
    unsigned char *bytes = known_piece(&whole, 1000 + k->rank, 4);
    assert_int_equal(checkpoint_add_copy(w, &own, &whole, &room), NRL_OK);
    memcpy(room, bytes, (size_t)own.dims[0] * 4);
    free(bytes);
    checkpoint_add_rank_node(w, "parallel", node_int(&a, 77 + k->rank));
    arena_free(&a);
}

static void *save_rank(void *user)
{
    rank_run *k = user;
    checkpoint_outcome o;
    bool done;
    checkpoint_writer *w;
    unsigned char *bytes[N_TENSORS];
    arena a = {0};
    const checkpoint_ranks ranks = memory_ranks(k->store, k->rank, k->world, k->timeout_s);
    const checkpoint_writer_options options = {
        .out = out, .ranks = &ranks, .threads = 1, .async = k->world % 2, .keep = 0};
    if (k->absent) return NULL;
    if (checkpoint_writer_open(&options, &w) != NRL_OK) abort();
    checkpoint_begin(w, k->step);
    for (int64_t i = 0; i < N_TENSORS; i++) {
        layout_shard p = saved(&tensors[i], k);
        bytes[i] = known_piece(&p, i, nrl_dtype_size(tensors[i].dtype));
        if (piece_numel(&p)) checkpoint_add_tensor(w, &tensors[i], &p, bytes[i]);
    }
    add_rank_state(w, k);
    if (k->rank == 0) checkpoint_add_node(w, "progress", node_int(&a, k->step));
    if (k->fails)
        checkpoint_abandon(w, nrl_fail(k->fails, "this rank has no more memory"));
    else
        checkpoint_submit(w);
    k->status = checkpoint_poll(w, true, &o, &done);
    snprintf(k->text, sizeof k->text, "%s", k->status ? nrl_error_text() : "");
    checkpoint_writer_close(w, false);
    for (int i = 0; i < N_TENSORS; i++)
        free(bytes[i]);
    arena_free(&a);
    return NULL;
}

static void save_all(rank_run *runs, int32_t world, layout_kind kind, int64_t step, double timeout_s)
{
    static memory_store store;
    pthread_t threads[MAX_WORLD];
    memory_store_open(&store);
    for (int32_t r = 0; r < world; r++) {
        runs[r].store = &store;
        runs[r].rank = r;
        runs[r].world = world;
        runs[r].kind = kind;
        runs[r].step = step;
        runs[r].timeout_s = timeout_s;
        assert_int_equal(pthread_create(&threads[r], NULL, save_rank, &runs[r]), 0);
    }
    for (int32_t r = 0; r < world; r++)
        pthread_join(threads[r], NULL);
    memory_store_close(&store);
}

static char *path_of(int64_t step)
{
    return mem_printf("%s/checkpoints/step-%08lld", out, (long long)step);
}

static checkpoint *open_step(int64_t step)
{
    checkpoint *c;
    char *path = path_of(step);
    if (checkpoint_open(path, &c) != NRL_OK) fail_msg("%s", nrl_error_text());
    free(path);
    return c;
}

static void check_pieces(checkpoint *c, int32_t world, layout_kind kind)
{
    for (int64_t i = 0; i < N_TENSORS; i++)
        for (int32_t r = 0; r < world; r++) {
            layout_shard p = held(&tensors[i], kind, r, world);
            size_t width = nrl_dtype_size(tensors[i].dtype), size = (size_t)piece_numel(&p) * width;
            unsigned char *expected = known_piece(&p, i, width), *is = malloc(size + 1);
            int64_t at = checkpoint_find_tensor(c, tensors[i].name, tensors[i].slot);
            assert_true(at >= 0);
            memset(is, 0xA5, size + 1);
            if (checkpoint_read(c, (size_t)at, &p, is) != NRL_OK) fail_msg("%s", nrl_error_text());
            assert_memory_equal(is, expected, size);
            assert_int_equal(is[size], 0xA5);
            free(expected);
            free(is);
        }
}

static int empty_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s/checkpoints", out);
    return system(command);
}

static int entries(void)
{
    char *path = mem_printf("%s/checkpoints", out);
    DIR *d = opendir(path);
    int n = -2;
    free(path);
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return d ? n : 0;
}

static void any_number_of_ranks_reads_what_any_other_wrote(void **state)
{
    static const int32_t worlds[] = {1, 2, 4, 5};
    int64_t step = 0;
    (void)state;
    for (int w = 0; w < 4; w++)
        for (layout_kind kind = FLAT; kind < N_KINDS; kind++) {
            rank_run runs[MAX_WORLD] = {0};
            save_all(runs, worlds[w], kind, ++step, 30);
            for (int32_t r = 0; r < worlds[w]; r++)
                if (runs[r].status) fail_msg("rank %d: %s", r, runs[r].text);
            checkpoint *c = open_step(step);
            assert_int_equal(checkpoint_use_threads(c, 1 + w % 2), NRL_OK);
            assert_int_equal(checkpoint_world(c), worlds[w]);
            assert_int_equal(checkpoint_verify(c, NULL, NULL), NRL_OK);
            for (int v = 0; v < 4; v++)
                for (layout_kind want = FLAT; want < N_KINDS; want++)
                    check_pieces(c, worlds[v], want);
            checkpoint_close(c);
        }
}

static void replicas_share_the_work_of_writing(void **state)
{
    int64_t smallest = INT64_MAX, largest = 0, total = 0;
    struct stat s;
    (void)state;
    rank_run runs[MAX_WORLD] = {0};
    save_all(runs, 4, REPLICATED, 1, 30);
    for (int r = 0; r < 4; r++) {
        char *path = mem_printf("%s/checkpoints/step-00000001/rank-%05d.nrlc", out, r);
        assert_int_equal(stat(path, &s), 0);
        free(path);
        smallest = s.st_size < smallest ? s.st_size : smallest;
        largest = s.st_size > largest ? s.st_size : largest;
        total += s.st_size;
    }
    assert_true(total < 4 * 2 * 100 * 700 + 2 * 3 * 64 * 130);
    assert_true(largest < 2 * smallest);
}

static void a_ranks_own_state_comes_back_to_it(void **state)
{
    (void)state;
    rank_run runs[MAX_WORLD] = {0};
    save_all(runs, 3, FLAT, 1, 30);
    checkpoint *c = open_step(1);
    assert_int_equal(checkpoint_n_tensors(c), N_TENSORS); /* it is no tensor of the model */
    for (int32_t r = 0; r < 3; r++) {
        checkpoint_tensor own = {"parallel/residual", "rank", NRL_DTYPE_F32, 1, {100 + r}}, other = own;
        layout_shard whole = piece_of_whole(1, own.dims);
        unsigned char *expected = known_piece(&whole, 1000 + r, 4), is[4 * 110];
        bool found;
        assert_int_equal(checkpoint_read_rank(c, r, &own, is, &found), NRL_OK);
        assert_true(found);
        assert_memory_equal(is, expected, (size_t)own.dims[0] * 4);
        free(expected);
        other.dims[0]++;
        assert_int_equal(checkpoint_read_rank(c, r, &other, is, &found), NRL_OK);
        assert_false(found);
        assert_int_equal(nrl_node_int(checkpoint_rank_node(c, r, "parallel"), 0), 77 + r);
    }
    assert_null(checkpoint_rank_node(c, 3, "parallel"));
    checkpoint_close(c);
}

/* Whoever it is: all hear why, nothing is left, the earlier one is whole. */
static void a_rank_that_fails_makes_no_checkpoint(void **state)
{
    (void)state;
    rank_run good[MAX_WORLD] = {0};
    save_all(good, 3, FLAT, 1, 30);
    for (int32_t culprit = 0; culprit < 3; culprit++) {
        rank_run runs[MAX_WORLD] = {0};
        runs[culprit].fails = NRL_ERR_MEMORY;
        save_all(runs, 3, FLAT, 2, 30);
        for (int32_t r = 0; r < 3; r++) {
            assert_int_equal(runs[r].status, NRL_ERR_MEMORY);
            assert_non_null(strstr(runs[r].text, "this rank has no more memory"));
            if (r != culprit && culprit > 0)
                assert_non_null(strstr(runs[r].text, culprit == 1 ? "rank 1: " : "rank 2: "));
        }
        assert_int_equal(entries(), 1);
    }
    checkpoint *c = open_step(1);
    assert_int_equal(checkpoint_verify(c, NULL, NULL), NRL_OK);
    checkpoint_close(c);
}

static void a_rank_that_never_comes_is_named_after_the_time_out(void **state)
{
    (void)state;
    rank_run runs[MAX_WORLD] = {0};
    runs[1].absent = true;
    save_all(runs, 3, FLAT, 2, 5);
    assert_int_equal(runs[0].status, NRL_ERR_PEER);
    assert_non_null(strstr(runs[0].text, "rank 1 did not finish its part"));
    assert_int_equal(runs[2].status, NRL_ERR_PEER);
    assert_int_equal(entries(), 0);
}

enum { MANY_SAVES = 30 };

static void *save_often(void *user)
{
    rank_run *k = user;
    checkpoint_outcome o;
    bool done;
    checkpoint_writer *w;
    const checkpoint_ranks ranks = memory_ranks(k->store, k->rank, k->world, 20);
    const checkpoint_writer_options options = {.out = out, .ranks = &ranks, .threads = 1, .async = true, .keep = 1};
    if (checkpoint_writer_open(&options, &w) != NRL_OK) abort();
    for (int64_t step = 1; step <= MANY_SAVES; step++) {
        checkpoint_begin(w, step);
        if (step % 3 == 0 && k->rank == 1)
            checkpoint_abandon(w, nrl_fail(NRL_ERR_IO, "not this one"));
        else
            checkpoint_submit(w);
        if (checkpoint_poll(w, true, &o, &done) != (step % 3 ? NRL_OK : NRL_ERR_IO)) abort();
    }
    checkpoint_writer_close(w, false);
    return NULL;
}

static void many_saves_leave_no_words_behind(void **state)
{
    static memory_store store;
    rank_run runs[3] = {0};
    pthread_t threads[3];
    (void)state;
    memory_store_open(&store);
    for (int32_t r = 0; r < 3; r++) {
        runs[r] = (rank_run){.store = &store, .rank = r, .world = 3};
        assert_int_equal(pthread_create(&threads[r], NULL, save_often, &runs[r]), 0);
    }
    for (int32_t r = 0; r < 3; r++)
        pthread_join(threads[r], NULL);
    assert_int_equal(store.n, 2); /* the last one's begin and end: rank 0 does not know who has read them */
    memory_store_close(&store);
}

/* Two tensors in one checkpoint whose shards overlap, or leave something out. */
static void pieces_that_do_not_make_up_the_whole_are_refused(void **state)
{
    static const int64_t placements[][2][2] = {{{0, 50}, {50, 100}}, {{0, 50}, {49, 100}}, {{0, 50}, {51, 100}},
                                               {{0, 50}, {49, 99}},  {{0, 0}, {0, 99}},    {{0, 100}, {0, 100}}};
    float values[100] = {0};
    (void)state;
    for (size_t k = 0; k < sizeof placements / sizeof *placements; k++) {
        checkpoint_writer *w;
        checkpoint_outcome o;
        checkpoint *c;
        bool done;
        const checkpoint_writer_options options = {.out = out, .threads = 1};
        const checkpoint_tensor t = {"t", "weight", NRL_DTYPE_F32, 2, {10, 10}};
        assert_int_equal(checkpoint_writer_open(&options, &w), NRL_OK);
        checkpoint_begin(w, 1);
        for (int i = 0; i < 2; i++) {
            layout_shard p = piece_of_whole(2, t.dims);
            p.flat_begin = placements[k][i][0];
            p.flat_end = placements[k][i][1];
            checkpoint_add_tensor(w, &t, &p, values);
        }
        checkpoint_submit(w);
        assert_int_equal(checkpoint_poll(w, true, &o, &done), NRL_OK);
        nrl_status st = checkpoint_open(o.dir, &c);
        assert_int_equal(st, k ? NRL_ERR_CORRUPT : NRL_OK);
        if (k)
            assert_non_null(strstr(nrl_error_text(), "do not cover the tensor exactly once"));
        else
            checkpoint_close(c);
        checkpoint_writer_close(w, false);
    }
}

int main(void)
{
    if (!mkdtemp(out)) return 1;
#define CASE(f) cmocka_unit_test_setup(f, empty_folder)
    const struct CMUnitTest tests[] = {
        CASE(any_number_of_ranks_reads_what_any_other_wrote),
        CASE(replicas_share_the_work_of_writing),
        CASE(a_ranks_own_state_comes_back_to_it),
        CASE(a_rank_that_fails_makes_no_checkpoint),
        CASE(a_rank_that_never_comes_is_named_after_the_time_out),
        CASE(many_saves_leave_no_words_behind),
        CASE(pieces_that_do_not_make_up_the_whole_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command) || failed;
}
