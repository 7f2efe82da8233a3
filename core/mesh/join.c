/*
 * join.c - the ranks meet: each writes a hello under its number, waits for all others' and compares.
 * Who finds something wrong tells it, so that the others need not wait for their time-out.
 *
 * A hello is "key: value" lines, an empty line, and the fingerprint.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "mesh/socket.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_S 0.05
enum { MAX_HELLO = 1 << 20, MAX_FIELD = 64, HELLO_FORMAT = 1 };

typedef struct {
    int format, rank, world, pid;
    char host[MAX_FIELD], version[MAX_FIELD];
    const char *fingerprint; /* in the hello's text */
} hello;

static char *hello_key(int32_t rank)
{
    return mem_printf("hello/%d", (int)rank);
}

static char *hello_text(const nrl_mesh *m, const char *fingerprint)
{
    char host[MAX_FIELD] = "";
    gethostname(host, sizeof host - 1);
    if (!*host) snprintf(host, sizeof host, "unknown");
    for (char *at = host; *at; at++)
        if (*at <= ' ') *at = '_';
    return mem_printf("format: %d\nrank: %d\nworld: %d\npid: %d\nhost: %s\nversion: %s\n\n%s",
                      HELLO_FORMAT, (int)m->place.rank, (int)m->place.world, (int)getpid(), host,
                      NRL_VERSION, fingerprint ? fingerprint : "");
}

static nrl_status parse_hello(const char *text, int32_t rank, hello *h)
{
    const char *end = strstr(text, "\n\n");
    *h = (hello){0};
    if (!end || sscanf(text, "format: %d\nrank: %d\nworld: %d\npid: %d\nhost: %63s\nversion: %63s\n",
                       &h->format, &h->rank, &h->world, &h->pid, h->host, h->version) != 6 ||
        h->rank != rank)
        return nrl_fail(NRL_ERR_PEER, "rank %d does not speak as a rank of nrl %s", (int)rank,
                        NRL_VERSION);
    h->fingerprint = end + 2;
    return NRL_OK;
}

/* ---- saying hello ---- */

static nrl_status number_is_taken(nrl_mesh *m, const char *there)
{
    hello h;
    if (parse_hello(there, m->place.rank, &h)) return NRL_ERR_PEER;
    return nrl_fail(NRL_ERR_CONFIG,
                    "rank %d is there already: process %d on %s\n"
                    "two processes have the same number, or the store of an earlier run is used again",
                    (int)m->place.rank, h.pid, h.host);
}

