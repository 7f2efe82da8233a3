/*
 * join.c - the ranks meet: each writes a join request under its number. Rank 0 waits for all of them, compares them and
 * writes the roll: who the ranks are, or what is wrong with them. All others read only the roll, so that the traffic of
 * a join grows with the number of ranks and not with its square (tests/bench/bench_join.c).
 *
 * A join request is "key: value" lines, an empty line, and the fingerprint. The roll is a line with a status, and then
 * the text of the error, or a line "PROCESS LOCAL-RANK HOST" for each rank.
 */
#include "base/arena.h"
#include "base/lines.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROLL_KEY "roll"
#define FIRST_LOOK_S 0.002
#define LOOK_S 0.05     /* for each LOOK_RANKS ranks, so that a large number of them does not overload the store */
#define LATE_ROLL_S 1.0 /* rank 0 reports who is missing when its time is over; the others wait for that report */
enum { MAX_HELLO = 1 << 20, MAX_FIELD = 64, HELLO_FORMAT = 3, LOOK_RANKS = 64 };

typedef struct {
    int format, rank, world, local_rank, pid;
    char host[MAX_FIELD], version[MAX_FIELD];
    const char *fingerprint; /* in the join_request's text */
} join_request;

static char *join_request_key(int32_t rank)
{
    return mem_printf("hello/%d", (int)rank);
}

static void host_name(char host[MAX_FIELD])
{
    memset(host, 0, MAX_FIELD);
    gethostname(host, MAX_FIELD - 1);
    if (!*host) snprintf(host, MAX_FIELD, "unknown");
    for (char *at = host; *at; at++)
        if (*at <= ' ') *at = '_';
}

static char *join_request_text(const nrl_mesh *m, const char *fingerprint)
{
    char host[MAX_FIELD];
    host_name(host);
    return mem_printf("format: %d\nrank: %d\nworld: %d\npid: %d\nhost: %s\nversion: %s\nlocal: %d\n\n%s", HELLO_FORMAT,
                      (int)m->place.rank, (int)m->place.world, (int)getpid(), host, NRL_VERSION,
                      (int)m->place.local_rank, fingerprint ? fingerprint : "");
}

static nrl_status parse_join_request(const char *text, int32_t rank, join_request *h)
{
    const char *end = strstr(text, "\n\n");
    *h = (join_request){0};
    if (!end ||
        sscanf(text, "format: %d\nrank: %d\nworld: %d\npid: %d\nhost: %63s\nversion: %63s\nlocal: %d\n", &h->format,
               &h->rank, &h->world, &h->pid, h->host, h->version, &h->local_rank) < 6 ||
        h->rank != rank)
        return nrl_fail(NRL_ERR_PEER, "rank %d does not use the protocol of nrl %s", (int)rank, NRL_VERSION);
    h->fingerprint = end + 2;
    return NRL_OK;
}

/* ---- join requests ---- */

static nrl_status number_is_taken(nrl_mesh *m, const char *there)
{
    join_request h;
    if (parse_join_request(there, m->place.rank, &h)) return NRL_ERR_PEER;
    return nrl_fail(NRL_ERR_CONFIG,
                    "rank %d already exists: process %d on %s\n"
                    "hint: two processes have the same rank, or the store of an earlier run is used again",
                    (int)m->place.rank, h.pid, h.host);
}

static nrl_status send_join_request(nrl_mesh *m, const char *fingerprint)
{
    char *key = join_request_key(m->place.rank), *mine = join_request_text(m, fingerprint), *now = NULL;
    nrl_status st = NRL_OK;
    if (strlen(mine) > MAX_HELLO) st = nrl_fail(NRL_ERR_BUG, "a fingerprint of %zu bytes", strlen(mine));
    if (!st) st = store_set_once(m->keys, key, mine, &now);
    if (!st && strcmp(now, mine)) st = number_is_taken(m, now);
    m->is_member = !st;
    free(now);
    free(mine);
    free(key);
    return st;
}

bool mesh_rank_is_other(nrl_store *keys, int32_t rank, int32_t pid)
{
    char *key = join_request_key(rank), host[MAX_FIELD];
    void *value = NULL;
    size_t size;
    bool found = false, other = false;
    join_request h;
    host_name(host);
    if (!store_try_get(keys, key, &found, &value, &size) && found && !parse_join_request(value, rank, &h))
        other = h.pid != pid || strcmp(h.host, host) != 0;
    free(value);
    free(key);
    return other;
}

/* ---- waiting ---- */

