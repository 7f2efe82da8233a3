/*
 * commit.c - the second half of a save, on all ranks at once: rank 0 makes the folder, every rank writes
 * its file and makes it durable, rank 0 writes the manifest and renames. Between these the ranks'
 * threads tell each other words through the store; with one rank nothing is told.
 *
 *   ckpt/<serial>/begin    rank 0: the folder is there, or why not
 *   ckpt/<serial>/done/<r> rank r: size and hash of its file, or why there is none
 *   ckpt/<serial>/end      rank 0: the checkpoint is complete, or why not
 *
 * Each word is removed by who told it: "done" once "end" answered it, the others once every rank has told
 * "done" of the next save.
 */
#include "base/json.h"
#include "checkpoint/disk.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- words between ranks: "<status> <text>" ---- */

enum { MAX_WORD = 4096 };
static const double SLICE_S = 0.5; /* how long a wait does not look at give_up */

static const char *key_of(checkpoint_writer *w, int64_t serial, const char *what)
{
    return arena_printf(&w->save, "ckpt/%lld/%s", (long long)serial, what);
}

static nrl_status tell(checkpoint_writer *w, const char *what, nrl_status st, const char *text)
{
    char word[MAX_WORD];
    int n = snprintf(word, sizeof word, "%d %s", (int)st, text);
    size_t size = n < MAX_WORD ? (size_t)n : MAX_WORD - 1;
    return w->ranks.set(w->ranks.user, key_of(w, w->serial, what), word, size);
}

/* One that stays takes a little of the store's memory, no more: its error is nobody's. Where an earlier
 * one is at hand, its text is kept. */
static void forget(checkpoint_writer *w, int64_t serial, const char *what)
{
    char *why = mem_strdup(nrl_error_text());
    if (w->ranks.remove(w->ranks.user, key_of(w, serial, what)) != NRL_OK) nrl_fail(NRL_ERR_PEER, "%s", why);
    free(why);
}

/* Waits in slices: a store that answers at once and fails is gone, one that fails after the slice has no
 * such key yet. */
static nrl_status wait_for(checkpoint_writer *w, const char *key, int32_t from, void **value, size_t *size)
{
    double start = writer_seconds();
    for (;;) {
        double asked = writer_seconds();
        nrl_status st = w->ranks.get(w->ranks.user, key, SLICE_S, value, size);
        double now = writer_seconds();
        if (st == NRL_OK) return NRL_OK;
        if (atomic_load(&w->give_up)) return nrl_fail(NRL_ERR_STOPPED, "the save was given up");
        if (now - asked < SLICE_S / 2) return st;
        if (now - start > w->ranks.timeout_s)
            return nrl_fail(NRL_ERR_PEER, "rank %d did not end its part of the checkpoint within %.0f s", from,
                            w->ranks.timeout_s);
    }
}

/* *text (in the save's memory): what the rank told, NULL where it told nothing; its failure is the
 * result. */
static nrl_status ask(checkpoint_writer *w, const char *what, int32_t from, const char **text)
{
    void *value;
    size_t size;
    *text = NULL;
    NRL_TRY(wait_for(w, key_of(w, w->serial, what), from, &value, &size));
    char *word = arena_strndup(&w->save, value, size < MAX_WORD ? size : MAX_WORD), *rest;
    free(value);
    long st = strtol(word, &rest, 10);
    *text = *rest ? rest + 1 : rest;
    if (rest == word || st < NRL_OK || st > NRL_ERR_BUG)
        return nrl_fail(NRL_ERR_PEER, "rank %d told something that is no state of a checkpoint", from);
    if (st == NRL_OK) return NRL_OK;
    return nrl_fail((nrl_status)st, "%s", *text);
}

/* ---- the steps ---- */

static nrl_status check_out(const checkpoint_writer *w)
{
    return w->o.check ? w->o.check(w->o.check_user) : NRL_OK;
}

/* What fails in a folder that is not the caller's any more fails for that reason. */
static nrl_status blame_out(const checkpoint_writer *w, nrl_status st)
{
    nrl_status out = st == NRL_OK ? NRL_OK : check_out(w);
    return out == NRL_OK ? st : out;
}

/* A failure before this point has no folder to make. */
static nrl_status make_folder(checkpoint_writer *w)
{
    NRL_TRY(check_out(w));
    NRL_TRY(disk_make_folder(w->parent));
    if (!w->parent_is_durable) NRL_TRY(disk_sync_folder(w->o.out));
    w->parent_is_durable = true;
    NRL_TRY(disk_remove_folder(w->temporary));
    return disk_make_new_folder(w->temporary);
}

