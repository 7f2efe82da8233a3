/*
 * request.c - a call in progress: starts the steps of its plan in turn, counts completed steps, and
 * ends with success or failure. Requests are reused, so that a call in the steady state allocates
 * nothing.
 */
#include "gloo.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    AHEAD_MAX = 16,         /* receives announced ahead */
    SCRATCH_KEPT = 16 << 20 /* bytes of scratch that a free request may hold */
};

/* ---- pool [any] ---- */

nrl_status request_take(gloo_group *g, const gloo_plan *plan, nrl_request **out)
{
    gloo_engine *e = g->engine;
    pthread_mutex_lock(&e->pool_lock);
    nrl_request *r = e->free_requests;
    if (r) e->free_requests = r->next;
    pthread_mutex_unlock(&e->pool_lock);
    if (!r && !(r = calloc(1, sizeof *r))) return nrl_fail(NRL_ERR_MEMORY, "no memory for a request of %s", plan->name);
    nrl_request kept = {
        .blocks = r->blocks, .n_blocks = r->n_blocks, .scratch = r->scratch, .scratch_size = r->scratch_size};
    *r = kept;
    r->group = g;
    r->plan = plan;
    *out = r;
    return NRL_OK;
}

void request_give_back(nrl_request *r)
{
    gloo_engine *e = r->group->engine;
    if (r->scratch_size > SCRATCH_KEPT) {
        free(r->scratch);
        r->scratch = NULL;
        r->scratch_size = 0;
    }
    pthread_mutex_lock(&e->pool_lock);
    r->next = e->free_requests;
    e->free_requests = r;
    pthread_mutex_unlock(&e->pool_lock);
}

void request_destroy(nrl_request *r)
{
    free(r->scratch);
    free(r->blocks);
    free(r);
}

nrl_status request_scratch(nrl_request *r, size_t size)
{
    if (r->scratch_size >= size) return NRL_OK;
    char *grown = realloc(r->scratch, size);
    if (!grown) return nrl_fail(NRL_ERR_MEMORY, "no memory for %zu bytes of scratch of %s", size, r->plan->name);
    r->scratch = grown;
    r->scratch_size = size;
    return NRL_OK;
}

nrl_status request_blocks(nrl_request *r, size_t n)
{
    if (r->n_blocks >= n) return NRL_OK;
    int64_t *grown = realloc(r->blocks, n * sizeof *grown);
    if (!grown) return nrl_fail(NRL_ERR_MEMORY, "no memory for the counts of %s", r->plan->name);
    r->blocks = grown;
    r->n_blocks = n;
    return NRL_OK;
}

/* ---- running the plan ---- */

static void finish(nrl_request *r, nrl_status status)
{
    gloo_engine *e = r->group->engine;
    if (r->live) {
        *(r->prev ? &r->prev->next : &e->live) = r->next;
        if (r->next) r->next->prev = r->prev;
        e->n_live--;
        r->live = false;
    }
    r->status = status;
    if (!status && r->plan->done) r->plan->done(r);
    r->ended = true; /* other threads see this when the lock is released; until then no thread takes the request away */
    r->next = e->ended;
    e->ended = r;
}

/* A step that both sides skip is complete when the steps before it are. */
static void skip_sends(nrl_request *r)
{
    gloo_step s;
    while (r->plan->skip_empty && r->sends_done < r->sends_started) {
        memset(&s, 0, sizeof s);
        r->plan->send(r, r->sends_done, &s);
        if (s.size) break;
        r->sends_done++;
    }
}

static void skip_receives(nrl_request *r)
{
    gloo_step s;
    while (r->plan->skip_empty && r->receives_done < r->receives_started) {
        memset(&s, 0, sizeof s);
        r->plan->receive(r, r->receives_done, &s);
        if (s.size) break;
        r->receives_done++;
    }
}

static gloo_pair *pair_of(const nrl_request *r, int32_t peer)
{
    return &r->group->engine->pairs[r->group->ranks[peer]];
}

