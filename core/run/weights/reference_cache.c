/*
 * reference_cache.c - builds, checks and reads the file of cached reference log-probs.
 */
#include "run/weights/reference_cache.h"
#include "base/file.h"
#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { CACHE_VERSION = 1 };
static const char magic[8] = "nrl-ref";

typedef struct {
    char magic[8];
    uint32_t version, reserved;
    int64_t n_examples, n_values;
    uint64_t hash; /* of everything after the header */
} cache_header;

struct reference_cache {
    void *map;
    size_t size;
    const int64_t *offsets; /* [n_examples + 1] */
    const float *values;    /* [n_values] */
    int64_t n_examples;
};

static void make_path(const reference_cache_setup *s, char *path, size_t room)
{
    char text[512], *config = json_write(s->config, 0);
    uint64_t seed = XXH3_64bits(config, strlen(config));
    free(config);
    int n = snprintf(text, sizeof text, "%d %s %s %s %d", CACHE_VERSION, dataset_hash(s->data), s->weights_key,
                     nrl_dtype_name(s->dtype), s->prompt_targets);
    snprintf(path, room, "%s/ref-%016llx.bin", s->folder,
             (unsigned long long)XXH3_64bits_withSeed(text, (size_t)n, seed));
}

static size_t file_size(int64_t n_examples, int64_t n_values)
{
    return sizeof(cache_header) + (size_t)(n_examples + 1) * sizeof(int64_t) + (size_t)n_values * sizeof(float);
}

/* NULL when there is no such file or it is not whole; the latter is said. */
static reference_cache *map_file(const char *path, int64_t n_examples)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *map = MAP_FAILED;
    if (!fstat(fd, &s) && (size_t)s.st_size >= sizeof(cache_header))
        map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map != MAP_FAILED) {
        const cache_header *h = map;
        bool whole = !memcmp(h->magic, magic, sizeof magic) && h->version == CACHE_VERSION &&
                     h->n_examples == n_examples && h->n_values >= 0 && h->n_values < ((int64_t)1 << 40) &&
                     file_size(n_examples, h->n_values) == (size_t)s.st_size &&
                     XXH3_64bits(h + 1, (size_t)s.st_size - sizeof *h) == h->hash;
        if (whole) {
            reference_cache *c = mem_alloc(sizeof *c);
            *c = (reference_cache){
                .map = map, .size = (size_t)s.st_size, .n_examples = n_examples, .offsets = (const int64_t *)(h + 1)};
            c->values = (const float *)(c->offsets + n_examples + 1);
            return c;
        }
        munmap(map, (size_t)s.st_size);
    }
    nrl_warn("%s is damaged and is computed again", path);
    return NULL;
}

/* ---- building ---- */

typedef struct {
    int64_t n_examples;
    int64_t *offsets;
    float *values;
} contents;

/* Rows of each example, in the order of its sides. */
static void count_rows(const reference_cache_setup *s, contents *c)
{
    const int32_t *tokens;
    const uint8_t *trained;
    c->n_examples = dataset_n_examples(s->data);
    c->offsets = mem_alloc((size_t)(c->n_examples + 1) * sizeof *c->offsets);
    for (int64_t b = 0; b < c->n_examples; b++) {
        c->offsets[b + 1] = c->offsets[b];
        for (int side = 0; side < dataset_n_sides(s->data); side++) {
            int64_t n = dataset_segment(s->data, b, side, &tokens, &trained);
            for (int64_t t = 1; t < n; t++)
                c->offsets[b + 1] += trained[t] || s->prompt_targets;
        }
    }
    c->values = mem_alloc((size_t)c->offsets[c->n_examples] * sizeof *c->values);
}

/* First row of segment `s` of a batch in the contents: sides of an example follow each other. */
static nrl_status place_of(const int64_t *offsets, int64_t n_examples, const nrl_batch *b, int64_t s, int64_t *at,
                           int64_t last_end)
{
    int64_t example = b->segment_sample[s];
    bool goes_on = s && b->segment_example[s] == b->segment_example[s - 1];
    if (example < 0 || example >= n_examples)
        return nrl_fail(NRL_ERR_BUG, "example %lld is not in the cache", (long long)example);
    *at = goes_on ? last_end : offsets[example];
    return NRL_OK;
}

