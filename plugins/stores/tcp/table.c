/*
 * table.c - a hash table with chaining that doubles when it is full.
 */
#include "table.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64, NUMBER_SIZE = 24 };

struct tcp_element {
    tcp_element *next;
    size_t size;
    char bytes[];
};

/* FNV-1a */
static uint64_t hash_of(tcp_text key)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < key.size; i++)
        h = (h ^ (unsigned char)key.bytes[i]) * 0x100000001b3u;
    return h;
}

static bool afford(tcp_table *t, size_t bytes)
{
    if (bytes > STORE_TABLE_BYTES - t->bytes) {
        t->refused = true;
        return false;
    }
    t->bytes += bytes;
    return true;
}

static void grow(tcp_table *t)
{
    size_t n = t->n_slots ? t->n_slots * 2 : FIRST_SLOTS;
    tcp_entry **slots = calloc(n, sizeof *slots);
    if (!slots) return; /* the table still works, with longer chains */
    for (size_t i = 0; i < t->n_slots; i++)
        for (tcp_entry *e = t->slots[i], *next; e; e = next) {
            next = e->next;
            e->next = slots[e->hash & (n - 1)];
            slots[e->hash & (n - 1)] = e;
        }
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
}

tcp_entry *tcp_table_find(const tcp_table *t, tcp_text key)
{
    if (!t->n_slots) return NULL;
    uint64_t h = hash_of(key);
    tcp_entry *e = t->slots[h & (t->n_slots - 1)];
    while (e && !(e->hash == h && e->key_size == key.size && !memcmp(e->key, key.bytes, key.size)))
        e = e->next;
    return e;
}

static size_t entry_bytes(size_t key_size)
{
    return sizeof(tcp_entry) + key_size + sizeof(void *);
}

static tcp_entry *find_or_add(tcp_table *t, tcp_text key)
{
    tcp_entry *e = tcp_table_find(t, key);
    if (e) return e;
    if (t->n_entries >= t->n_slots) grow(t);
    t->refused |= t->n_entries >= STORE_TABLE_KEYS;
    if (!t->n_slots || t->n_entries >= STORE_TABLE_KEYS || !afford(t, entry_bytes(key.size))) return NULL;
    e = calloc(1, sizeof *e);
    char *copy = malloc(key.size + 1);
    if (!e || !copy) {
        free(e);
        free(copy);
        t->bytes -= entry_bytes(key.size);
        return NULL;
    }
    memcpy(copy, key.bytes, key.size);
    *e = (tcp_entry){.hash = hash_of(key), .key = copy, .key_size = key.size};
    e->next = t->slots[e->hash & (t->n_slots - 1)];
    t->slots[e->hash & (t->n_slots - 1)] = e;
    t->n_entries++;
    return e;
}

static void drop_element(tcp_table *t, tcp_entry *e)
{
    tcp_element *first = e->first;
    e->first = first->next;
    if (!e->first) e->last = NULL;
    e->n_queued--;
    t->bytes -= sizeof *first + first->size;
    free(first);
}

static void drop_entry(tcp_table *t, tcp_entry *e)
{
    tcp_entry **at = &t->slots[e->hash & (t->n_slots - 1)];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    t->bytes -= entry_bytes(e->key_size);
    t->n_entries--;
    free(e->key);
    free(e);
}

void tcp_table_free(tcp_table *t)
{
    for (size_t i = 0; i < t->n_slots; i++)
        while (t->slots[i]) {
            tcp_entry *e = t->slots[i];
            while (e->first)
                drop_element(t, e);
            free(e->value);
            drop_entry(t, e);
        }
    free(t->slots);
    *t = (tcp_table){0};
}

bool tcp_table_value(const tcp_table *t, tcp_text key, tcp_text *value)
{
    tcp_entry *e = tcp_table_find(t, key);
    if (!e || !e->value) return false;
    *value = (tcp_text){e->value, e->value_size};
    return true;
}

bool tcp_table_is_there(const tcp_table *t, tcp_text key)
{
    const tcp_entry *e = tcp_table_find(t, key);
    return e && (e->value || e->n_queued);
}

bool tcp_table_set(tcp_table *t, tcp_text key, tcp_text value, bool append)
{
    tcp_entry *e = find_or_add(t, key);
    if (!e) return false;
    size_t kept = append && e->value ? e->value_size : 0, size = kept + value.size;
    size_t before = e->value ? e->value_size : 0;
    if (size > before && !afford(t, size - before)) return false;
    char *bytes = kept ? realloc(e->value, size + 1) : malloc(size + 1);
    if (!bytes) {
        if (size > before) t->bytes -= size - before;
        return false;
    }
    if (size < before) t->bytes -= before - size;
    memcpy(bytes + kept, value.bytes, value.size);
    if (!kept) free(e->value);
    t->n_values += !before && !e->value;
    e->value = bytes;
    e->value_size = size;
    return true;
}

bool tcp_table_delete(tcp_table *t, tcp_text key)
{
    tcp_entry *e = tcp_table_find(t, key);
    if (!e || !e->value) return false;
    t->bytes -= e->value_size;
    free(e->value);
    e->value = NULL;
    e->value_size = 0;
    t->n_values--;
    if (!e->n_queued) drop_entry(t, e);
    return true;
}

bool tcp_table_push(tcp_table *t, tcp_text key, tcp_text value)
{
    tcp_entry *e = find_or_add(t, key);
    if (!e || !afford(t, sizeof(tcp_element) + value.size)) return false;
    tcp_element *element = malloc(sizeof *element + value.size);
    if (!element) {
        t->bytes -= sizeof *element + value.size;
        return false;
    }
    element->next = NULL;
    element->size = value.size;
    memcpy(element->bytes, value.bytes, value.size);
    if (e->last)
        e->last->next = element;
    else
        e->first = element;
    e->last = element;
    e->n_queued++;
    return true;
}

bool tcp_table_pop(tcp_table *t, tcp_text key, char **bytes, size_t *size)
{
    tcp_entry *e = tcp_table_find(t, key);
    if (!e || !e->n_queued) return false;
    *size = e->first->size;
    *bytes = malloc(*size + 1);
    if (!*bytes) return false;
    memcpy(*bytes, e->first->bytes, *size);
    drop_element(t, e);
    if (!e->n_queued && !e->value) drop_entry(t, e);
    return true;
}

bool tcp_table_add(tcp_table *t, tcp_text key, int64_t amount, int64_t *sum)
{
    char text[NUMBER_SIZE] = "0", *end;
    tcp_text old;
    if (tcp_table_value(t, key, &old)) {
        if (!old.size || old.size >= sizeof text) return false;
        memcpy(text, old.bytes, old.size);
        text[old.size] = 0;
    }
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno) return false;
    *sum = (int64_t)((uint64_t)n + (uint64_t)amount); /* wraps around, as torch's counter does */
    int size = snprintf(text, sizeof text, "%" PRId64, *sum);
    return tcp_table_set(t, key, (tcp_text){text, (size_t)size}, false);
}
