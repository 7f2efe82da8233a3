/*
 * format.h - checkpoints on disk, format 3. Plain data: nothing in it is ever run, and no path in it
 * is ever opened. Numbers are little-endian.
 *
 *   OUT/checkpoints/step-00000200/manifest.json
 *                                 rank-00000.nrlc ... rank-<world-1>.nrlc
 *
 * rank-K.nrlc: what rank K holds.
 *   header  64 bytes: "NRLCKPT\n", u32 format, u32 rank, u32 world, u32 0, i64 step, zeros
 *   chunks  end to end, entry after entry
 *   index   JSON to the end of the file:
 *     {"rank": K, "world": N, "entries": [{"name", "slot", "dtype", "shape": [...],
 *      "begin": [...], "end": [...], "flat": [b, e],   the piece; absent where it is the whole tensor
 *      "rotate": 1,   absent where it is 0
 *      "offset": of the first chunk, "chunks": "..."}], "nodes": {...}}
 *
 * An entry is a piece of a tensor (mesh/layout.h): elements [b, e) of the box begin .. end, counted in
 * the box's row-major order. The shards of all files make up each tensor exactly once. Slot "weight"
 * is the weight in full precision, others are the optimizer's states by name; slot "rank" belongs to
 * this rank alone, and to runs of as many ranks. Nodes are that rank's small state.
 *
 * A chunk holds 256 KiB of elements (the last one less) as byte planes, lowest first: each an ordinary zstd
 * frame that says its content size (any zstd reads it), or the plane itself where that is not longer. With
 * "rotate": 1 the bits of each element were rotated left by one before it was cut into bytes: a float's
 * sign is the lowest bit of the first plane then, its exponent the highest plane; rotate the joined element
 * right by one. In "chunks" each has 16 hex digits of its XXH3-64 (over its bytes as stored) and 6 a plane,
 * the plane's stored size; equal to the number of elements = not compressed.
 *
 * manifest.json: {"xxh3": XXH3-128 of all text behind it, "format", "step", "metric", "world",
 *   "files": [{"size", "index": its offset, "xxh3": XXH3-128 of the index}, ...], "nodes": {...}}
 *
 * A signed checkpoint (sign.h) has more: in each entry "blake2b", 64 hex digits of the BLAKE2b-256 of each chunk's
 * stored bytes; in each of "files" "blake2b", that of the index; and manifest.json.sig, "nrl-ed25519-signature " and
 * 128 hex digits: Ed25519 (RFC 8032) over the bytes of manifest.json. XXH3 finds accidents, not forgery.
 *
 * A save happens in step-00000200.tmp: every rank's file is durable before rank 0 writes the manifest,
 * and that is durable before the one rename. So a folder of the final name is complete. Where a step is saved
 * again on a file system that cannot exchange names, the earlier one is step-00000200.old until the new one
 * has the name; alone, it is the checkpoint of its step.
 */
#ifndef CHECKPOINT_FORMAT_H
#define CHECKPOINT_FORMAT_H
#include "checkpoint/codec.h"
#include <stdbool.h>

enum {
    FORMAT_VERSION = 3,
    FORMAT_HEADER = 64,
    FORMAT_MAX_WORLD = 65536,
    FORMAT_MAX_MANIFEST = 64 << 20, /* bytes; more is not read */
    FORMAT_MAX_INDEX = 1 << 30,
    FORMAT_HASH_DIGITS = 32 /* of an XXH3-128 */
};
#define FORMAT_MAX_STEP ((int64_t)1 << 53)

#define FORMAT_MANIFEST "manifest.json"
#define FORMAT_SIGNATURE "manifest.json.sig"
#define FORMAT_RANK_FILE "rank-%05d.nrlc"
#define FORMAT_MAGIC "NRLCKPT\n"
#define FORMAT_RANK_SLOT "rank"

/* Whether a checkpoint has files of this name. Whatever else lies in its folder was put there by someone else. */
bool format_is_file(const char *name);

/* The first bytes of a rank's file. */
void format_header(int32_t rank, int32_t world, int64_t step, unsigned char header[FORMAT_HEADER]);

#endif
