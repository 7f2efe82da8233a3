/*
 * test_faults.c - every disk call of a save fails once, with EIO and with ENOSPC, and the power
 * fails after each of them, with and without the data that was not synced. In all cases the earlier
 * checkpoint or the new one is intact, and nothing else looks like a checkpoint.
 */
#include "base/disk.h"
#include "support/checkpoint.h"
#include "support/faults.h"
#include "run/output/out.h"
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Hundreds of saves, each with syncs: in memory where there is such a folder. */
static char out[64], after[64];
enum { MAX_WORLD = 2 };

static const checkpoint_tensor tensor = {"w", "weight", NRL_DTYPE_F32, 2, {300, 500}};

typedef struct {
    memory_store *store;
    int32_t rank, world;
    int64_t step, salt, keep;
    nrl_status status;
    char text[512];
    double write_s;
} saving;

static void *save_rank(void *user)
{
    saving *s = user;
    checkpoint_writer *w;
    checkpoint_outcome o;
    bool done;
    const checkpoint_ranks ranks = memory_ranks(s->store, s->rank, s->world, 30);
    const checkpoint_writer_options options = {
        .out = out, .ranks = s->world > 1 ? &ranks : NULL, .threads = 1, .async = true, .keep = s->keep};
    layout_shard whole = piece_of_whole(2, tensor.dims), own = piece_share(&whole, s->rank, s->world, 4096);
    unsigned char *bytes = known_piece(&own, s->salt, 4);
    if (checkpoint_writer_open(&options, &w) != NRL_OK) abort();
    checkpoint_begin(w, s->step);
    checkpoint_add_tensor(w, &tensor, &own, bytes);
    checkpoint_submit(w);
    fault_let_go();
    free(bytes);
    s->status = checkpoint_poll(w, true, &o, &done);
    s->write_s = o.write_s;
    snprintf(s->text, sizeof s->text, "%s", s->status ? nrl_error_text() : "");
    checkpoint_writer_close(w, false);
    return NULL;
}