static nrl_status missing_ranks(nrl_mesh *m, char *const *keys)
{
    buffer there = {0}, missing = {0};
    int32_t n = 0, world = m->place.world;
    for (int32_t r = 0; r < world; r++) {
        void *value = NULL;
        size_t size;
        bool found = false;
        join_request h = {0};
        if (store_try_get(m->keys, keys[r], &found, &value, &size)) found = false;
        if (found && !parse_join_request(value, r, &h)) {
            buffer_print(&there, "%s%d (%s)", there.size ? ", " : "", (int)r, h.host);
            n++;
        } else {
            buffer_print(&missing, "%s%d", missing.size ? ", " : "", (int)r);
        }
        free(value);
    }
    nrl_status st = nrl_fail(NRL_ERR_PEER,
                             "%d of %d ranks joined within %g s (launch.timeout_init)\n"
                             "joined: %s\nmissing: %s",
                             (int)n, (int)world, m->timeout_init, there.size ? there.text : "none",
                             missing.size ? missing.text : "none");
    buffer_free(&there);
    buffer_free(&missing);
    return st;
}

/* Sleeps before the next look, longer each time. */
static void look_later(const nrl_mesh *m, double *pause)
{
    const double most = LOOK_S * (m->place.world > LOOK_RANKS ? (double)m->place.world / LOOK_RANKS : 1);
    clock_sleep(*pause);
    *pause = 2 * *pause < most ? 2 * *pause : most;
}

static nrl_status other_failed(const nrl_mesh *m, const abort_record *w)
{
    if (w->culprit == m->place.rank)
        return nrl_fail(NRL_ERR_PEER, "another process of rank %d failed: %s", (int)w->culprit, w->text);
    return nrl_fail(NRL_ERR_PEER, "rank %d failed: %s", (int)w->culprit, w->text);
}

static nrl_status check_signal(const nrl_mesh *m)
{
    if (!m->signal || !*m->signal) return NRL_OK;
    return nrl_fail(NRL_ERR_STOPPED, "received signal %d before all ranks had joined", *m->signal);
}

static nrl_status wait_for_requests(nrl_mesh *m, char *const *keys, double deadline)
{
    double pause = FIRST_LOOK_S;
    for (bool all = false;;) {
        abort_record w;
        NRL_TRY(abort_record_read(m->keys, &w));
        NRL_TRY(store_all_there(m->keys, (const char *const *)keys, (size_t)m->place.world, &all));
        if (all) return NRL_OK; /* a difference explains more than the failure that followed from it */
        if (w.kind != ABORT_NONE) return other_failed(m, &w);
        NRL_TRY(check_signal(m));
        if (clock_seconds() >= deadline) return missing_ranks(m, keys);
        look_later(m, &pause);
    }
}

/* ---- rank 0: comparing ---- */

static nrl_status compare_all(const nrl_mesh *m, char *const *texts, join_request *requests)
{
    const int32_t world = m->place.world;
    for (int32_t r = 0; r < world; r++) {
        NRL_TRY(parse_join_request(texts[r], r, &requests[r]));
        const join_request *a = &requests[0], *b = &requests[r];
        if (a->world != b->world)
            return nrl_fail(NRL_ERR_CONFIG,
                            "rank %d (%s, process %d) belongs to %d ranks, rank %d (%s, process %d) to %d", a->rank,
                            a->host, a->pid, a->world, b->rank, b->host, b->pid, b->world);
        if (a->format != b->format || strcmp(a->version, b->version))
            return nrl_fail(NRL_ERR_CONFIG, "rank %d (%s) runs nrl %s, rank %d (%s) nrl %s", a->rank, a->host,
                            a->version, b->rank, b->host, b->version);
    }
    lines_record *records = mem_alloc((size_t)world * sizeof *records);
    const char **hosts = mem_alloc((size_t)world * sizeof *hosts);
    for (int32_t r = 0; r < world; r++) {
        hosts[r] = requests[r].host;
        lines_compare(requests[0].fingerprint, requests[r].fingerprint, &records[r]);
    }
    nrl_status st = lines_report(records, hosts, world, requests[0].fingerprint, NULL);
    free(hosts);
    free(records);
    return st;
}

static nrl_status read_requests(const nrl_mesh *m, char *const *keys, buffer *roll)
{
    const size_t world = (size_t)m->place.world;
    char **texts = mem_alloc(world * sizeof *texts);
    join_request *requests = mem_alloc(world * sizeof *requests);
    nrl_status st = store_get_all(m->keys, (const char *const *)keys, world, texts);
    if (!st) st = compare_all(m, texts, requests);
    for (size_t r = 0; r < world && !st; r++)
        buffer_print(roll, "%d %d %s\n", requests[r].pid, requests[r].local_rank, requests[r].host);
    for (size_t r = 0; r < world; r++)
        free(texts[r]);
    free(requests);
    free(texts);
    return st;
}

