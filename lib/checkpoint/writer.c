/*
 * writer.c - the first half of a save: collects tensors and nodes, copies them, and hands them to the writer thread.
 */
#include "checkpoint/writer.h"
#include "base/clock.h"
#include "base/disk.h"
#include <fcntl.h>
#include <math.h>
#include <nrl/region.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

nrl_status checkpoint_writer_open(const checkpoint_writer_options *o, checkpoint_writer **out)
{
    checkpoint_writer *w = mem_alloc(sizeof *w);
    w->o = *o;
    w->o.out = mem_strdup(o->out);
    w->memory.source = o->source;
    w->parent = mem_printf("%s/checkpoints", o->out);
    w->ranks = o->ranks ? *o->ranks : (checkpoint_ranks){.world = 1};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->written, NULL);
    size_t n_files = w->ranks.rank == 0 ? (size_t)w->ranks.world : 0;
    w->files = mem_try(n_files * sizeof *w->files, "the manifest of a checkpoint");
    nrl_status st = w->files ? encoder_open(o->threads, &w->encoder) : NRL_ERR_MEMORY;
    if (st == NRL_OK)
        *out = w;
    else
        checkpoint_writer_close(w, true);
    return st;
}

static void join(checkpoint_writer *w)
{
    if (w->has_thread) pthread_join(w->thread, NULL);
    w->has_thread = false;
}

void checkpoint_writer_close(checkpoint_writer *w, bool give_up)
{
    if (!w) return;
    atomic_store(&w->give_up, give_up);
    join(w);
    checkpoint_prepared(w);
    encoder_close(&w->encoder);
    staging_free(&w->memory);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->written);
    arena_free(&w->save);
    free(w->entries);
    free(w->files);
    free(w->text);
    free(w->parent);
    free((char *)w->o.out);
    free(w);
}

/* ---- before the first save ---- */

static nrl_status try_disk(checkpoint_writer *w, int64_t bytes)
{
    int fd;
    nrl_status st = disk_make_folder(w->parent);
    w->trial = mem_printf("%s/trial-%d.tmp", w->parent, w->ranks.rank);
    unlink(w->trial); /* a run that died here may have left it */
    if (st == NRL_OK) st = disk_create(w->trial, &fd);
    if (st == NRL_OK) {
        st = disk_reserve(fd, w->trial, bytes);
        close(fd);
    }
    if (st == NRL_ERR_FULL) nrl_add_context("the checkpoint needs up to %lld bytes", (long long)bytes);
    return st;
}

void checkpoint_prepared(checkpoint_writer *w)
{
    if (w->trial) unlink(w->trial);
    free(w->trial);
    w->trial = NULL;
}

nrl_status checkpoint_prepare(checkpoint_writer *w, int64_t bytes, bool disk)
{
    if (disk) NRL_TRY(try_disk(w, bytes));
    if (!w->o.async || staging_reserve(&w->memory, (size_t)bytes, w->encoder.pool) == NRL_OK) return NRL_OK;
    w->o.async = false;
    nrl_warn("%s\nhint: saves are now synchronous: training waits while a checkpoint is written", nrl_error_text());
    return NRL_OK;
}

/* ---- filling ---- */

void checkpoint_begin(checkpoint_writer *w, int64_t step)
{
    NRL_ASSERT(w->state, ==, WRITER_IDLE);
    arena_reset(&w->save);
    staging_reset(&w->memory);
    w->state = WRITER_FILLING;
    w->serial++;
    w->step = step;
    w->metric = NAN;
    w->n_entries = 0;
    w->final = arena_printf(&w->save, "%s/step-%08lld", w->parent, (long long)step);
    w->temporary = arena_printf(&w->save, "%s.tmp", w->final);
    w->nodes = node_new(&w->save, NRL_NODE_MAP);
    w->rank_nodes = node_new(&w->save, NRL_NODE_MAP);
    w->status = NRL_OK;
    w->outcome = (checkpoint_outcome){.dir = w->final, .step = step};
}

/* Keeps the first failure of a save. */
static void remember(checkpoint_writer *w, nrl_status st)
{
    if (st == NRL_OK || w->status != NRL_OK) return;
    w->status = st;
    free(w->text);
    w->text = mem_strdup(nrl_error_text());
}

