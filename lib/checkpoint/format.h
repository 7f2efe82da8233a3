/*
 * format.h - the files of a checkpoint, format 3. They hold plain data: nrl never executes anything in them and never
 * opens a path that they contain. Numbers are little-endian.
 *
 *   OUT/checkpoints/step-00000200/manifest.json
 *                                 rank-00000.nrlc ... rank-<world-1>.nrlc
 *
 * rank-K.nrlc holds the data of rank K:
 *   header  64 bytes: "NRLCKPT\n", u32 format, u32 rank, u32 world, u32 0, i64 step, zeros
 *   chunks  end to end, entry after entry
 *   index   JSON to the end of the file:
 *     {"rank": K, "world": N, "entries": [{"name", "slot", "dtype", "shape": [...],
 *      "begin": [...], "end": [...], "flat": [b, e],   the shard; absent if it is the whole tensor
 *      "rotate": 1,   absent if it is 0
 *      "offset": of the first chunk, "chunks": "..."}], "nodes": {...}}
 *
 * An entry is a shard of a tensor (lib/base/piece.h): elements [b, e) of the box begin .. end, in row-major order
 * within the box. The shards of all files cover each tensor exactly once. Slot "weight" is the weight in full
 * precision. Slot "rank" is state of this rank only, restored by runs with the same number of ranks. Any other slot is
 * the name of an optimizer state. The nodes are the small state of this rank.
 *
 * A chunk holds 256 KiB of elements (the last chunk may hold less) as byte planes, lowest first. Each plane is an
 * ordinary zstd frame with its content size, or the plane itself if that is not longer. With "rotate": 1 the bits of
 * each element are rotated left by one before it is split into bytes, so that the sign of a float is the lowest bit of
 * the first plane and its exponent is the last plane; a reader rotates the joined element right by one. "chunks" has,
 * for each chunk, 16 hex digits of the XXH3-64 of its stored bytes, and 6 hex digits per plane with the stored size; a
 * size equal to the number of elements means that the plane is not compressed.
 *
 * manifest.json: {"xxh3": XXH3-128 of the text after it, "format", "step", "metric", "world",
 *   "files": [{"size", "index": its offset, "xxh3": XXH3-128 of the index}, ...], "nodes": {...}}
 *
 * A signed checkpoint (sign.h) has in addition: "blake2b" in each entry, 64 hex digits per chunk of the BLAKE2b-256 of
 * its stored bytes; "blake2b" in each of "files", that of the index; and the file manifest.json.sig,
 * "nrl-ed25519-signature " and 128 hex digits of the Ed25519 signature (RFC 8032) of the bytes of manifest.json. XXH3
 * detects accidents, not forgery.
 *
 * A save is written to step-00000200.tmp. The files of all ranks are durable before rank 0 writes the manifest, and the
 * manifest is durable before the rename, so a directory with the final name is complete. If a step is saved again on a
 * file system that cannot exchange two names, the earlier checkpoint is step-00000200.old until the new one has the
 * name; if the new one does not exist, step-00000200.old is the checkpoint of that step.
 */
#ifndef CHECKPOINT_FORMAT_H
#define CHECKPOINT_FORMAT_H
#include "base/codec.h"
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

/* Whether checkpoints have files of this name. nrl did not write any other file in the directory. */
bool format_is_file(const char *name);

/* Removes a directory and the files in it that belong to a checkpoint. If it holds other files, the directory stays and
 * this is an error. A missing directory is not an error. */
nrl_status format_remove(const char *path);

/* The first bytes of a rank's file. */
void format_header(int32_t rank, int32_t world, int64_t step, unsigned char header[FORMAT_HEADER]);

#endif
