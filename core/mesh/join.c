/*
 * join.c - the ranks meet: each writes a join_request under its number, waits for all others' and compares.
 * Who finds something wrong tells it, so that the others need not wait for their time-out.
 *
 * A join_request is "key: value" lines, an empty line, and the fingerprint.
 */
#include "base/arena.h"
#include "base/lines.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_S 0.05
enum { MAX_HELLO = 1 << 20, MAX_FIELD = 64, HELLO_FORMAT = 2 };

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
        return nrl_fail(NRL_ERR_PEER, "rank %d does not speak as a rank of nrl %s", (int)rank, NRL_VERSION);
    h->fingerprint = end + 2;
    return NRL_OK;
}

/* ---- saying join_request ---- */

static nrl_status number_is_taken(nrl_mesh *m, const char *there)
{
    join_request h;
    if (parse_join_request(there, m->place.rank, &h)) return NRL_ERR_PEER;
    return nrl_fail(NRL_ERR_CONFIG,
                    "rank %d is there already: process %d on %s\n"
                    "two processes have the same number, or the store of an earlier run is used again",
                    (int)m->place.rank, h.pid, h.host);
}

static nrl_status say_join_request(nrl_mesh *m, const char *fingerprint)
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

static nrl_status wait_for_all(nrl_mesh *m, char *const *keys, double deadline)
{
    for (bool all = false;;) {
        abort_record w;
        NRL_TRY(abort_record_read(m->keys, &w));
        NRL_TRY(store_all_there(m->keys, (const char *const *)keys, (size_t)m->place.world, &all));
        if (all) return NRL_OK; /* each rank compares for itself, whoever has found a difference already */
        if (w.kind != ABORT_NONE) {
            if (w.culprit == m->place.rank)
                return nrl_fail(NRL_ERR_PEER, "another process of rank %d failed: %s", (int)w.culprit, w.text);
            return nrl_fail(NRL_ERR_PEER, "rank %d failed: %s", (int)w.culprit, w.text);
        }
        if (m->signal && *m->signal)
            return nrl_fail(NRL_ERR_STOPPED, "signal %d came before all ranks had joined", *m->signal);
        if (clock_seconds() >= deadline) return missing_ranks(m, keys);
        clock_sleep(LOOK_S);
    }
}

/* ---- comparing ---- */

/* What the others' join_requests tell about the mesh. */
static void keep_info(nrl_mesh *m, const join_request *join_requests)
{
    int32_t world = m->place.world, local = 0;
    m->names = mem_alloc((size_t)world * sizeof *m->names);
    m->hosts = mem_alloc((size_t)world * sizeof *m->hosts);
    for (int32_t r = 0; r < world; r++) {
        m->names[r] = mem_printf("rank %d (%s, process %d)", (int)r, join_requests[r].host, join_requests[r].pid);
        m->hosts[r] = mem_strdup(join_requests[r].host);
        local += !strcmp(join_requests[m->place.rank].host, join_requests[r].host);
    }
    if (m->place.local_world <= 0) m->place.local_world = local;
    /* Nodes by what launchers say of their ranks, or by host names where these tell of more. */
    int32_t first_ranks = 0, hosts = 0;
    for (int32_t r = 0; r < m->place.world; r++) {
        int32_t earlier = 0;
        while (earlier < r && strcmp(join_requests[earlier].host, join_requests[r].host))
            earlier++;
        hosts += earlier == r;
        first_ranks += join_requests[r].local_rank == 0;
    }
    m->n_nodes = hosts > first_ranks ? hosts : first_ranks;
}

static nrl_status compare_all(nrl_mesh *m, char *const *texts, join_request *join_requests)
{
    for (int32_t r = 0; r < m->place.world; r++) {
        NRL_TRY(parse_join_request(texts[r], r, &join_requests[r]));
        const join_request *a = &join_requests[0], *b = &join_requests[r];
        if (a->world != b->world)
            return nrl_fail(NRL_ERR_CONFIG,
                            "rank %d (%s, process %d) belongs to %d ranks, rank %d (%s, process %d) to %d", a->rank,
                            a->host, a->pid, a->world, b->rank, b->host, b->pid, b->world);
        if (a->format != b->format || strcmp(a->version, b->version))
            return nrl_fail(NRL_ERR_CONFIG, "rank %d (%s) runs nrl %s, rank %d (%s) nrl %s", a->rank, a->host,
                            a->version, b->rank, b->host, b->version);
    }
    keep_info(m, join_requests);
    /* The fingerprints that the join_requests end with. */
    int32_t world = m->place.world;
    lines_record *records = mem_alloc((size_t)world * sizeof *records);
    for (int32_t r = 0; r < world; r++)
        lines_compare(join_requests[0].fingerprint, join_requests[r].fingerprint, &records[r]);
    nrl_status st = lines_report(records, (const char *const *)m->hosts, world, join_requests[0].fingerprint, NULL);
    free(records);
    return st;
}

static nrl_status meet(nrl_mesh *m, char *const *keys, double deadline)
{
    size_t world = (size_t)m->place.world;
    NRL_TRY(wait_for_all(m, keys, deadline));
    char **texts = mem_alloc(world * sizeof *texts);
    nrl_status st = store_get_all(m->keys, (const char *const *)keys, world, texts);
    join_request *join_requests = mem_alloc(world * sizeof *join_requests);
    if (!st) st = compare_all(m, texts, join_requests);
    free(join_requests);
    for (size_t r = 0; r < world; r++)
        free(texts[r]);
    free(texts);
    return st;
}

nrl_status mesh_join(nrl_mesh *m, const char *fingerprint, double deadline)
{
    int32_t world = m->place.world;
    NRL_TRY(control_announce(m->keys, m->place.rank));
    NRL_TRY(say_join_request(m, fingerprint));
    char **keys = mem_alloc((size_t)world * sizeof *keys);
    for (int32_t r = 0; r < world; r++)
        keys[r] = join_request_key(r);
    nrl_status st = meet(m, keys, deadline);
    for (int32_t r = 0; r < world; r++)
        free(keys[r]);
    free(keys);
    return st;
}