static nrl_status begin(checkpoint_writer *w)
{
    const char *text;
    if (w->ranks.rank != 0) return ask(w, "begin", 0, &text);
    nrl_status st = make_folder(w);
    if (w->ranks.world > 1) {
        char *why = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
        nrl_status told = tell(w, "begin", st, why);
        if (st != NRL_OK)
            nrl_fail(st, "%s", why);
        else
            st = told;
        free(why);
    }
    return st;
}

/* A full disk: how much this save needs, so that the user knows what to free. */
static nrl_status explain(const checkpoint_writer *w, nrl_status st)
{
    if (st == NRL_ERR_FULL)
        nrl_add_context("the checkpoint needs %lld bytes or a little less", (long long)w->outcome.raw_bytes);
    return st;
}

static nrl_status write_own(checkpoint_writer *w, manifest_file *file)
{
    rank_file f = {.step = w->step,
                   .rank = w->ranks.rank,
                   .world = w->ranks.world,
                   .n_entries = w->n_entries,
                   .entries = w->entries,
                   .nodes = w->rank_nodes,
                   .has_digests = w->o.is_signed,
                   .give_up = &w->give_up};
    f.path = arena_printf(&w->save, "%s/" FORMAT_RANK_FILE, w->temporary, w->ranks.rank);
    nrl_status st = explain(w, rank_file_write(&f, &w->encoder, &w->save, file));
    if (st == NRL_OK) st = reader_check_file(f.path, f.rank, f.world, f.step, file);
    w->outcome.stored_bytes = st == NRL_OK ? file->size : 0;
    return st;
}

/* Rank 0's words of the save before this one, which the others have ended. */
static void forget_earlier(checkpoint_writer *w)
{
    if (w->serial == 1) return;
    forget(w, w->serial - 1, "begin");
    forget(w, w->serial - 1, "end");
}

/* What the others wrote; waits for all of them, whatever the first ones said: nobody writes any longer
 * when it returns. */
static nrl_status gather(checkpoint_writer *w, nrl_status own, const manifest_file *file, manifest_file *all)
{
    nrl_status first = own;
    bool heard = true;
    char *why = mem_strdup(own == NRL_OK ? "" : nrl_error_text());
    all[0] = *file;
    for (int32_t r = 1; r < w->ranks.world; r++) {
        const char *text;
        nrl_status st = ask(w, arena_printf(&w->save, "done/%d", r), r, &text);
        heard = heard && text;
        if (st == NRL_OK && sscanf(text, "%" SCNd64 " %" SCNd64 " %32s %64s", &all[r].size, &all[r].index, all[r].hash,
                                   all[r].digest) != (w->o.is_signed ? 4 : 3))
            st = nrl_fail(NRL_ERR_PEER, "rank %d told nothing of its file", r);
        if (st == NRL_OK || first != NRL_OK) continue;
        first = st;
        free(why);
        why = mem_printf("rank %d: %s", r, nrl_error_text());
    }
    if (heard && w->ranks.world > 1) forget_earlier(w);
    if (first != NRL_OK) nrl_fail(first, "%s", why);
    free(why);
    return first;
}

/* Which part of the manifest a user could make smaller. */
static nrl_status too_large(const checkpoint_writer *w, const char *path, size_t size)
{
    size_t most = 0;
    const char *largest = "";
    for (size_t i = 0; i < nrl_node_size(w->nodes); i++) {
        char *text = json_write(nrl_node_at(w->nodes, i), 0);
        if (strlen(text) > most) {
            most = strlen(text);
            largest = nrl_node_key(w->nodes, i);
        }
        free(text);
    }
    return nrl_fail(NRL_ERR_DATA,
                    "%s: cannot be written: it would have %zu bytes, expected at most %d; the state of '%s' has "
                    "%zu of them",
                    path, size, FORMAT_MAX_MANIFEST, largest, most);
}

/* What a reader would refuse is not written. */
static nrl_status write_manifest(checkpoint_writer *w, manifest_file *files)
{
    int fd;
    size_t size;
    const char *path = arena_printf(&w->save, "%s/" FORMAT_MANIFEST, w->temporary);
    manifest m = {w->step, w->metric, w->ranks.world, files, w->nodes}, back;
    char *text = manifest_write(&m, &size);
    nrl_status st = size > FORMAT_MAX_MANIFEST ? too_large(w, path, size) : NRL_OK;
    if (st == NRL_OK) st = manifest_check(&w->save, path, text, size, &back);
    if (st == NRL_OK) st = disk_create(path, &fd);
    if (st == NRL_OK) st = disk_finish(fd, path, disk_write(fd, path, text, size));
    if (st == NRL_OK && w->o.is_signed) st = sign_write(w->o.key, w->temporary, text, size);
    free(text);
    return st;
}

