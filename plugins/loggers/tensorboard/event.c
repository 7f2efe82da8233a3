/*
 * event.c - see event.h. Field numbers are those of tensorboard's event.proto and summary.proto:
 *   Event      1 wall_time double, 2 step int64, 3 file_version, 5 summary, 7 session_log
 *   Summary    1 value;  Value  1 tag, 2 simple_value float
 *   SessionLog 1 status (1: start)
 */
#include "event.h"
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

/* ---- bytes ---- */

static void add(event_bytes *out, const void *bytes, size_t n)
{
    if (out->capacity - out->size < n) {
        size_t capacity = 2 * out->capacity + n + 256;
        unsigned char *grown = realloc(out->bytes, capacity);
        if (!grown) {
            out->failed = true;
            return;
        }
        out->bytes = grown;
        out->capacity = capacity;
    }
    memcpy(out->bytes + out->size, bytes, n);
    out->size += n;
}

static void add_little_endian(event_bytes *out, uint64_t v, int n)
{
    unsigned char bytes[8];
    for (int i = 0; i < n; i++)
        bytes[i] = (unsigned char)(v >> 8 * i);
    add(out, bytes, (size_t)n);
}

static size_t varint_size(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static void add_varint(event_bytes *out, uint64_t v)
{
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
    } while (v >>= 7);
    add(out, bytes, n);
}

/* ---- fields; numbers are below 16, so a key is one byte ---- */

static void add_key(event_bytes *out, unsigned field, unsigned wire)
{
    unsigned char key = (unsigned char)(field << 3 | wire);
    add(out, &key, 1);
}

static void add_double(event_bytes *out, unsigned field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    add_key(out, field, FIXED64);
    add_little_endian(out, bits, 8);
}

static void add_int(event_bytes *out, unsigned field, int64_t v)
{
    add_key(out, field, VARINT);
    add_varint(out, (uint64_t)v);
}

static void add_length(event_bytes *out, unsigned field, size_t n)
{
    add_key(out, field, BYTES);
    add_varint(out, n);
}

/* ---- records ---- */

/* Checksums are rotated and offset, because data may contain checksums itself. */
static void add_checksum(event_bytes *out, const void *bytes, size_t n)
{
    uint32_t crc = event_crc(0, bytes, n);
    add_little_endian(out, (crc >> 15 | crc << 17) + 0xa282ead8u, 4);
}

/* Frames what was appended since `begin`: inserts the 12-byte header before it. */
static size_t begin_record(event_bytes *out)
{
    static const unsigned char head[12] = {0};
    size_t begin = out->size;
    add(out, head, sizeof head);
    return begin;
}

static void end_record(event_bytes *out, size_t begin)
{
    if (out->failed) return;
    size_t n = out->size - begin - 12;
    event_bytes head = {.bytes = out->bytes + begin, .capacity = 12};
    add_little_endian(&head, n, 8);
    add_checksum(&head, head.bytes, 8);
    add_checksum(out, out->bytes + begin + 12, n);
}

void event_version(event_bytes *out, double time)
{
    static const char version[] = "brain.Event:2";
    size_t begin = begin_record(out);
    add_double(out, 1, time);
    add_length(out, 3, sizeof version - 1);
    add(out, version, sizeof version - 1);
    end_record(out, begin);
}

void event_restart(event_bytes *out, double time, int64_t step)
{
    size_t begin = begin_record(out);
    add_double(out, 1, time);
    add_int(out, 2, step);
    add_length(out, 7, 2);
    add_int(out, 1, 1);
    end_record(out, begin);
}

/* ---- scalars ---- */

typedef struct {
    const char *group, *name;
} tag;

static tag tag_of(const char *name)
{
    bool eval = !strncmp(name, "eval_", 5);
    return eval ? (tag){"eval/", name + 5} : (tag){"train/", name};
}

static size_t tag_size(tag t)
{
    return strlen(t.group) + strlen(t.name);
}

/* Readers reject text that is not UTF-8: every byte that is not printable ASCII becomes a question mark. */
static void add_tag(event_bytes *out, tag t)
{
    add_length(out, 1, tag_size(t));
    add(out, t.group, strlen(t.group));
    for (const char *c = t.name; *c; c++)
        add(out, *c >= ' ' && *c <= '~' ? c : "?", 1);
}

/* Size of a Value: the tag's field and five bytes for the number. */
static size_t value_size(tag t)
{
    return 1 + varint_size(tag_size(t)) + tag_size(t) + 5;
}

static void add_value(event_bytes *out, const nrl_value *v)
{
    tag t = tag_of(v->name);
    float number = (float)v->value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    add_length(out, 1, value_size(t));
    add_tag(out, t);
    add_key(out, 2, FIXED32);
    add_little_endian(out, bits, 4);
}

void event_scalars(event_bytes *out, const nrl_record *r)
{
    size_t size = 0, begin = begin_record(out);
    for (size_t i = 0; i < r->n_values; i++) {
        if (!r->values[i].name) continue;
        size_t n = value_size(tag_of(r->values[i].name));
        size += 1 + varint_size(n) + n;
    }
    add_double(out, 1, r->time);
    add_int(out, 2, r->step);
    add_length(out, 5, size);
    for (size_t i = 0; i < r->n_values; i++)
        if (r->values[i].name) add_value(out, &r->values[i]);
    end_record(out, begin);
}
