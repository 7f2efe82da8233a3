/*
 * event.h - TensorBoard's Event messages as TFRecords: length, its checksum, bytes, their checksum.
 * Only the fields that this logger writes, encoded by hand (protocol buffers, wire format).
 */
#ifndef TENSORBOARD_EVENT_H
#define TENSORBOARD_EVENT_H
#include <nrl/logger.h>

/* Bytes being built. An allocation that fails sets `failed`; what is added later is omitted. */
typedef struct {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} event_bytes;

/* Each appends one whole record. */
void event_version(event_bytes *out, double time); /* the first of a file */
/* Readers drop what earlier files have at `step` and beyond. */
void event_restart(event_bytes *out, double time, int64_t step);
/* The record's values, tagged train/NAME, or eval/NAME where NAME begins with eval_. */
void event_scalars(event_bytes *out, const nrl_record *record);

/* CRC-32C (Castagnoli), as in RFC 3720: 0 begins, the result of the bytes before goes on. */
uint32_t event_crc(uint32_t crc, const void *bytes, size_t n);

#endif
