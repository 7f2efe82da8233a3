/*
 * vocab.c - tokens by id and by text; merges by pair. Open addressing with linear probing, at most
 * half full.
 */
#include "vocab.h"
#include "base/arena.h"
#include "bpe.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { NO_TEXT_SHOWN = 40, FIRST_SLOTS = 1024 };
#define VOCAB_NO_TEXT UINT32_MAX

static size_t text_slot(const vocab *v, const char *text, size_t size)
{
    return (size_t)XXH3_64bits(text, size) & (v->n_slots - 1);
}

static bool entry_equals(const vocab *v, int32_t id, const char *text, size_t size)
{
    const vocab_entry *e = &v->entries[id];
    return e->size == size && !memcmp(v->blob + e->start, text, size);
}

static void grow_slots(vocab *v)
{
    free(v->slots);
    v->n_slots = v->n_slots ? v->n_slots * 2 : FIRST_SLOTS;
    v->slots = mem_alloc(v->n_slots * sizeof *v->slots);
    memset(v->slots, 0xff, v->n_slots * sizeof *v->slots);
    for (int32_t id = 0; id < v->n; id++) {
        const vocab_entry *e = &v->entries[id];
        if (e->start == VOCAB_NO_TEXT) continue;
        size_t i = text_slot(v, v->blob + e->start, e->size);
        while (v->slots[i] != VOCAB_ABSENT)
            i = (i + 1) & (v->n_slots - 1);
        v->slots[i] = id;
    }
}

static void grow_entries(vocab *v, int32_t id)
{
    if (id >= v->room) {
        int32_t room = v->room ? v->room * 2 : 512;
        if (room <= id) room = id + 1;
        v->entries = mem_realloc(v->entries, (size_t)room * sizeof *v->entries);
        v->room = room;
    }
    while (v->n <= id)
        v->entries[v->n++] = (vocab_entry){.start = VOCAB_NO_TEXT};
}

static nrl_status add_text(vocab *v, const char *text, size_t size)
{
    if (size >= UINT32_MAX / 2 - v->blob_size) return nrl_fail(NRL_ERR_DATA, "the tokens' texts take more than 2 GiB");
    if (v->blob_room - v->blob_size < size + 1) {
        v->blob_room = v->blob_room * 2 + size + FIRST_SLOTS;
        v->blob = mem_realloc(v->blob, v->blob_room);
    }
    if (size) memcpy(v->blob + v->blob_size, text, size);
    v->blob[v->blob_size + size] = 0;
    v->blob_size += size + 1;
    return NRL_OK;
}

nrl_status vocab_add(vocab *v, const char *text, size_t size, int64_t id)
{
    int shown = size < NO_TEXT_SHOWN ? (int)size : NO_TEXT_SHOWN;
    if (id < 0 || id >= NRL_TOKEN_MAX_ID)
        return nrl_fail(NRL_ERR_DATA, "token '%.*s' has id %lld, expected 0 to %d", shown, text, (long long)id,
                        NRL_TOKEN_MAX_ID - 1);
    if (vocab_has(v, id))
        return nrl_fail(NRL_ERR_DATA, "tokens '%.40s' and '%.*s' have the same id %lld", v->blob + v->entries[id].start,
                        shown, text, (long long)id);
    int32_t old = vocab_find(v, text, size);
    if (old != VOCAB_ABSENT)
        return nrl_fail(NRL_ERR_DATA, "token '%.*s' occurs twice, with ids %d and %lld", shown, text, old,
                        (long long)id);
    size_t start = v->blob_size;
    NRL_TRY(add_text(v, text, size));
    grow_entries(v, (int32_t)id);
    v->entries[id] = (vocab_entry){.start = (uint32_t)start, .size = (uint32_t)size};
    v->n_tokens++;
    if (++v->n_used * 2 > v->n_slots) {
        grow_slots(v);
        return NRL_OK;
    }
    size_t i = text_slot(v, text, size);
    while (v->slots[i] != VOCAB_ABSENT)
        i = (i + 1) & (v->n_slots - 1);
    v->slots[i] = (int32_t)id;
    return NRL_OK;
}

nrl_status vocab_add_or_match(vocab *v, const char *text, size_t size, int64_t id)
{
    int32_t old = vocab_find(v, text, size);
    if (old != VOCAB_ABSENT && old == id) return NRL_OK;
    NRL_TRY(vocab_add(v, text, size, id));
    v->entries[id].outside = true;
    return NRL_OK;
}

int32_t vocab_find_model(const vocab *v, const char *text, size_t size)
{
    int32_t id = vocab_find(v, text, size);
    return id != VOCAB_ABSENT && v->entries[id].outside ? VOCAB_ABSENT : id;
}

int32_t vocab_find(const vocab *v, const char *text, size_t size)
{
    if (!v->n_slots) return VOCAB_ABSENT;
    size_t i = text_slot(v, text, size);
    while (v->slots[i] != VOCAB_ABSENT && !entry_equals(v, v->slots[i], text, size))
        i = (i + 1) & (v->n_slots - 1);
    return v->slots[i];
}

bool vocab_has(const vocab *v, int64_t id)
{
    return id >= 0 && id < v->n && v->entries[id].start != VOCAB_NO_TEXT;
}

const char *vocab_text(const vocab *v, int32_t id, size_t *size)
{
    if (!vocab_has(v, id)) return NULL;
    if (size) *size = v->entries[id].size;
    return v->blob + v->entries[id].start;
}

void vocab_free(vocab *v)
{
    free(v->blob);
    free(v->entries);
    free(v->slots);
    *v = (vocab){0};
}