/* The salt tells two saves of one step apart. */
static nrl_status save(int32_t world, int64_t step, int64_t salt, int64_t keep, saving ranks[MAX_WORLD])
{
    static memory_store store;
    pthread_t threads[MAX_WORLD];
    memory_store_open(&store);
    for (int32_t r = 0; r < world; r++) {
        ranks[r] = (saving){.store = &store, .rank = r, .world = world, .step = step, .salt = salt, .keep = keep};
        assert_int_equal(pthread_create(&threads[r], NULL, save_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < world; r++)
        pthread_join(threads[r], NULL);
    memory_store_close(&store);
    for (int32_t r = 0; r < world; r++)
        if (ranks[r].status) return ranks[r].status;
    return NRL_OK;
}

/* Which of the salts 0 .. 9 the checkpoint holds, whole; -1 = it cannot be read. */
static int64_t salt_of(const char *dir)
{
    checkpoint *c;
    layout_shard whole = piece_of_whole(2, tensor.dims);
    size_t size = (size_t)piece_numel(&whole) * 4;
    int64_t salt = -1;
    if (checkpoint_open(dir, &c) != NRL_OK) return -1;
    unsigned char *is = malloc(size);
    if (checkpoint_read(c, 0, &whole, is) == NRL_OK)
        for (int64_t k = 0; k < 10 && salt < 0; k++) {
            unsigned char *expected = known_piece(&whole, k, 4);
            if (!memcmp(is, expected, size)) salt = k;
            free(expected);
        }
    free(is);
    checkpoint_close(c);
    return salt;
}

static int64_t salt_of_step(const char *folder, int64_t step)
{
    char *dir = mem_printf("%s/checkpoints/step-%08lld", folder, (long long)step);
    int64_t salt = access(dir, F_OK) ? -2 : salt_of(dir);
    free(dir);
    return salt;
}

/* Names in OUT/checkpoints that are no final ones. */
static int left_behind(void)
{
    char *path = mem_printf("%s/checkpoints", out);
    DIR *d = opendir(path);
    int n = 0;
    free(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && (strchr(e->d_name, '.') || strncmp(e->d_name, "step-", 5))) n++;
    if (d) closedir(d);
    return n;
}

static void empty(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/checkpoints", folder);
    if (system(command)) fail();
}

static int set_up(void **state)
{
    (void)state;
    fault_none();
    fault_forget();
    empty(out);
    return 0;
}

/* ---- one call fails ---- */

/* Step 2 beside step 1, or step 1 again; the call number `at` fails. False: there is none any more. */
static bool try_fault(int32_t world, int64_t step, long at, int error, bool no_exchange)
{
    saving ranks[MAX_WORLD];
    fault_none();
    empty(out);
    assert_int_equal(save(world, 1, 1, 0, ranks), NRL_OK);
    fault_at = at;
    fault_error = error;
    fault_no_exchange = no_exchange;
    fault_count = 0;
    nrl_status st = save(world, step, 2, 0, ranks);
    bool hit = fault_count > at;
    fault_none();
    if (hit && st != NRL_OK) {
        if (error == ENOSPC)
            assert_int_equal(st, NRL_ERR_FULL);
        else
            assert_int_equal(st, NRL_ERR_IO);
        for (int32_t r = 0; r < world; r++)
            assert_true(ranks[r].status != NRL_OK); /* all hear it */
        if (salt_of_step(out, 1) != 1) fail_msg("call %ld: the earlier one is damaged: %s", at, ranks[0].text);
        if (step == 2 && salt_of_step(out, 2) != -2) fail_msg("call %ld: a checkpoint that failed is there", at);
    } else if (salt_of_step(out, step) != 2)
        fail_msg("call %ld: said to be saved and is not", at);
    if (step != 1) assert_int_equal(salt_of_step(out, 1), 1);
    /* what could not be removed goes with the next save */
    assert_int_equal(save(world, 3, 3, 0, ranks), NRL_OK);
    assert_int_equal(salt_of_step(out, 3), 3);
    if (left_behind()) fail_msg("call %ld: something is left behind", at);
    return hit;
}

static void every_call_that_fails_leaves_a_whole_checkpoint(void **state)
{
    long n = 0;
    (void)state;
    for (int32_t world = 1; world <= MAX_WORLD; world++)
        for (int64_t step = 1; step <= 2; step++)
            for (int e = 0; e < 2; e++) {
                long at = 0;
                while (try_fault(world, step, at, e ? ENOSPC : EIO, false))
                    at++;
                assert_true(at >= 14);
                n += at;
            }
    for (long at = 0; try_fault(1, 1, at, EIO, true);)
        at++, n++;
    printf("%ld calls failed\n", n);
}

static void a_failed_save_leaves_no_temporary_files(void **state)
{
    static const fault_kind kinds[] = {FAULT_CREATE, FAULT_WRITE, FAULT_SYNC};
    saving ranks[MAX_WORLD];
    (void)state;
    for (int32_t culprit = 0; culprit < 2; culprit++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            fault_none();
            fault_match = culprit ? "rank-00001" : "rank-00000";
            fault_kind_wanted = (int)kinds[k];
            fault_at = 0;
            fault_stays = true;
            fault_error = EIO;
            assert_int_equal(save(2, 2, 2, 0, ranks), NRL_ERR_IO);
            for (int32_t r = 0; r < 2; r++) {
                assert_int_equal(ranks[r].status, NRL_ERR_IO);
                assert_non_null(strstr(ranks[r].text, culprit ? "rank-00001.nrlc" : "rank-00000.nrlc"));
            }
            assert_int_equal(left_behind(), 0);
            assert_int_equal(salt_of_step(out, 2), -2);
        }
}

static void short_writes_are_gone_on_with(void **state)
{
    saving ranks[MAX_WORLD];
    (void)state;
    fault_short_writes = true;
    assert_int_equal(save(2, 1, 1, 0, ranks), NRL_OK);
    assert_int_equal(salt_of_step(out, 1), 1);
}

static void a_sync_that_a_signal_ended_is_begun_again(void **state)
{
    saving ranks[MAX_WORLD];
    (void)state;
    fault_kind_wanted = FAULT_SYNC;
    fault_error = EINTR;
    for (fault_at = 0; fault_at < 4; fault_at++) {
        fault_count = 0;
        assert_int_equal(save(1, 1, 1, 0, ranks), NRL_OK);
        assert_true(fault_count > fault_at);
        assert_int_equal(salt_of_step(out, 1), 1);
    }
}

static void a_slow_disk_does_not_hold_up_the_run(void **state)
{
    saving ranks[MAX_WORLD];
    (void)state;
    fault_holds = true; /* until the submit has returned */
    assert_int_equal(save(1, 1, 1, 0, ranks), NRL_OK);
    assert_false(fault_waited_in_vain);
    assert_true(fault_count > 0);
    assert_true(ranks[0].write_s > 0);
    assert_int_equal(salt_of_step(out, 1), 1);
}

/* ---- the power fails ---- */

/* out/... -> after/... */
static char *moved(const char *path)
{
    return mem_printf("%s%s", after, path + strlen(out));
}

static bool is_in(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    return (size_t)(slash - path) == strlen(folder) && !strncmp(path, folder, strlen(folder));
}

/* Whether event e was synced before event `end`: names by their folder, bytes by their file. */
static bool is_synced(size_t e, size_t end)
{
    const fault_event *event = &fault_events[e];
    for (size_t i = e + 1; i < end; i++) {
        if (fault_events[i].kind != FAULT_SYNC) continue;
        if (event->kind == FAULT_WRITE ? !strcmp(event->path, fault_events[i].path)
                                       : is_in(event->path, fault_events[i].path))
            return true;
    }
    return false;
}

/* Bytes that were written and not synced are gone, though the file's name and length may be there. */
static void replay_write(const fault_event *e, bool synced)
{
    char *path = moved(e->path), *zeros = calloc(e->size, 1);
    FILE *f = fopen(path, "ab");
    if (f) fwrite(synced ? e->bytes : zeros, 1, e->size, f);
    if (f) fclose(f);
    free(path);
    free(zeros);
}

static void replay_name(const fault_event *e)
{
    char *path = moved(e->path), *to = e->to ? moved(e->to) : NULL;
    if (e->kind == FAULT_MAKE_FOLDER) mkdir(path, 0777);
    if (e->kind == FAULT_CREATE) close(creat(path, 0666));
    if (e->kind == FAULT_RENAME) rename(path, to);
    if (e->kind == FAULT_EXCHANGE) renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_EXCHANGE);
    if (e->kind == FAULT_REMOVE) unlink(path);
    if (e->kind == FAULT_REMOVE_FOLDER) rmdir(path);
    free(path);
    free(to);
}

/* The state after the first `end` events; `strict`: also names that were not synced are gone. A file that
 * lost its name loses its bytes with it. */
static void replay(size_t end, bool strict)
{
    for (size_t i = 0; i < end; i++) {
        const fault_event *e = &fault_events[i];
        if (e->kind == FAULT_SYNC) continue;
        if (e->kind == FAULT_WRITE) {
            char *path = moved(e->path);
            if (access(path, F_OK) == 0) replay_write(e, is_synced(i, end));
            free(path);
        } else if (!strict || is_synced(i, end))
            replay_name(e);
    }
}

/* After each event of a save of `step` with salt 2 that follows one of step 1 with salt 1. */
static void crash_everywhere(int32_t world, int64_t step, int64_t keep, bool no_exchange)
{
    saving ranks[MAX_WORLD];
    char copy[256];
    empty(out);
    fault_none();
    fault_forget();
    assert_int_equal(save(world, 1, 1, 0, ranks), NRL_OK);
    snprintf(copy, sizeof copy, "rm -rf %s/before && cp -r %s/checkpoints %s/before", after, out, after);
    assert_int_equal(system(copy), 0);
    fault_recording = true;
    fault_no_exchange = no_exchange;
    assert_int_equal(save(world, step, 2, keep, ranks), NRL_OK);
    fault_none();
    const char *folder = fault_folder;
    fault_folder = NULL; /* what follows is ours */
    bool was_new = false;
    for (size_t end = 0; end <= fault_n_events; end++)
        for (int strict = 0; strict < 2; strict++) {
            char *newest, **all;
            size_t n;
            snprintf(copy, sizeof copy, "rm -rf %s/checkpoints && cp -r %s/before %s/checkpoints", after, after, after);
            assert_int_equal(system(copy), 0);
            replay(end, strict);
            assert_int_equal(checkpoint_list(after, &all, &n), NRL_OK);
            for (size_t i = 0; i < n; i++)
                if (salt_of(all[i]) < 1) fail_msg("after %zu calls %s is not whole: %s", end, all[i], nrl_error_text());
            checkpoint_list_free(all, n);
            assert_int_equal(checkpoint_find_newest(after, &newest), NRL_OK);
            if (!newest) fail_msg("after %zu calls there is no checkpoint", end);
            int64_t salt = salt_of(newest);
            free(newest);
            was_new = was_new || salt == 2;
            if (was_new && !strict && salt != 2) fail_msg("after %zu calls the new one is gone", end);
            if (end == fault_n_events && salt != 2) /* what was told to be saved is */
                fail_msg("at the end (strict %d, step %lld) the new one is not there", strict, (long long)step);
        }
    fault_folder = folder;
}

static void after_every_call_the_old_or_the_new_one_is_whole(void **state)
{
    (void)state;
    crash_everywhere(1, 2, 0, false);
    crash_everywhere(2, 2, 0, false);
    crash_everywhere(1, 1, 0, false); /* in the place of the old one */
    crash_everywhere(1, 2, 1, false); /* the old one is removed afterwards */
    crash_everywhere(1, 1, 0, true);
}

/* Else the power could take a run's folder with all that was synced inside. */
static void each_new_folder_above_a_run_is_durable(void **state)
{
    char *path = mem_printf("%s/checkpoints/a/b", out), *above = mem_printf("%s/checkpoints", out);
    bool is_made = false;
    (void)state;
    fault_recording = true;
    assert_int_equal(disk_make_folders("out", path), NRL_OK);
    fault_recording = false;
    for (size_t i = 0; i < fault_n_events; i++) {
        if (fault_events[i].kind != FAULT_MAKE_FOLDER) continue;
        assert_true(is_synced(i, fault_n_events));
        is_made = is_made || is_in(fault_events[i].path, above);
    }
    assert_true(is_made);
    free(path);
    free(above);
}

int main(void)
{
    const char *base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(out, sizeof out, "%s/test-nrl-faults-XXXXXX", base);
    snprintf(after, sizeof after, "%s/test-nrl-crash-XXXXXX", base);
    if (!mkdtemp(out) || !mkdtemp(after)) return 1;
    fault_folder = out;
#define CASE(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        CASE(every_call_that_fails_leaves_a_whole_checkpoint),
        CASE(a_failed_save_leaves_no_temporary_files),
        CASE(short_writes_are_gone_on_with),
        CASE(a_sync_that_a_signal_ended_is_begun_again),
        CASE(each_new_folder_above_a_run_is_durable),
        CASE(a_slow_disk_does_not_hold_up_the_run),
        CASE(after_every_call_the_old_or_the_new_one_is_whole),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[256];
    fault_folder = NULL;
    fault_forget();
    snprintf(command, sizeof command, "rm -rf %s %s", out, after);
    return system(command) || failed;
}