/* Writes the roll; fails only if that fails, or if this rank is to stop. */
static nrl_status call_roll(nrl_mesh *m, double deadline)
{
    const int32_t world = m->place.world;
    buffer roll = {0};
    char **keys = mem_alloc((size_t)world * sizeof *keys);
    for (int32_t r = 0; r < world; r++)
        keys[r] = join_request_key(r);
    buffer_print(&roll, "%d\n", (int)NRL_OK);
    nrl_status st = wait_for_requests(m, keys, deadline);
    if (!st) st = read_requests(m, keys, &roll);
    for (int32_t r = 0; r < world; r++)
        free(keys[r]);
    free(keys);
    if (st && st != NRL_ERR_STOPPED) {
        roll.size = 0;
        buffer_print(&roll, "%d\n%s", (int)st, nrl_error_text());
        st = NRL_OK;
    }
    if (!st) st = nrl_store_set(m->keys, ROLL_KEY, roll.text, roll.size);
    buffer_free(&roll);
    return st;
}

/* ---- all ranks: the roll ---- */

static nrl_status wait_for_roll(nrl_mesh *m, double deadline, char **roll)
{
    double pause = FIRST_LOOK_S;
    for (bool failed = false;;) {
        abort_record w;
        size_t size;
        bool found;
        void *value;
        NRL_TRY(store_try_get(m->keys, ROLL_KEY, &found, &value, &size));
        *roll = value;
        if (found) return NRL_OK;
        NRL_TRY(abort_record_read(m->keys, &w));
        if (w.kind != ABORT_NONE && failed) return other_failed(m, &w);
        failed = w.kind != ABORT_NONE; /* rank 0 may have written the roll before it failed, so look once more */
        if (failed) continue;
        NRL_TRY(check_signal(m));
        if (clock_seconds() >= deadline)
            return nrl_fail(NRL_ERR_PEER, "rank 0 did not join within %g s (launch.timeout_init)", m->timeout_init);
        look_later(m, &pause);
    }
}

/* Counts the nodes from the numbers that launchers give, or from host names if these distinguish more nodes. */
static int32_t count_nodes(const nrl_mesh *m, int32_t n_first)
{
    int32_t hosts = 0;
    for (int32_t r = 0; r < m->place.world; r++) {
        int32_t earlier = r ? r - 1 : 0; /* most ranks are on the node of the rank before them */
        while (earlier > 0 && strcmp(m->hosts[earlier], m->hosts[r]))
            earlier--;
        hosts += !r || strcmp(m->hosts[earlier], m->hosts[r]) != 0;
    }
    return hosts > n_first ? hosts : n_first;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

static nrl_status read_roll(nrl_mesh *m, const char *roll)
{
    const int32_t world = m->place.world;
    char *at;
    const long code = strtol(roll, &at, 10);
    if (*at != '\n') return nrl_fail(NRL_ERR_PEER, "rank 0 does not use the protocol of nrl %s", NRL_VERSION);
    at++;
    if (code) return nrl_fail((nrl_status)code, "%s", at);
    int32_t local = 0, n_first = 0;
    m->node_divisor = world; /* of the ranks that are the first of a node */
    m->names = mem_alloc((size_t)world * sizeof *m->names);
    m->hosts = mem_alloc((size_t)world * sizeof *m->hosts);
    for (int32_t r = 0; r < world; r++) {
        char host[MAX_FIELD];
        int pid, local_rank, n = 0;
        if (sscanf(at, "%d %d %63s\n%n", &pid, &local_rank, host, &n) < 3)
            return nrl_fail(NRL_ERR_PEER, "the list of ranks from rank 0 ends before rank %d", (int)r);
        at += n;
        m->names[r] = mem_printf("rank %d (%s, process %d)", (int)r, host, pid);
        m->hosts[r] = mem_strdup(host);
        n_first += local_rank == 0;
        if (local_rank == 0) m->node_divisor = common_divisor(m->node_divisor, r);
    }
    if (n_first < 2) m->node_divisor = 0; /* one node, or launchers that do not number the ranks of a node */
    for (int32_t r = 0; r < world; r++)
        local += !strcmp(m->hosts[m->place.rank], m->hosts[r]);
    if (m->place.local_world <= 0) m->place.local_world = local;
    m->n_nodes = count_nodes(m, n_first);
    return NRL_OK;
}

nrl_status mesh_join(nrl_mesh *m, const char *fingerprint, double deadline)
{
    char *roll;
    NRL_TRY(control_announce(m->keys, m->place.rank));
    NRL_TRY(send_join_request(m, fingerprint));
    if (!m->place.rank) NRL_TRY(call_roll(m, deadline));
    NRL_TRY(wait_for_roll(m, deadline + LATE_ROLL_S, &roll));
    nrl_status st = read_roll(m, roll);
    free(roll);
    return st;
}
