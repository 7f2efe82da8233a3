/*
 * event.h - TensorBoard's Event messages as TFRecords: length, its checksum, bytes, their checksum.
 * Only the fields that this logger writes, encoded by hand (protocol buffers, wire format).
 */
#ifndef TENSORBOARD_EVENT_H
#define TENSORBOARD_EVENT_H
#include <nrl/logger.h>

/* A byte buffer. A failed allocation sets `failed`, and later appends do nothing. */
typedef struct {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} event_bytes;

/* Each function appends one whole record. */
void event_version(event_bytes *out, double time); /* first record of a file */
/* Readers drop what earlier files have at `step` and later. */
void event_restart(event_bytes *out, double time, int64_t step);
/* The record's values, tagged train/NAME, or eval/NAME if NAME begins with eval_. */
void event_scalars(event_bytes *out, const nrl_record *record);

/* CRC-32C (Castagnoli), as in RFC 3720. Begin with crc 0; pass the previous result to continue. */
uint32_t event_crc(uint32_t crc, const void *bytes, size_t n);

#endif
