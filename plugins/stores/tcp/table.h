/*
 * table.h - the server's keys and values, and its queues, which have a name space of their own.
 * Sizes come from clients: everything counts against STORE_TABLE_BYTES and STORE_TABLE_KEYS, and a
 * call that runs out of memory returns false. One thread.
 */
#ifndef TCP_TABLE_H
#define TCP_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run needs about 8 keys and 8 KiB per rank. */
enum { STORE_TABLE_BYTES = 256 << 20, STORE_TABLE_KEYS = 1 << 19 };

typedef struct {
    const char *bytes;
    size_t size;
} tcp_text;

typedef struct tcp_element tcp_element; /* of a queue */
typedef struct tcp_entry {
    struct tcp_entry *next;
    uint64_t hash;
    char *key, *value; /* value NULL: there is only a queue */
    size_t key_size, value_size;
    tcp_element *first, *last;
    int64_t n_queued;
} tcp_entry;

typedef struct {
    tcp_entry **slots;
    size_t n_slots, n_entries, n_values;
    size_t bytes;
    bool refused; /* a limit was exceeded */
} tcp_table;

void tcp_table_free(tcp_table *t);
tcp_entry *tcp_table_find(const tcp_table *t, tcp_text key); /* NULL if there is neither a value nor a queue */
bool tcp_table_value(const tcp_table *t, tcp_text key, tcp_text *value);
bool tcp_table_is_there(const tcp_table *t, tcp_text key); /* has a value or a queued element */
bool tcp_table_set(tcp_table *t, tcp_text key, tcp_text value, bool append);
bool tcp_table_delete(tcp_table *t, tcp_text key);
bool tcp_table_push(tcp_table *t, tcp_text key, tcp_text value);
/* Removes the oldest element, malloc'd; false if the queue is empty. */
bool tcp_table_pop(tcp_table *t, tcp_text key, char **bytes, size_t *size);
/* Adds to a decimal number, absent = 0; false if the value is not a number. */
bool tcp_table_add(tcp_table *t, tcp_text key, int64_t amount, int64_t *sum);

#endif
