/*
 * trace.c - collects events, and writes them as text. Slices of a track that overlap without one containing the other
 * lie on several lanes, because the format only nests the slices of a thread.
 */
#include "profiling/trace.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/json.h"
#include <math.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 1 << 21, MOST_NAMES = 1 << 12, MOST_LANES = 64, MOST_DEEP = 64, LANE_IDS = 100 };

typedef struct {
    const char *track, *name; /* interned; track NULL: a counter */
    double begin, end;        /* of a counter: time and value */
    int64_t dims[3];
} event;

struct trace {
    pthread_mutex_t lock;
    event *list;
    int64_t n, capacity, n_dropped;
    arena memory; /* of names */
    struct hsearch_data names;
    bool has_names; /* false: there was no memory for the table, and each event has a copy */
    int32_t n_names;
};

trace *trace_create(void)
{
    trace *t = mem_alloc(sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->has_names = hcreate_r(2 * MOST_NAMES, &t->names) != 0;
    return t;
}

void trace_destroy(trace *t)
{
    if (!t) return;
    if (t->has_names) hdestroy_r(&t->names);
    pthread_mutex_destroy(&t->lock);
    arena_free(&t->memory);
    free(t->list);
    free(t);
}

static const char *intern(trace *t, const char *name)
{
    if (!t->has_names) return arena_strdup(&t->memory, name);
    ENTRY *found, key = {.key = (char *)(uintptr_t)name};
    if (hsearch_r(key, FIND, &found, &t->names)) return found->key;
    if (t->n_names == MOST_NAMES) return "(another name)";
    t->n_names++;
    key.key = arena_strdup(&t->memory, name);
    (void)hsearch_r(key, ENTER, &found, &t->names); /* there is room for twice as many */
    return key.key;
}

static void add(trace *t, const char *track, const char *name, event e)
{
    pthread_mutex_lock(&t->lock);
    if (t->n == MOST_EVENTS) {
        t->n_dropped++;
    } else {
        if (t->n == t->capacity) {
            t->capacity = t->capacity ? 2 * t->capacity : 1024;
            t->list = mem_realloc(t->list, (size_t)t->capacity * sizeof *t->list);
        }
        e.track = track ? intern(t, track) : NULL;
        e.name = intern(t, name);
        t->list[t->n++] = e;
    }
    pthread_mutex_unlock(&t->lock);
}

void trace_slice(trace *t, const char *track, const char *name, double begin, double end, const int64_t *dims)
{
    event e = {.begin = begin, .end = end};
    if (dims) memcpy(e.dims, dims, sizeof e.dims);
    add(t, track, name, e);
}

void trace_counter(trace *t, const char *name, double at, double value)
{
    add(t, NULL, name, (event){.begin = at, .end = value});
}

int64_t trace_n_dropped(const trace *t)
{
    return t->n_dropped;
}

/* ---- text ---- */

/* Tracks in the order of a reader; others follow. */
static const char *const known_tracks[] = {"steps",      "phases",        "units", "regions",
                                           "operations", "communication", "data",  "checkpoint"};
enum { N_KNOWN = sizeof known_tracks / sizeof *known_tracks };

static int32_t order_of(const char *track)
{
    int32_t i = 0;
    while (i < N_KNOWN && strcmp(track, known_tracks[i]))
        i++;
    return i;
}

static int64_t nanoseconds(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

/* By track, begin, and the longer one first, so that what contains others comes before them. Counters are last. */
static int by_track(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (!x->track || !y->track) return x->track ? -1 : y->track ? 1 : (x->begin > y->begin) - (x->begin < y->begin);
    int32_t i = order_of(x->track), k = order_of(y->track);
    if (i != k) return i < k ? -1 : 1;
    if (x->track != y->track) return strcmp(x->track, y->track);
    if (x->begin < y->begin || x->begin > y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

/* The ends of the slices that are open on a lane. */
typedef struct {
    int64_t end[MOST_DEEP];
    int n;
} lane;

/* The first lane on which the slice lies inside another one or behind it. */
static int lane_for(lane *lanes, int64_t begin, int64_t end)
{
    for (int i = 0; i < MOST_LANES; i++) {
        lane *l = &lanes[i];
        while (l->n && l->end[l->n - 1] <= begin)
            l->n--;
        if ((l->n && l->end[l->n - 1] < end) || l->n == MOST_DEEP) continue;
        l->end[l->n++] = end;
        return i;
    }
    return MOST_LANES;
}

static void put_text(buffer *b, const char *text)
{
    arena a = {0};
    json_add(b, node_text(&a, text), 0);
    arena_free(&a);
}

static void put_thread(buffer *b, int32_t rank, int id, const char *name, int lane_number)
{
    buffer_print(b,
                 "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}},\n",
                 rank, id, id);
    buffer_print(b, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", rank, id);
    char *text = lane_number ? mem_printf("%s %d", name, lane_number + 1) : mem_strdup(name);
    put_text(b, text);
    free(text);
    buffer_puts(b, "}},\n");
}

static void put_slice(buffer *b, const event *e, int32_t rank, int id, int64_t begin, int64_t end)
{
    buffer_print(b, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":", rank, id,
                 1e-3 * (double)begin, 1e-3 * (double)(end - begin));
    put_text(b, e->track);
    buffer_puts(b, ",\"name\":");
    put_text(b, e->name);
    if (e->dims[0] || e->dims[1])
        buffer_print(b, ",\"args\":{\"shape\":\"%lldx%lldx%lld\"}", (long long)e->dims[0], (long long)e->dims[1],
                     (long long)e->dims[2]);
    buffer_puts(b, "},\n");
}

char *trace_text(trace *t, int32_t rank, const char *name, double zero)
{
    buffer b = {.what = "a trace"};
    lane *lanes = mem_alloc(MOST_LANES * sizeof *lanes);
    const char *track = NULL;
    int first_id = 0, others = 0, n_lanes = 0;
    pthread_mutex_lock(&t->lock);
    if (t->n) qsort(t->list, (size_t)t->n, sizeof *t->list, by_track);
    buffer_print(&b,
                 "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}},\n",
                 rank, rank);
    buffer_print(&b, "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":", rank);
    put_text(&b, name);
    buffer_puts(&b, "}},\n");
    for (int64_t i = 0; i < t->n; i++) {
        const event *e = &t->list[i];
        const int64_t begin = nanoseconds(e->begin - zero), end = nanoseconds(e->end - zero);
        if (!e->track) {
            buffer_print(&b, "{\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":", rank, 1e-3 * (double)begin);
            put_text(&b, e->name);
            buffer_print(&b, ",\"args\":{\"bytes\":%.0f}},\n", e->end);
            continue;
        }
        if (e->track != track) {
            int32_t order = order_of(e->track);
            first_id = 1 + LANE_IDS * (order < N_KNOWN ? order : N_KNOWN + others++);
            memset(lanes, 0, MOST_LANES * sizeof *lanes);
            track = e->track;
            n_lanes = 0;
        }
        const int at = lane_for(lanes, begin, end);
        for (; n_lanes <= at; n_lanes++)
            put_thread(&b, rank, first_id + n_lanes, track, n_lanes);
        put_slice(&b, e, rank, first_id + at, begin, end);
    }
    pthread_mutex_unlock(&t->lock);
    free(lanes);
    if (b.size >= 2) b.text[b.size -= 2] = '\0'; /* the last comma */
    return buffer_take(&b);
}
