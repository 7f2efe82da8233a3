/*
 * bench_join.c - many ranks as processes of one machine, which join through the tcp store of rank 0 and then send
 * heartbeats; without a collective. Prints JSON and never judges.
 *
 *   bench_join [ranks=256] [seconds=5] [fingerprint=2000]
 *
 * join_s: from the start of the first process until the last rank has joined. The calls of a rank are those of its
 * store. rank 0 serves them: its processor time and memory are those of its whole process.
 */
#include "base/clock.h"
#include "mesh/control.h"
#include "mesh/internal.h"
#include "support/store.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MAX_RANKS = 4096 };

typedef struct {
    atomic_int joined, failed;
    atomic_bool stop;
    atomic_llong join_calls, watch_calls, join_bytes; /* of all ranks */
    double joined_at, cpu_join_s, cpu_watch_s;        /* of the last rank, of rank 0 */
    long peak_kib;                                    /* of rank 0 */
    char error[512];
} shared;

static shared *all;
static const nrl_store_plugin *inner;
static long long calls, bytes;

/* ---- a store that counts ---- */

static nrl_status count_set(void *self, const char *key, const void *value, size_t size)
{
    calls++, bytes += (long long)(strlen(key) + size);
    return inner->set(self, key, value, size);
}

static nrl_status count_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    nrl_status st = inner->get(self, key, timeout_s, found, value, size);
    calls++, bytes += (long long)(strlen(key) + (st == NRL_OK && *found ? *size : 0));
    return st;
}

static nrl_status count_set_once(void *self, const char *key, const char *text, char **now)
{
    nrl_status st = inner->set_once(self, key, text, now);
    calls++, bytes += (long long)(strlen(key) + strlen(text) + (st == NRL_OK ? strlen(*now) : 0));
    return st;
}

static nrl_status count_add(void *self, const char *key, int64_t amount, int64_t *result)
{
    calls++, bytes += (long long)strlen(key) + 16;
    return inner->add(self, key, amount, result);
}

static nrl_status count_all_there(void *self, const char *const *keys, size_t n, bool *there)
{
    calls++;
    for (size_t i = 0; i < n; i++)
        bytes += (long long)strlen(keys[i]);
    return inner->all_there(self, keys, n, there);
}

static nrl_status count_get_all(void *self, const char *const *keys, size_t n, char **values)
{
    nrl_status st = inner->get_all(self, keys, n, values);
    calls++;
    for (size_t i = 0; i < n && st == NRL_OK; i++)
        bytes += (long long)(strlen(keys[i]) + strlen(values[i]));
    return st;
}

/* ---- one rank ---- */

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void print_nothing(void *user, buffer *text)
{
    (void)user, (void)text;
}

static void hear_nothing(void *user)
{
    (void)user;
}

static nrl_status run_rank(int32_t rank, int32_t world, const char *address, const char *fingerprint)
{
    static nrl_store_plugin table;
    table = *inner;
    table.set = count_set, table.get = count_get, table.set_once = count_set_once, table.add = count_add;
    table.all_there = count_all_there, table.get_all = count_get_all;
    const store_kind kind = {&table, NULL};
    nrl_mesh *m = calloc(1, sizeof *m);
    m->place = (mesh_rank_info){.rank = rank, .world = world, .local_rank = rank, .local_world = world};
    m->timeout_init = 300;
    store_setup s = {.address = address, .job = "", .timeout_s = 300};
    NRL_TRY(store_open(&kind, &s, &m->store));
    NRL_TRY(store_open_prefix(m->store, "nrl/job", NULL, NULL, &m->keys));
    NRL_TRY(mesh_join(m, fingerprint, clock_seconds() + 300));
    const double now = clock_seconds();
    if (atomic_fetch_add(&all->joined, 1) + 1 == world) all->joined_at = now;
    atomic_fetch_add(&all->join_calls, calls);
    atomic_fetch_add(&all->join_bytes, bytes);
    const control_setup c = {
        .store = m->keys, .rank = rank, .world = world, .record = print_nothing, .unheard = hear_nothing};
    control *watch;
    NRL_TRY(control_open(&c, &watch));
    while (atomic_load(&all->joined) < world && !atomic_load(&all->stop))
        clock_sleep(0.01);
    const long long calls_before = calls;
    const double cpu_before = cpu_seconds();
    if (!rank) all->cpu_join_s = cpu_before;
    while (!atomic_load(&all->stop))
        clock_sleep(0.1);
    atomic_fetch_add(&all->watch_calls, calls - calls_before);
    if (!rank) {
        struct rusage u;
        getrusage(RUSAGE_SELF, &u);
        all->peak_kib = u.ru_maxrss;
        all->cpu_watch_s = cpu_seconds() - cpu_before;
    }
    abort_record why;
    control_failure_cause(watch, &why);
    if (why.kind != ABORT_NONE) return nrl_fail(NRL_ERR_PEER, "rank %d: %s", (int)rank, why.text);
    return NRL_OK; /* the process ends; nobody watches any more */
}