/* Calls for each run of rows of one segment: rows [from, to) of the batch belong at `at`. */
typedef void (*row_copy)(void *user, int64_t at, int64_t from, int64_t n);

static nrl_status each_segment(const int64_t *offsets, int64_t n_examples, const nrl_batch *b, row_copy copy,
                               void *user)
{
    int64_t row = 0, last_end = 0, at;
    for (int64_t s = 0; s < b->n_segments; s++) {
        int64_t from = row;
        while (row < b->n_rows && b->row_segment[row] == s)
            row++;
        NRL_TRY(place_of(offsets, n_examples, b, s, &at, last_end));
        last_end = at + row - from;
        int64_t example = b->segment_sample[s];
        if (last_end > offsets[example + 1])
            return nrl_fail(NRL_ERR_BUG, "example %lld has more target positions than the cache", (long long)example);
        copy(user, at, from, row - from);
    }
    return NRL_OK;
}

typedef struct {
    float *to;
    const float *from;
} copying;

static void put(void *user, int64_t at, int64_t from, int64_t n)
{
    const copying *c = user;
    memcpy(c->to + at, c->from + from, (size_t)n * sizeof(float));
}

static void take(void *user, int64_t at, int64_t from, int64_t n)
{
    const copying *c = user;
    memcpy(c->to + from, c->from + at, (size_t)n * sizeof(float));
}

static nrl_status compute_batch(const reference_cache_setup *s, contents *c, nrl_batch *b)
{
    float *logps = mem_alloc((size_t)b->n_rows * sizeof *logps);
    nrl_status st = s->compute(s->user, b, logps);
    copying pass = {c->values, logps};
    bool copy = mesh_is_copy(s->mesh); /* the first rank gives them */
    if (st == NRL_OK && !b->is_tail && !copy) st = each_segment(c->offsets, c->n_examples, b, put, &pass);
    free(logps);
    return st;
}

/* Each value was computed on one rank and is zero on the others: sums are exact. */
static nrl_status join_values(const reference_cache_setup *s, contents *c)
{
    enum { CHUNK = 1 << 16 };
    int32_t ranks = s->mesh ? nrl_mesh_world(s->mesh) : 1;
    int64_t total = c->offsets[c->n_examples];
    if (ranks == 1) return NRL_OK;
    float *all = mem_alloc((size_t)ranks * CHUNK * sizeof *all);
    nrl_status st = NRL_OK;
    for (int64_t at = 0; at < total && st == NRL_OK; at += CHUNK) {
        size_t n = (size_t)(total - at < CHUNK ? total - at : CHUNK);
        st = mesh_exchange(s->mesh, "reference log-probs", c->values + at, n * sizeof *all, all);
        for (size_t i = 0; i < n && st == NRL_OK; i++) {
            c->values[at + (int64_t)i] = 0;
            for (int32_t r = 0; r < ranks; r++)
                c->values[at + (int64_t)i] += all[(size_t)r * n + i];
        }
    }
    free(all);
    return st;
}

static nrl_status compute_all(const reference_cache_setup *s, contents *c)
{
    data_plan *plan = NULL;
    data_loader *loader = NULL;
    data_plan_options o = {.global_batch = 64,
                           .micro_batch_tokens = s->micro_batch_tokens,
                           .ranks = mesh_n_batches(s->mesh),
                           .rank = mesh_batch(s->mesh)};
    nrl_status st = data_plan_create(s->data, &o, &plan);
    if (st == NRL_OK) st = data_loader_create(s->data, plan, 1, s->prompt_targets, &loader);
    int64_t steps = st == NRL_OK ? data_plan_steps_per_epoch(plan) : 0;
    for (int64_t i = 0; i < steps && st == NRL_OK; i++) {
        data_step step;
        if (s->signal && *s->signal)
            st = nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) while reference log-probs were computed",
                          *s->signal, strsignal(*s->signal));
        if (st == NRL_OK) st = data_loader_step(loader, i, &step);
        for (int64_t m = 0; st == NRL_OK && m < step.n_micro_batches; m++)
            st = compute_batch(s, c, step.micro_batch[m]);
    }
    if (st == NRL_OK) st = join_values(s, c);
    if (loader) data_loader_destroy(loader);
    if (plan) data_plan_destroy(plan);
    return st;
}