static nrl_status say_hello(nrl_mesh *m, const char *fingerprint)
{
    char *key = hello_key(m->place.rank), *mine = hello_text(m, fingerprint), *now = NULL;
    nrl_status st = NRL_OK;
    if (strlen(mine) > MAX_HELLO)
        st = nrl_fail(NRL_ERR_BUG, "a fingerprint of %zu bytes", strlen(mine));
    if (!st) st = store_compare_set(m->keys, key, "", mine, &now);
    if (!st && strcmp(now, mine)) st = number_is_taken(m, now);
    free(now);
    free(mine);
    free(key);
    return st;
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
        hello h = {0};
        if (store_try_get(m->keys, keys[r], &found, &value, &size)) found = false;
        if (found && !parse_hello(value, r, &h)) {
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

static nrl_status other_failed(const nrl_mesh *m, const word *w)
{
    if (w->culprit == m->place.rank)
        return nrl_fail(NRL_ERR_PEER, "another process of rank %d failed: %s", (int)w->culprit, w->text);
    return nrl_fail(NRL_ERR_PEER, "rank %d failed: %s", (int)w->culprit, w->text);
}

static nrl_status wait_for_all(nrl_mesh *m, char *const *keys, double deadline)
{
    for (bool all = false;;) {
        word w;
        NRL_TRY(store_all_there(m->keys, (const char *const *)keys, (size_t)m->place.world, &all));
        NRL_TRY(word_read(m->keys, &w));
        if (w.kind != WORD_NONE) return other_failed(m, &w);
        if (all) return NRL_OK;
        if (m->signal && *m->signal)
            return nrl_fail(NRL_ERR_STOPPED, "signal %d came before all ranks had joined", *m->signal);
        if (mesh_clock() >= deadline) return missing_ranks(m, keys);
        mesh_sleep(LOOK_S);
    }
}

/* ---- comparing ---- */

static const char *next_line(const char *line)
{
    size_t n = strcspn(line, "\n");
    return line + n + (line[n] == '\n');
}

/* The key of a "key: value" line, and its value on the other side. */
static const char *find_key(const char *text, const char *line, size_t key)
{
    for (; *text; text = next_line(text))
        if (!strncmp(text, line, key)) return text;
    return NULL;
}

static nrl_status differs(const hello *a, const hello *b, const char *in_a, const char *in_b)
{
    const char *line = in_a ? in_a : in_b;
    size_t key = strcspn(line, ":\n");
    const char *values[2] = {in_a, in_b};
    char shown[2][160];
    for (int i = 0; i < 2; i++) {
        const char *at = values[i] ? values[i] + key : "(not there)";
        if (values[i] && *at == ':') at += 1 + (at[1] == ' ');
        snprintf(shown[i], sizeof shown[i], "%.*s", (int)strcspn(at, "\n"), at);
    }
    return nrl_fail(NRL_ERR_CONFIG, "%.*s differs between ranks\nrank %d (%s): %s\nrank %d (%s): %s",
                    (int)key, line, a->rank, a->host, shown[0], b->rank, b->host, shown[1]);
}

static size_t key_size(const char *line)
{
    size_t n = strcspn(line, ":\n");
    return n + (line[n] == ':');
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !strncmp(a, b, n);
}

static nrl_status compare_fingerprints(const hello *a, const hello *b)
{
    if (!strcmp(a->fingerprint, b->fingerprint)) return NRL_OK;
    for (const char *line = a->fingerprint; *line; line = next_line(line)) {
        const char *other = find_key(b->fingerprint, line, key_size(line));
        if (!other || !same_line(line, other)) return differs(a, b, line, other);
    }
    for (const char *line = b->fingerprint; *line; line = next_line(line))
        if (!find_key(a->fingerprint, line, key_size(line))) return differs(a, b, NULL, line);
    return nrl_fail(NRL_ERR_CONFIG, "the settings of ranks %d (%s) and %d (%s) differ in their order",
                    a->rank, a->host, b->rank, b->host);
}

static nrl_status compare(const hello *a, const hello *b)
{
    if (a->world != b->world)
        return nrl_fail(NRL_ERR_CONFIG,
                        "rank %d (%s, process %d) belongs to %d ranks, rank %d (%s, process %d) to %d",
                        a->rank, a->host, a->pid, a->world, b->rank, b->host, b->pid, b->world);
    if (a->format != b->format || strcmp(a->version, b->version))
        return nrl_fail(NRL_ERR_CONFIG, "rank %d (%s) runs nrl %s, rank %d (%s) nrl %s", a->rank,
                        a->host, a->version, b->rank, b->host, b->version);
    return compare_fingerprints(a, b);
}

static nrl_status compare_all(nrl_mesh *m, char *const *texts)
{
    hello first, each;
    int local = 0;
    NRL_TRY(parse_hello(texts[0], 0, &first));
    m->names = mem_alloc((size_t)m->place.world * sizeof *m->names);
    for (int32_t r = 0; r < m->place.world; r++) {
        NRL_TRY(parse_hello(texts[r], r, &each));
        NRL_TRY(compare(&first, &each));
        m->names[r] = mem_printf("rank %d (%s, process %d)", (int)r, each.host, each.pid);
        hello own;
        NRL_TRY(parse_hello(texts[m->place.rank], m->place.rank, &own));
        local += !strcmp(own.host, each.host);
    }
    if (m->place.local_world <= 0) m->place.local_world = local;
    return NRL_OK;
}

static nrl_status meet(nrl_mesh *m, char *const *keys, double deadline)
{
    size_t world = (size_t)m->place.world;
    NRL_TRY(wait_for_all(m, keys, deadline));
    char **texts = mem_alloc(world * sizeof *texts);
    nrl_status st = store_get_all(m->keys, (const char *const *)keys, world, texts);
    if (!st) st = compare_all(m, texts);
    for (size_t r = 0; r < world; r++)
        free(texts[r]);
    free(texts);
    return st;
}

nrl_status mesh_join(nrl_mesh *m, const char *fingerprint, double deadline)
{
    int32_t world = m->place.world;
    NRL_TRY(control_announce(m->keys, m->place.rank));
    NRL_TRY(say_hello(m, fingerprint));
    char **keys = mem_alloc((size_t)world * sizeof *keys);
    for (int32_t r = 0; r < world; r++)
        keys[r] = hello_key(r);
    nrl_status st = meet(m, keys, deadline);
    for (int32_t r = 0; r < world; r++)
        free(keys[r]);
    free(keys);
    return st;
}
