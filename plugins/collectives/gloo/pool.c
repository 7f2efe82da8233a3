/*
 * pool.c - items and slots are taken from slabs and returned: a message allocates nothing once as many
 * messages were in flight before. Under the engine's lock.
 */
#include "gloo.h"
#include <stdlib.h>

enum { SLAB = 64 };

typedef struct gloo_slab {
    struct gloo_slab *next;
    gloo_item items[SLAB];
    gloo_slot slots[SLAB];
} gloo_slab;

static bool grow(gloo_engine *e)
{
    gloo_slab *s = malloc(sizeof *s);
    if (!s) return false;
    s->next = e->slabs;
    e->slabs = s;
    for (int i = 0; i < SLAB; i++) {
        engine_item_free(e, &s->items[i]);
        engine_slot_free(e, &s->slots[i]);
    }
    return true;
}

gloo_item *engine_item(gloo_engine *e)
{
    if (!e->free_items && !grow(e)) return NULL;
    gloo_item *i = e->free_items;
    e->free_items = i->next;
    return i;
}

void engine_item_free(gloo_engine *e, gloo_item *i)
{
    i->next = e->free_items;
    e->free_items = i;
}

gloo_slot *engine_slot(gloo_engine *e)
{
    if (!e->free_slots && !grow(e)) return NULL;
    gloo_slot *s = e->free_slots;
    e->free_slots = s->next;
    return s;
}

void engine_slot_free(gloo_engine *e, gloo_slot *s)
{
    s->next = e->free_slots;
    e->free_slots = s;
}

void pool_destroy(gloo_engine *e)
{
    for (gloo_slab *s; (s = e->slabs);) {
        e->slabs = s->next;
        free(s);
    }
}