static bool write_all(int fd, const void *bytes, size_t size)
{
    for (const char *p = bytes; size;) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static uint64_t hash_contents(const contents *c, size_t head)
{
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, c->offsets, head);
    XXH3_64bits_update(state, c->values, (size_t)c->offsets[c->n_examples] * sizeof(float));
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

/* One process of each node writes, and nodes may share the folder: each under a name of its own. */
static nrl_status write_file(const char *path, const contents *c)
{
    size_t head = (size_t)(c->n_examples + 1) * sizeof *c->offsets;
    int64_t n = c->offsets[c->n_examples];
    cache_header h = {.version = CACHE_VERSION, .n_examples = c->n_examples, .n_values = n};
    memcpy(h.magic, magic, sizeof magic);
    h.hash = hash_contents(c, head);
    char *temporary = file_temporary_name(path, ".tmp");
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, c->offsets, head) &&
                write_all(fd, c->values, (size_t)n * sizeof(float)) && !fsync(fd);
    int error = good ? 0 : errno;
    if (fd >= 0 && close(fd) && !error) error = errno;
    if (!error && rename(temporary, path)) error = errno;
    if (error) unlink(temporary);
    free(temporary);
    if (!error) return NRL_OK;
    return nrl_fail(error == ENOSPC || error == EDQUOT || error == EFBIG ? NRL_ERR_FULL : NRL_ERR_IO,
                    "cannot write '%s' (%zu bytes): %s", path, file_size(c->n_examples, n), strerror(error));
}

static nrl_status build(const reference_cache_setup *s, const char *path)
{
    contents c = {0};
    count_rows(s, &c);
    nrl_status st = compute_all(s, &c);
    if (st == NRL_OK && (!s->mesh || mesh_where(s->mesh)->local_rank == 0)) st = write_file(path, &c);
    if (st == NRL_OK && s->mesh) st = mesh_barrier(s->mesh, "reference file");
    free(c.offsets);
    free(c.values);
    return st;
}

static nrl_status is_everywhere(const reference_cache_setup *s, bool here, bool *everywhere)
{
    int32_t ranks = s->mesh ? nrl_mesh_world(s->mesh) : 1;
    *everywhere = here;
    if (ranks == 1) return NRL_OK;
    bool *all = mem_alloc((size_t)ranks);
    nrl_status st = mesh_exchange(s->mesh, "reference file", &here, sizeof here, all);
    for (int32_t r = 0; r < ranks && st == NRL_OK; r++)
        *everywhere = *everywhere && all[r];
    free(all);
    return st;
}

nrl_status reference_cache_open(const reference_cache_setup *s, reference_cache **out)
{
    char path[4096];
    make_path(s, path, sizeof path);
    bool complete;
    *out = map_file(path, dataset_n_examples(s->data));
    nrl_status st = is_everywhere(s, *out != NULL, &complete);
    if (st == NRL_OK && complete) return NRL_OK;
    reference_cache_close(*out);
    *out = NULL;
    NRL_TRY(st);
    NRL_TRY(build(s, path));
    *out = map_file(path, dataset_n_examples(s->data));
    return *out ? NRL_OK : nrl_fail(NRL_ERR_CORRUPT, "'%s' cannot be read back", path);
}

void reference_cache_close(reference_cache *c)
{
    if (!c) return;
    munmap(c->map, c->size);
    free(c);
}

nrl_status reference_cache_fill(const reference_cache *c, const nrl_batch *batch, float *values)
{
    copying pass = {values, c->values};
    return each_segment(c->offsets, c->n_examples, batch, take, &pass);
}
