/*
 * slots.c - Gloo's rules for matching sends and receives of a slot with one peer. Both sides announce them, and data is
 * sent only for a posted receive, so it always has a destination.
 *   a send: announces SEND_READY; its data goes at once if the peer has announced a receive, else it waits
 *   a receive: announces RECV_READY, and waits
 *   RECV_READY arrives: the oldest waiting send goes, or the announcement is kept
 *   DATA arrives: it belongs to the oldest waiting receive
 * Both sides compare lengths, so that ranks that disagree about a call fail here.
 */
#include "gloo.h"
#include <inttypes.h>

void queue_push(gloo_queue *q, gloo_item *i)
{
    i->next = NULL;
    *(q->head ? &q->tail->next : &q->head) = i;
    q->tail = i;
}

gloo_item *queue_pop(gloo_queue *q)
{
    gloo_item *i = q->head;
    if (i) q->head = i->next;
    return i;
}

static gloo_slot **bucket_of(gloo_pair *p, uint64_t slot)
{
    uint64_t mixed = (slot ^ (slot >> 24)) * 0x9e3779b97f4a7c15u;
    return &p->slots[mixed >> (64 - SLOT_BITS)];
}

static gloo_slot **find(gloo_pair *p, uint64_t slot)
{
    gloo_slot **at = bucket_of(p, slot);
    while (*at && (*at)->slot != slot)
        at = &(*at)->next;
    return at;
}

/* Creates the slot if it does not exist; NULL if out of memory. */
static gloo_slot *get(gloo_pair *p, uint64_t slot)
{
    gloo_slot **at = find(p, slot);
    if (*at) return *at;
    gloo_slot *s = engine_slot(p->engine);
    if (!s) return NULL;
    *s = (gloo_slot){.slot = slot};
    *at = s;
    return s;
}

static void drop_if_empty(gloo_pair *p, gloo_slot *s)
{
    if (s->sends.head || s->receives.head || s->notes.head) return;
    gloo_slot **at = find(p, s->slot);
    *at = s->next;
    engine_slot_free(p->engine, s);
}

static gloo_item *step_item(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s)
{
    gloo_item *item = engine_item(p->engine);
    if (!item) return NULL;
    *item = (gloo_item){.request = r, .index = i, .data = s->data, .with = s->with, .size = s->size};
    return item;
}

static nrl_status usable(const gloo_pair *p)
{
    if (p->mute) return nrl_fail(NRL_ERR_PEER, "an earlier message to rank %d was cut off", p->rank);
    if (p->state == PAIR_OPEN || p->state == PAIR_AWAITED) return NRL_OK;
    if (!p->engine->aborted) pair_blame(p);
    if (p->state == PAIR_LEFT) return nrl_fail(NRL_ERR_PEER, "rank %d has left", p->rank);
    return nrl_fail(NRL_ERR_PEER, "rank %d %s", p->rank, p->reason);
}

nrl_status slot_receive(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s)
{
    NRL_TRY(usable(p));
    gloo_item *item = step_item(p, r, i, s);
    gloo_slot *slot = item ? get(p, r->slot) : NULL;
    if (!slot) return nrl_fail(NRL_ERR_MEMORY, "no memory for a receive");
    queue_push(&slot->receives, item);
    pair_say(p, WIRE_RECV_READY, r->slot, s->size);
    return NRL_OK;
}

static nrl_status disagree(const gloo_pair *p, uint64_t theirs, size_t ours, const char *verb)
{
    return nrl_fail(NRL_ERR_PEER,
                    "rank %d %s %" PRIu64 " bytes where %zu were expected, so ranks disagree about this call", p->rank,
                    verb, theirs, ours);
}

nrl_status slot_send(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s)
{
    NRL_TRY(usable(p));
    gloo_item *item = step_item(p, r, i, s);
    gloo_slot *slot = item ? get(p, r->slot) : NULL;
    if (!slot) return nrl_fail(NRL_ERR_MEMORY, "no memory for a send");
    gloo_item *note = queue_pop(&slot->notes);
    if (!note) {
        queue_push(&slot->sends, item);
        pair_say(p, WIRE_SEND_READY, r->slot, s->size);
        return NRL_OK;
    }
    size_t theirs = note->size;
    p->n_notes--;
    engine_item_free(p->engine, note);
    drop_if_empty(p, slot);
    if (theirs != s->size) {
        engine_item_free(p->engine, item);
        return disagree(p, theirs, s->size, "receives");
    }
    pair_say(p, WIRE_SEND_READY, r->slot, s->size);
    pair_say_data(p, r->slot, item);
    return NRL_OK;
}

/* ---- messages from a peer ---- */