static double argument(int argc, char **argv, const char *name, double value)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, strlen(name)) && argv[i][strlen(name)] == '=')
            value = strtod(argv[i] + strlen(name) + 1, NULL);
    return value;
}

int main(int argc, char **argv)
{
    const int32_t world = (int32_t)argument(argc, argv, "ranks", 256);
    const double seconds = argument(argc, argv, "seconds", 5);
    const size_t size = (size_t)argument(argc, argv, "fingerprint", 2000);
    if (world < 2 || world > MAX_RANKS) return fprintf(stderr, "ranks: expected 2 to %d\n", MAX_RANKS), 2;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *fingerprint = calloc(1, size + 64), address[32];
    for (size_t n = 0; n < size; n = strlen(fingerprint))
        sprintf(fingerprint + n, "key %zu: value\n", n);
    inner = test_store_kind("tcp").table;
    int fd;
    snprintf(address, sizeof address, "127.0.0.1:%d",
             (int)test_taken_port(&fd)); /* free again, a moment before rank 0 takes it */
    close(fd);
    const double start = clock_seconds();
    for (int32_t r = 0; r < world; r++) {
        if (fork()) continue;
        store_server *server = NULL;
        nrl_status st = NRL_OK;
        const store_kind kind = {inner, NULL};
        const store_setup s = {.address = address, .job = ""};
        if (!r) st = store_serve(&kind, &s, &server);
        if (st == NRL_OK) st = run_rank(r, world, address, fingerprint);
        if (st != NRL_OK && !atomic_fetch_add(&all->failed, 1))
            snprintf(all->error, sizeof all->error, "%s", nrl_error_text());
        if (!r) clock_sleep(2); /* the others leave first */
        _exit(st != NRL_OK);
    }
    while (atomic_load(&all->joined) < world && !atomic_load(&all->failed) && clock_seconds() < start + 300)
        clock_sleep(0.01);
    if (!atomic_load(&all->failed)) clock_sleep(seconds);
    atomic_store(&all->stop, true);
    while (wait(NULL) > 0)
        continue;
    if (atomic_load(&all->failed)) return fprintf(stderr, "%s\n", all->error), 1;
    printf("{\"ranks\": %d, \"join_s\": %.2f, \"join_calls_a_rank\": %.1f, \"join_bytes_a_rank\": %.0f, "
           "\"join_cpu_s_of_rank_0\": %.2f, \"watch_calls_a_rank_and_s\": %.2f, \"watch_cpu_share_of_rank_0\": %.3f, "
           "\"peak_mib_of_rank_0\": %.1f}\n",
           (int)world, all->joined_at - start, (double)all->join_calls / world, (double)all->join_bytes / world,
           all->cpu_join_s, (double)all->watch_calls / world / seconds, all->cpu_watch_s / seconds,
           (double)all->peak_kib / 1024);
    return 0;
}
