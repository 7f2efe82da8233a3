/*
 * record.c - a ring of calls, as text, and the texts of all ranks side by side.
 */
#include "mesh/record.h"
#include "base/arena.h"
#include "base/clock.h"
#include <nrl/region.h>
#include <stdlib.h>
#include <string.h>

#define STATE_MARK ", step " /* the text before it is equal on ranks that made the same call */

void record_open(record *r)
{
    pthread_mutex_init(&r->lock, NULL);
}

void record_close(record *r)
{
    pthread_mutex_destroy(&r->lock);
}

uint64_t record_enter(record *r, const record_call *call)
{
    pthread_mutex_lock(&r->lock);
    uint64_t handle = r->n++;
    r->ring[handle % RECORD_CALLS] = *call;
    pthread_mutex_unlock(&r->lock);
    return handle;
}

static record_call *entry(record *r, uint64_t handle)
{
    return handle < r->n && r->n - handle <= RECORD_CALLS ? &r->ring[handle % RECORD_CALLS] : NULL;
}

void record_done(record *r, uint64_t handle)
{
    pthread_mutex_lock(&r->lock);
    record_call *call = entry(r, handle);
    if (call) {
        call->done = clock_seconds();
        nrl_region_span("communication", *call->what ? call->what : call->op, call->entered, call->done);
    }
    pthread_mutex_unlock(&r->lock);
}

bool record_find(record *r, uint64_t handle, record_call *fill)
{
    pthread_mutex_lock(&r->lock);
    const record_call *call = entry(r, handle);
    if (call) *fill = *call;
    pthread_mutex_unlock(&r->lock);
    return call != NULL;
}

void record_describe(const record_call *call, buffer *text)
{
    buffer_puts(text, call->op);
    if (*call->what) buffer_print(text, " '%s'", call->what);
    if (call->peer >= 0) buffer_print(text, " with rank %d", (int)call->peer);
    buffer_print(text, " of axis %s (", call->axis);
    if (call->dtype) buffer_print(text, "%lld %s, ", (long long)call->count, nrl_dtype_name(call->dtype));
    buffer_print(text, "call %llu)", (unsigned long long)call->number);
}

static void print_call(const record_call *call, double now, buffer *text)
{
    record_describe(call, text);
    buffer_print(text, STATE_MARK "%lld", (long long)call->step);
    if (call->done > 0)
        buffer_print(text, ", done %.1f s ago after %.3f s\n", now - call->done, call->done - call->entered);
    else
        buffer_print(text, ", under way for %.1f s\n", now - call->entered);
}

/* Whether call i is the newest of its axis. */
static bool is_last(const record *r, uint64_t i)
{
    const char *axis = r->ring[i % RECORD_CALLS].axis;
    for (uint64_t k = i + 1; k < r->n; k++)
        if (!strcmp(r->ring[k % RECORD_CALLS].axis, axis)) return false;
    return true;
}

void record_print(record *r, buffer *text)
{
    double now = clock_seconds();
    pthread_mutex_lock(&r->lock);
    uint64_t first = r->n > RECORD_CALLS ? r->n - RECORD_CALLS : 0;
    for (uint64_t i = first; i < r->n; i++) {
        if (!is_last(r, i)) continue;
        buffer_print(text, "axis %s: ", r->ring[i % RECORD_CALLS].axis);
        print_call(&r->ring[i % RECORD_CALLS], now, text);
    }
    buffer_puts(text, "\n");
    for (uint64_t i = first; i < r->n; i++)
        print_call(&r->ring[i % RECORD_CALLS], now, text);
    pthread_mutex_unlock(&r->lock);
}

/* ---- many ranks ---- */

/* The rank's last call on the axis, malloc'd. */
static char *last_call(const char *text, const char *axis)
{
    if (!text) return mem_strdup("did not answer");
    char *head = mem_printf("axis %s: ", axis), *found = NULL;
    for (const char *line = text; *line && *line != '\n' && !found;) {
        size_t n = strcspn(line, "\n");
        if (!strncmp(line, head, strlen(head)))
            found = mem_printf("%.*s", (int)(n - strlen(head)), line + strlen(head));
        line += n + (line[n] == '\n');
    }
    free(head);
    return found ? found : mem_strdup("made no call on this axis");
}

static size_t same_part(const char *call)
{
    const char *mark = strstr(call, STATE_MARK);
    return mark ? (size_t)(mark - call) : strlen(call);
}

static bool is_same(const char *a, const char *b)
{
    size_t n = same_part(a);
    return n == same_part(b) && !strncmp(a, b, n) && !strstr(a, "under way") == !strstr(b, "under way");
}

void record_compare(char *const *records, int32_t world, const char *axis, buffer *text)
{
    char **calls = mem_alloc((size_t)world * sizeof *calls);
    for (int32_t r = 0; r < world; r++)
        calls[r] = last_call(records[r], axis);
    for (int32_t r = 0; r < world; r++) {
        bool again = false, more = false;
        for (int32_t k = 0; k < r && !again; k++)
            again = is_same(calls[k], calls[r]);
        for (int32_t k = r + 1; k < world && !more; k++)
            more = is_same(calls[k], calls[r]);
        if (again) continue;
        buffer_print(text, "\n  rank%s", more ? "s" : "");
        for (int32_t k = r; k < world; k++)
            if (is_same(calls[k], calls[r])) buffer_print(text, " %d", (int)k);
        buffer_print(text, ": %s", calls[r]);
    }
    for (int32_t r = 0; r < world; r++)
        free(calls[r]);
    free(calls);
}