static void peer_can_receive(gloo_pair *p, const wire_header *h)
{
    gloo_slot *slot = get(p, h->slot);
    gloo_item *send = slot ? queue_pop(&slot->sends) : NULL;
    if (send) {
        drop_if_empty(p, slot);
        if (send->size == h->length) {
            pair_say_data(p, h->slot, send);
            return;
        }
        nrl_request *r = send->request;
        size_t size = send->size;
        engine_item_free(p->engine, send);
        nrl_status st = disagree(p, h->length, size, "receives");
        request_fail(r, st, "%s", nrl_error_text());
        return;
    }
    gloo_item *note = slot && p->n_notes < PAIR_NOTES_MAX ? engine_item(p->engine) : NULL;
    if (!note) {
        pair_lose(p, "announced more than the limit of %d receives", PAIR_NOTES_MAX);
        return;
    }
    *note = (gloo_item){.size = (size_t)h->length};
    queue_push(&slot->notes, note);
    p->n_notes++;
}

static void peer_sends(gloo_pair *p, const wire_header *h)
{
    gloo_slot *slot = *find(p, h->slot);
    gloo_item *item = slot ? slot->receives.head : NULL;
    if (!item) {
        pair_lose(p, "sent %" PRIu64 " bytes that no receive expects (slot %#" PRIx64 ")", h->length, h->slot);
        return;
    }
    if (item->size != h->length) {
        pair_lose(p, "sent %" PRIu64 " bytes where %zu were expected, so ranks disagree about this call", h->length,
                  item->size);
        return;
    }
    queue_pop(&slot->receives);
    drop_if_empty(p, slot);
    p->receiving = item;
    p->received = p->window_fill = 0;
}

void slot_message(gloo_pair *p, const wire_header *h)
{
    if (h->opcode == WIRE_DATA)
        peer_sends(p, h);
    else if (h->opcode == WIRE_RECV_READY)
        peer_can_receive(p, h);
    else if (h->slot == wire_slot(WIRE_GOODBYE, 0, 0))
        p->has_left = true;
    /* other SEND_READY messages serve receives from any rank, which nrl does not have */
}

/* ---- removing ---- */

static void remove_of(gloo_pair *p, gloo_queue *q, const nrl_request *r)
{
    gloo_queue kept = {0};
    for (gloo_item *i; (i = queue_pop(q));) {
        if (i->request == r)
            engine_item_free(p->engine, i);
        else
            queue_push(&kept, i);
    }
    *q = kept;
}

/* The peer may already know of these receives: the data that arrives for them is dropped. */
static void disown(gloo_queue *q, const nrl_request *r)
{
    for (gloo_item *i = q->head; i; i = i->next)
        if (i->request == r) i->request = NULL;
}

void slot_forget(gloo_pair *p, nrl_request *r)
{
    gloo_slot *s = *find(p, r->slot);
    if (s) {
        remove_of(p, &s->sends, r);
        disown(&s->receives, r);
        drop_if_empty(p, s);
    }
    if (p->receiving && p->receiving->request == r) {
        p->receiving->request = NULL;
        p->received += p->window_fill;
        p->window_fill = 0;
    }
    gloo_item *head = p->out.head;
    bool begun = head && head->request == r && p->out_offset;
    if (begun) { /* the message is partly sent, and the rest is in the user's memory */
        p->mute = p->engine->muted = true;
        p->out_offset = 0;
    }
    remove_of(p, &p->out, r);
    disown(&p->written, r);
}

bool slot_holds(const gloo_pair *p, const nrl_request *r)
{
    if (p->receiving && p->receiving->request == r) return true;
    for (const gloo_item *i = p->out.head; i; i = i->next)
        if (i->request == r) return true;
    gloo_slot *s = *find((gloo_pair *)p, r->slot);
    if (!s) return false;
    for (const gloo_item *i = s->sends.head; i; i = i->next)
        if (i->request == r) return true;
    for (const gloo_item *i = s->receives.head; i; i = i->next)
        if (i->request == r) return true;
    return false;
}

static void empty(gloo_engine *e, gloo_queue *q)
{
    for (gloo_item *i; (i = queue_pop(q));)
        engine_item_free(e, i);
}

void slot_clear(gloo_pair *p)
{
    gloo_engine *e = p->engine;
    for (int b = 0; b < SLOT_BUCKETS; b++) {
        for (gloo_slot *s; (s = p->slots[b]);) {
            p->slots[b] = s->next;
            empty(e, &s->sends);
            empty(e, &s->receives);
            empty(e, &s->notes);
            engine_slot_free(e, s);
        }
    }
    empty(e, &p->out);
    for (gloo_item *i = p->written.head; i; i = i->next)
        i->request = NULL;
    if (p->receiving) engine_item_free(e, p->receiving);
    p->receiving = NULL;
    p->n_notes = p->out_offset = 0;
}