static nrl_status writer_add(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                             const void *host, bool in_staging)
{
    NRL_ASSERT(w->state, ==, WRITER_FILLING);
    size_t name = strlen(t->name) + 1, slot = strlen(t->slot) + 1;
    if (w->n_entries == w->capacity) {
        size_t room = w->capacity ? 2 * w->capacity : 64;
        void *entries = mem_try_grow(w->entries, room * sizeof *w->entries, "the list of saved tensors");
        if (!entries) return NRL_ERR_MEMORY;
        w->entries = entries;
        w->capacity = room;
    }
    char *texts = arena_try(&w->save, name + slot, "the names of saved tensors");
    if (!texts) return NRL_ERR_MEMORY;
    index_entry e = {.tensor = *t, .piece = *piece, .rank = w->ranks.rank};
    e.tensor.name = memcpy(texts, t->name, name);
    e.tensor.slot = memcpy(texts + name, t->slot, slot);
    w->outcome.raw_bytes += index_entry_bytes(&e);
    w->entries[w->n_entries++] = (rank_file_entry){.entry = e, .host = host, .in_staging = in_staging};
    return NRL_OK;
}

void checkpoint_add_tensor(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece,
                           const void *host)
{
    remember(w, writer_add(w, t, piece, host, false));
}

nrl_status checkpoint_add_copy(checkpoint_writer *w, const checkpoint_tensor *t, const layout_shard *piece, void **room)
{
    size_t size = (size_t)piece_numel(piece) * nrl_dtype_size(t->dtype);
    NRL_TRY(staging_take(&w->memory, size, room));
    return writer_add(w, t, piece, *room, true);
}

static void add_node(checkpoint_writer *w, nrl_node *map, const char *key, const nrl_node *node)
{
    nrl_node *copy = node_try_copy(&w->save, node, key);
    if (copy)
        node_set(&w->save, map, key, copy);
    else
        remember(w, NRL_ERR_MEMORY);
}

void checkpoint_add_node(checkpoint_writer *w, const char *key, const nrl_node *node)
{
    add_node(w, w->nodes, key, node);
}

void checkpoint_add_rank_node(checkpoint_writer *w, const char *key, const nrl_node *node)
{
    add_node(w, w->rank_nodes, key, node);
}

void checkpoint_set_metric(checkpoint_writer *w, double value)
{
    w->metric = value;
}

/* ---- handing over ---- */

/* Copies everything that is not in staging memory yet. */
static nrl_status snapshot(checkpoint_writer *w)
{
    staging_copy *copies = arena_try(&w->save, (w->n_entries + 1) * sizeof *copies, "the snapshot of a checkpoint");
    size_t n = 0;
    if (!copies) return NRL_ERR_MEMORY;
    for (size_t i = 0; i < w->n_entries; i++) {
        rank_file_entry *e = &w->entries[i];
        staging_copy *c = &copies[n];
        if (e->in_staging) continue;
        c->from = e->host;
        c->size = (size_t)index_entry_bytes(&e->entry);
        NRL_TRY(staging_take(&w->memory, c->size, &c->to));
        e->host = c->to;
        n++;
    }
    return staging_copy_all(w->encoder.pool, copies, n);
}

static void *write_save(void *user)
{
    checkpoint_writer *w = user;
    commit(w);
    double now = clock_seconds();
    w->outcome.write_s = now - w->submitted;
    nrl_region_span("checkpoint", "write", w->submitted, now);
    pthread_mutex_lock(&w->lock);
    w->state = WRITER_WRITTEN;
    pthread_cond_signal(&w->written);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Blocks all signals in the new thread: the main thread handles them. */
static bool start_thread(checkpoint_writer *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    w->has_thread = pthread_create(&w->thread, NULL, write_save, w) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return w->has_thread;
}

static void hand_over(checkpoint_writer *w)
{
    w->submitted = clock_seconds();
    w->state = WRITER_WRITING;
    if (!w->o.async || !start_thread(w)) write_save(w);
}

void checkpoint_submit(checkpoint_writer *w)
{
    NRL_ASSERT(w->state, ==, WRITER_FILLING);
    if (w->o.async && w->status == NRL_OK) remember(w, snapshot(w));
    hand_over(w);
}

void checkpoint_abandon(checkpoint_writer *w, nrl_status why)
{
    NRL_ASSERT(w->state, ==, WRITER_FILLING);
    remember(w, why);
    hand_over(w);
}

bool checkpoint_is_writing(checkpoint_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool writing = w->state == WRITER_WRITING;
    pthread_mutex_unlock(&w->lock);
    return writing;
}

nrl_status checkpoint_poll(checkpoint_writer *w, bool wait, checkpoint_outcome *out, bool *done)
{
    pthread_mutex_lock(&w->lock);
    while (wait && w->state == WRITER_WRITING)
        pthread_cond_wait(&w->written, &w->lock);
    *done = w->state == WRITER_WRITTEN;
    if (*done) w->state = WRITER_IDLE;
    pthread_mutex_unlock(&w->lock);
    if (!*done) return NRL_OK;
    join(w);
    *out = w->outcome;
    if (w->status != NRL_OK) nrl_fail(w->status, "%s", w->text);
    return w->status;
}