/* Starts the next send or receive; *moved: whether its turn had come. */
static nrl_status start_receive(nrl_request *r, bool *moved)
{
    gloo_step s = {0};
    int64_t i = r->receives_started;
    if (i - r->receives_done >= AHEAD_MAX) return NRL_OK;
    r->plan->receive(r, i, &s);
    if (s.after_sends > r->sends_done || s.after_receives > r->receives_done) return NRL_OK;
    *moved = true;
    r->receives_started++;
    if (!s.size && r->plan->skip_empty) {
        skip_receives(r);
        return NRL_OK;
    }
    return slot_receive(pair_of(r, s.peer), r, i, &s);
}

static nrl_status start_send(nrl_request *r, bool *moved)
{
    gloo_step s = {0};
    int64_t i = r->sends_started;
    r->plan->send(r, i, &s);
    if (s.after_sends > r->sends_done || s.after_receives > r->receives_done) return NRL_OK;
    *moved = true;
    r->sends_started++;
    if (!s.size && r->plan->skip_empty) {
        skip_sends(r);
        return NRL_OK;
    }
    return slot_send(pair_of(r, s.peer), r, i, &s);
}

static void advance(nrl_request *r)
{
    bool moved = true;
    while (moved && r->live) {
        nrl_status st = NRL_OK;
        moved = false;
        if (r->receives_started < r->n_receives) st = start_receive(r, &moved);
        if (!st && r->live && r->sends_started < r->n_sends) st = start_send(r, &moved);
        if (st && r->live) request_fail(r, st, "%s", nrl_error_text());
    }
    if (r->live && r->sends_done == r->n_sends && r->receives_done == r->n_receives) finish(r, NRL_OK);
}

void request_start(nrl_request *r)
{
    gloo_engine *e = r->group->engine;
    r->started = engine_now();
    r->prev = NULL;
    r->next = e->live;
    if (e->live) e->live->prev = r;
    e->live = r;
    e->n_live++;
    r->live = true;
    if (e->aborted)
        request_fail(r, NRL_ERR_PEER, "%s", e->abort_text);
    else
        advance(r);
}

void request_sent(nrl_request *r, int64_t i)
{
    r->sends_done = r->plan->skip_empty ? i + 1 : r->sends_done + 1;
    skip_sends(r);
    if (r->plan->sent) r->plan->sent(r, i);
    advance(r);
}

void request_received(nrl_request *r, int64_t i)
{
    r->receives_done = r->plan->skip_empty ? i + 1 : r->receives_done + 1;
    skip_receives(r);
    if (r->plan->received) r->plan->received(r, i);
    advance(r);
}

/* ---- failing ---- */

/* "all_reduce 12 of 4096 bytes" */
static void put_label(const nrl_request *r, char *out, size_t size)
{
    if (r->collective)
        snprintf(out, size, "%s %u of %zu bytes", r->plan->name, r->number, r->total);
    else
        snprintf(out, size, "%s of %zu bytes with tag %u", r->plan->name, r->total, r->number);
}

/* Afterwards nothing refers to the request or its buffers. */
void request_fail(nrl_request *r, nrl_status status, const char *fmt, ...)
{
    char label[96], text[220];
    va_list a;
    va_start(a, fmt);
    vsnprintf(text, sizeof text, fmt, a);
    va_end(a);
    put_label(r, label, sizeof label);
    snprintf(r->error, sizeof r->error, "%s: %s", label, text);
    for (int32_t i = 0; i < r->group->size; i++)
        slot_forget(pair_of(r, i), r);
    finish(r, status);
}

static bool steps_need(const nrl_request *r, int64_t i, int64_t n, bool receives, int32_t rank)
{
    for (; i < n; i++) {
        gloo_step s = {0};
        (receives ? r->plan->receive : r->plan->send)(r, i, &s);
        if (r->group->ranks[s.peer] == rank && (s.size || !r->plan->skip_empty)) return true;
    }
    return false;
}

bool request_needs(const nrl_request *r, const gloo_pair *p, bool lost)
{
    if (lost && r->collective)
        for (int32_t i = 0; i < r->group->size; i++)
            if (r->group->ranks[i] == p->rank) return true;
    return slot_holds(p, r) || steps_need(r, r->receives_started, r->n_receives, true, p->rank) ||
           steps_need(r, r->sends_started, r->n_sends, false, p->rank);
}
