/*
 * store_table.h - the server's keys and values, and its queues, which are a name space of their own.
 * Sizes come from clients: everything is counted against STORE_TABLE_BYTES and STORE_TABLE_KEYS, and
 * running out of memory is an answer (false), not an end. One thread.
 */
#ifndef MESH_STORE_TABLE_H
#define MESH_STORE_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run needs about 8 keys and as many KiB a rank. */
enum { STORE_TABLE_BYTES = 256 << 20, STORE_TABLE_KEYS = 1 << 19 };

typedef struct {
    const char *bytes;
    size_t size;
} store_text;

typedef struct store_element store_element; /* of a queue */
typedef struct store_entry {
    struct store_entry *next;
    uint64_t hash;
    char *key, *value; /* value NULL: there is a queue alone */
    size_t key_size, value_size;
    store_element *first, *last;
    int64_t n_queued;
} store_entry;

typedef struct {
    store_entry **slots;
    size_t n_slots, n_entries, n_values;
    size_t bytes;
    bool refused; /* something found no room */
} store_table;

void store_table_free(store_table *t);
store_entry *store_table_find(const store_table *t, store_text key); /* NULL = neither */
bool store_table_value(const store_table *t, store_text key, store_text *value);
bool store_table_is_there(const store_table *t, store_text key); /* a value or a waiting element */
bool store_table_set(store_table *t, store_text key, store_text value, bool append);
bool store_table_delete(store_table *t, store_text key);
bool store_table_push(store_table *t, store_text key, store_text value);
/* The oldest element, malloc'd; false where the queue is empty. */
bool store_table_pop(store_table *t, store_text key, char **bytes, size_t *size);
/* Adds to a decimal number, absent = 0; false where the value is none. */
bool store_table_add(store_table *t, store_text key, int64_t amount, int64_t *sum);

#endif
