/*
 * bench_codec.c - the checkpoint codec on values of real checkpoints: sizes by slot, also with
 * weights rounded to bf16, and the speed of encoding and decoding on one core. Arguments:
 * directories of checkpoints; `--dump FILE`: writes all values as they are in memory; `--save DIR`:
 * writes all of them as one checkpoint and reads it back. Prints one JSON object.
 */
#include "checkpoint/checkpoint.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/arena.h"
#include "base/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Numbers of one kind from all checkpoints. */
typedef struct {
    char name[64];
    int width;
    unsigned char *bytes;
    size_t size;
    double encode_s, decode_s;
    size_t stored;
} kind;

enum { MAX_KINDS = 16, REPEATS = 3 };
static kind kinds[MAX_KINDS];
static int n_kinds;

/* Time of this thread on a core: others may be busy. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static kind *kind_named(const char *name, int width)
{
    for (int i = 0; i < n_kinds; i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    if (n_kinds == MAX_KINDS) exit(2);
    kind *k = &kinds[n_kinds++];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->width = width;
    return k;
}

static unsigned char *grow(kind *k, size_t size)
{
    k->bytes = mem_realloc(k->bytes, k->size + size);
    k->size += size;
    return k->bytes + k->size - size;
}

static void check(nrl_status st)
{
    if (st == NRL_OK) return;
    fprintf(stderr, "%s\n", nrl_error_text());
    exit(1);
}

static void add_tensor(checkpoint *c, size_t i)
{
    const checkpoint_tensor *t = checkpoint_tensor_at(c, i);
    layout_shard whole = piece_of_whole(t->n_dims, t->dims);
    size_t size = (size_t)checkpoint_tensor_bytes(c, i);
    if (t->dtype != NRL_DTYPE_F32) return;
    unsigned char *values = grow(kind_named(t->slot, 4), size);
    check(checkpoint_read(c, i, &whole, values));
    if (strcmp(t->slot, "weight")) return;
    kind *half = kind_named("weight in bf16", 2);
    convert_from_f32(NRL_DTYPE_BF16, (const float *)values, piece_numel(&whole), grow(half, size / 2));
}

static void add_checkpoint(const char *dir)
{
    checkpoint *c;
    check(checkpoint_open(dir, &c));
    for (size_t i = 0; i < checkpoint_n_tensors(c); i++)
        add_tensor(c, i);
    checkpoint_close(c);
}

static void measure(kind *k, codec *c)
{
    size_t n_chunks = (k->size + CODEC_CHUNK - 1) / CODEC_CHUNK;
    unsigned char *stored = malloc(n_chunks * (size_t)CODEC_ROOM), *back = malloc(CODEC_CHUNK);
    uint32_t(*sizes)[CODEC_MAX_WIDTH] = malloc(n_chunks * sizeof *sizes);
    int rotate = codec_rotation(k->bytes, k->size / (size_t)k->width, k->width);
    k->encode_s = k->decode_s = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = cpu_seconds();
        k->stored = 0;
        for (size_t i = 0; i < n_chunks; i++) {
            size_t left = k->size - i * CODEC_CHUNK, size = left < CODEC_CHUNK ? left : CODEC_CHUNK;
            k->stored += codec_encode(c, k->bytes + i * CODEC_CHUNK, size / (size_t)k->width, k->width, rotate,
                                      stored + i * CODEC_ROOM, sizes[i]);
        }
        double middle = cpu_seconds();
        for (size_t i = 0; i < n_chunks; i++) {
            size_t left = k->size - i * CODEC_CHUNK, size = left < CODEC_CHUNK ? left : CODEC_CHUNK;
            if (!codec_decode(c, stored + i * CODEC_ROOM, sizes[i], size / (size_t)k->width, k->width, rotate, back))
                exit(1);
        }
        double end = cpu_seconds();
        if (middle - start < k->encode_s) k->encode_s = middle - start;
        if (end - middle < k->decode_s) k->decode_s = end - middle;
    }
    free(stored);
    free(back);
    free(sizes);
}

static void dump(const char *path)
{
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < n_kinds; i++)
        if (kinds[i].width == 4) fwrite(kinds[i].bytes, 1, kinds[i].size, f);
    if (!f || fclose(f)) exit(1);
}

static checkpoint_tensor whole_kind(const kind *k)
{
    return (checkpoint_tensor){
        .name = k->name, .slot = "weight", .dtype = NRL_DTYPE_F32, .n_dims = 1, .dims = {(int64_t)k->size / 4}};
}

/* With two threads, durable, and read back to memory. */
static void save(const char *out)
{
    checkpoint_writer *w;
    checkpoint_outcome o;
    checkpoint *c;
    bool done;
    const checkpoint_writer_options options = {.out = out, .threads = 2};
    check(checkpoint_writer_open(&options, &w));
    double start = clock_seconds();
    checkpoint_begin(w, 1);
    for (int i = 0; i < n_kinds; i++) {
        checkpoint_tensor t = whole_kind(&kinds[i]);
        layout_shard whole = piece_of_whole(1, t.dims);
        if (kinds[i].width == 4) checkpoint_add_tensor(w, &t, &whole, kinds[i].bytes);
    }
    checkpoint_submit(w);
    check(checkpoint_poll(w, true, &o, &done));
    double middle = clock_seconds();
    check(checkpoint_open(o.dir, &c));
    check(checkpoint_use_threads(c, 2));
    for (size_t i = 0; i < checkpoint_n_tensors(c); i++) {
        layout_shard whole = piece_of_whole(1, checkpoint_tensor_at(c, i)->dims);
        void *back = malloc((size_t)checkpoint_tensor_bytes(c, i));
        check(checkpoint_read(c, i, &whole, back));
        free(back);
    }
    printf("\"save_s\": %.4f, \"load_s\": %.4f, \"bytes\": %lld, ", middle - start, clock_seconds() - middle,
           (long long)checkpoint_bytes(c));
    checkpoint_close(c);
    checkpoint_writer_close(w, false);
}

int main(int argc, char **argv)
{
    codec *c;
    check(codec_create(&c));
    const char *to = NULL, *out = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--dump") && i + 1 < argc)
            to = argv[++i];
        else if (!strcmp(argv[i], "--save") && i + 1 < argc)
            out = argv[++i];
        else
            add_checkpoint(argv[i]);
    }
    if (to) dump(to);
    printf("{");
    if (out) save(out);
    printf("\"kinds\": {");
    for (int i = 0; i < n_kinds; i++) {
        kind *k = &kinds[i];
        measure(k, c);
        printf("%s\"%s\": {\"bytes\": %zu, \"ratio\": %.4f, \"encode_GBps_core\": %.2f, \"decode_GBps_core\": %.2f}",
               i ? ", " : "", k->name, k->size, (double)k->stored / (double)k->size,
               (double)k->size / k->encode_s / 1e9, (double)k->size / k->decode_s / 1e9);
        free(k->bytes);
    }
    puts("}}");
    codec_destroy(c);
    return 0;
}