/* The save counts once it can be read: sizes of all files, the manifest as the disk has it. */
static nrl_status read_back(const checkpoint_writer *w)
{
    int64_t step;
    double metric;
    nrl_status st = checkpoint_look(w->temporary, &step, &metric);
    if (st != NRL_OK) nrl_add_context("the checkpoint cannot be read back");
    return st;
}

/* The name is durable, or the earlier holder of it has it again. */
static nrl_status take_name(checkpoint_writer *w, char **aside)
{
    NRL_TRY(disk_replace(w->temporary, w->final, aside));
    nrl_status st = disk_sync_folder(w->parent);
    if (st == NRL_OK) return NRL_OK;
    char *why = mem_strdup(nrl_error_text());
    if (disk_put_back(w->temporary, w->final, *aside) != NRL_OK) nrl_warn("%s", nrl_error_text());
    free(*aside);
    *aside = NULL;
    nrl_fail(st, "%s", why);
    free(why);
    return st;
}

/* A checkpoint of a later version of nrl is never replaced, whatever the run thinks of it. */
static nrl_status check_replaced(const checkpoint_writer *w)
{
    int64_t step;
    double metric;
    if (access(w->final, F_OK) != 0 || checkpoint_look(w->final, &step, &metric) != NRL_ERR_DATA) return NRL_OK;
    nrl_add_context("cannot replace a checkpoint of another version of nrl");
    return NRL_ERR_DATA;
}

/* Rank 0: from files to a checkpoint. What it replaces is removed last. */
static nrl_status publish(checkpoint_writer *w, manifest_file *files)
{
    char *aside = NULL;
    NRL_TRY(check_replaced(w));
    NRL_TRY(explain(w, write_manifest(w, files)));
    NRL_TRY(read_back(w));
    NRL_TRY(disk_sync_folder(w->temporary));
    NRL_TRY(check_out(w));
    NRL_TRY(take_name(w, &aside));
    if (aside && disk_remove_folder(aside) != NRL_OK) nrl_warn("%s", nrl_error_text());
    free(aside);
    return NRL_OK;
}

/* ---- the two roles ---- */

static nrl_status lead(checkpoint_writer *w, nrl_status st, const manifest_file *own)
{
    manifest_file *files = arena_alloc(&w->save, (size_t)w->ranks.world * sizeof *files);
    st = gather(w, st, own, files);
    if (st == NRL_OK) st = blame_out(w, publish(w, files));
    char *why = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
    bool is_ours = st != NRL_OK && check_out(w) == NRL_OK; /* else another run may be writing a save of that name */
    if (is_ours && disk_remove_folder(w->temporary) != NRL_OK) nrl_warn("%s", nrl_error_text());
    if (w->ranks.world > 1) tell(w, "end", st, why); /* who does not hear it waits, then says so */
    if (st != NRL_OK) nrl_fail(st, "%s", why);
    free(why);
    return st;
}

static nrl_status follow(checkpoint_writer *w, nrl_status st, const manifest_file *own)
{
    const char *text, *done = arena_printf(&w->save, "done/%d", w->ranks.rank), *answer = NULL;
    char *why = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
    if (st == NRL_OK)
        text = arena_printf(&w->save, "%" PRId64 " %" PRId64 " %s %s", own->size, own->index, own->hash, own->digest);
    else
        text = why;
    nrl_status end = tell(w, done, st, text);
    if (end == NRL_OK) end = ask(w, "end", 0, &answer);
    if (answer) forget(w, w->serial, done);
    if (st != NRL_OK) nrl_fail(st, "%s", why);
    free(why);
    return st != NRL_OK ? st : end;
}

void commit(checkpoint_writer *w)
{
    manifest_file own = {0};
    nrl_status st = w->status;
    if (st != NRL_OK) nrl_fail(st, "%s", w->text);
    if (st == NRL_OK || w->ranks.world > 1) {
        /* a rank that failed already is still waited for: it takes part, and writes nothing */
        char *why = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
        nrl_status begun = begin(w);
        if (st != NRL_OK)
            nrl_fail(st, "%s", why);
        else
            st = begun;
        free(why);
        if (st == NRL_OK) st = blame_out(w, write_own(w, &own));
        st = w->ranks.rank == 0 ? lead(w, st, &own) : follow(w, st, &own);
    }
    free(w->text);
    w->status = st;
    w->text = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
    if (st != NRL_OK || w->ranks.rank != 0 || check_out(w) != NRL_OK) return;
    if (checkpoint_prune(w->o.out, w->o.keep, w->o.keep_best, w->has_pruned) != NRL_OK)
        nrl_warn("%s", nrl_error_text());
    w->has_pruned = true; /* what stays was named once */
}
