/*
 * commit.c - the second half of a save, on all ranks together. Rank 0 creates the directory, every rank writes its file
 * and makes it durable, and rank 0 writes the manifest and renames the directory. Between these steps the writer
 * threads exchange messages "<status> <text>" through the store; a single rank sends none.
 *
 *   ckpt/<serial>/begin    rank 0: the directory exists, or the error
 *   ckpt/<serial>/done/<r> rank r: size and hash of its file, or the error
 *   ckpt/<serial>/end      rank 0: the checkpoint is complete, or the error
 *
 * Each rank removes the messages that it sent: "done" once it has read "end", the others once every rank has sent
 * "done" in the next save.
 */
#include "base/json.h"
#include "base/clock.h"
#include "base/disk.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- messages between ranks ---- */

enum { MAX_MESSAGE = 4096 };
static const double SLICE_S = 0.5; /* the interval at which a wait checks give_up */

static const char *key_of(checkpoint_writer *w, int64_t serial, const char *what)
{
    return arena_printf(&w->save, "ckpt/%lld/%s", (long long)serial, what);
}

static nrl_status message_send(checkpoint_writer *w, const char *what, nrl_status st, const char *text)
{
    char message[MAX_MESSAGE];
    int n = snprintf(message, sizeof message, "%d %s", (int)st, text);
    size_t size = n < MAX_MESSAGE ? (size_t)n : MAX_MESSAGE - 1;
    return w->ranks.set(w->ranks.user, key_of(w, w->serial, what), message, size);
}

/* The text of a failure, in the memory of the save, to be set again after other calls. */
static const char *text_of(checkpoint_writer *w, nrl_status st)
{
    return arena_strdup(&w->save, st == NRL_OK ? "" : nrl_error_text());
}

static nrl_status again(nrl_status st, const char *text)
{
    return st == NRL_OK ? NRL_OK : nrl_fail(st, "%s", text);
}

/* A message that cannot be removed only takes some memory in the store, so the error is dropped and the current error
 * text is kept. */
static void message_remove(checkpoint_writer *w, int64_t serial, const char *what)
{
    const char *why = arena_strdup(&w->save, nrl_error_text());
    if (w->ranks.remove(w->ranks.user, key_of(w, serial, what)) != NRL_OK) nrl_fail(NRL_ERR_PEER, "%s", why);
}

/* Waits in slices. If the store fails at once, it is gone; if it fails after the slice, the key does not exist yet. */
static nrl_status message_wait(checkpoint_writer *w, const char *key, int32_t from, void **value, size_t *size)
{
    double start = clock_seconds();
    for (;;) {
        double asked = clock_seconds();
        nrl_status st = w->ranks.get(w->ranks.user, key, SLICE_S, value, size);
        double now = clock_seconds();
        if (st == NRL_OK) return NRL_OK;
        if (atomic_load(&w->give_up)) return nrl_fail(NRL_ERR_STOPPED, "the save was abandoned");
        if (now - asked < SLICE_S / 2) return st;
        if (now - start > w->ranks.timeout_s)
            return nrl_fail(NRL_ERR_PEER, "rank %d did not finish its part of the checkpoint within %.0f s", from,
                            w->ranks.timeout_s);
    }
}

/* Receives a message: returns its status and sets *text, in the memory of the save. *text is NULL if no message came.
 */
static nrl_status message_receive(checkpoint_writer *w, const char *what, int32_t from, const char **text)
{
    void *value;
    size_t size;
    *text = NULL;
    NRL_TRY(message_wait(w, key_of(w, w->serial, what), from, &value, &size));
    char *message = arena_strndup(&w->save, value, size < MAX_MESSAGE ? size : MAX_MESSAGE), *rest;
    free(value);
    long st = strtol(message, &rest, 10);
    *text = *rest ? rest + 1 : rest;
    if (rest == message || st < NRL_OK || st > NRL_ERR_BUG)
        return nrl_fail(NRL_ERR_PEER, "rank %d sent an invalid message about the checkpoint", from);
    if (st == NRL_OK) return NRL_OK;
    return nrl_fail((nrl_status)st, "%s", *text);
}

/* ---- the steps ---- */

static nrl_status check_out(const checkpoint_writer *w)
{
    return w->o.check ? w->o.check(w->o.check_user) : NRL_OK;
}

/* If the directory no longer belongs to the caller, that is the reason of any failure in it. */
static nrl_status blame_out(const checkpoint_writer *w, nrl_status st)
{
    nrl_status out = st == NRL_OK ? NRL_OK : check_out(w);
    return out == NRL_OK ? st : out;
}

static nrl_status make_folder(checkpoint_writer *w)
{
    NRL_TRY(check_out(w));
    NRL_TRY(disk_make_folder(w->parent));
    if (!w->parent_is_durable) NRL_TRY(disk_sync_folder(w->o.out));
    w->parent_is_durable = true;
    NRL_TRY(format_remove(w->temporary));
    return mkdir(w->temporary, 0777) == 0 ? NRL_OK : disk_fail(w->temporary, errno);
}

static nrl_status begin(checkpoint_writer *w)
{
    const char *text;
    if (w->ranks.rank != 0) return message_receive(w, "begin", 0, &text);
    nrl_status st = blame_out(w, make_folder(w));
    if (w->ranks.world == 1) return st;
    text = text_of(w, st);
    nrl_status sent = message_send(w, "begin", st, text);
    return st == NRL_OK ? sent : again(st, text);
}

/* If the disk is full, adds how much this save needs, so that the user knows how much to free. */
static nrl_status explain_full_disk(const checkpoint_writer *w, nrl_status st)
{
    if (st == NRL_ERR_FULL) nrl_add_context("the checkpoint needs up to %lld bytes", (long long)w->outcome.raw_bytes);
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
    nrl_status st = explain_full_disk(w, rank_file_write(&f, &w->encoder, &w->save, file));
    if (st == NRL_OK) st = reader_check_file(f.path, f.rank, f.world, f.step, file);
    w->outcome.stored_bytes = st == NRL_OK ? file->size : 0;
    return st;
}

/* Collects what the other ranks wrote. Waits for every rank even after a failure, so that no rank is still writing when
 * this returns. Once all have answered, the messages of the previous save are removed: all ranks have read them. */
static nrl_status gather(checkpoint_writer *w, nrl_status own, const manifest_file *file, manifest_file *all)
{
    nrl_status first = own;
    bool all_answered = true;
    const char *why = text_of(w, own);
    all[0] = *file;
    for (int32_t r = 1; r < w->ranks.world; r++) {
        const char *text;
        nrl_status st = message_receive(w, arena_printf(&w->save, "done/%d", r), r, &text);
        all_answered = all_answered && text;
        if (st == NRL_OK && sscanf(text, "%" SCNd64 " %" SCNd64 " %32s %64s", &all[r].size, &all[r].index, all[r].hash,
                                   all[r].digest) != (w->o.is_signed ? 4 : 3))
            st = nrl_fail(NRL_ERR_PEER, "rank %d did not describe its file", r);
        if (st == NRL_OK || first != NRL_OK) continue;
        first = st;
        why = arena_printf(&w->save, "rank %d: %s", r, nrl_error_text());
    }
    if (all_answered && w->ranks.world > 1 && w->serial > 1) {
        message_remove(w, w->serial - 1, "begin");
        message_remove(w, w->serial - 1, "end");
    }
    return again(first, why);
}

/* Names the largest part of the manifest, so that the user knows which state to reduce. */
static nrl_status too_large(const checkpoint_writer *w, const char *path, size_t size)
{
    size_t most = 0;
    const char *largest = "";
    for (size_t i = 0; i < nrl_node_size(w->nodes); i++) {
        buffer text = {.what = "the manifest of a checkpoint"};
        json_add(&text, nrl_node_at(w->nodes, i), 0);
        if (text.size > most) {
            most = text.size;
            largest = nrl_node_key(w->nodes, i);
        }
        buffer_free(&text);
    }
    return nrl_fail(NRL_ERR_DATA,
                    "cannot write %s: it would have %zu bytes, expected at most %d; the state of '%s' has %zu bytes",
                    path, size, FORMAT_MAX_MANIFEST, largest, most);
}

/* Parses the text again before it writes it: a manifest that a reader would refuse must not be written. */
static nrl_status write_manifest(checkpoint_writer *w, manifest_file *files)
{
    int fd;
    size_t size;
    const char *path = arena_printf(&w->save, "%s/" FORMAT_MANIFEST, w->temporary);
    manifest m = {w->step, w->metric, w->ranks.world, files, w->nodes}, back;
    char *text = manifest_write(&m, &size);
    if (!text) return NRL_ERR_MEMORY;
    nrl_status st = size > FORMAT_MAX_MANIFEST ? too_large(w, path, size) : NRL_OK;
    if (st == NRL_OK) st = manifest_check(&w->save, path, text, size, &back);
    if (st == NRL_OK) st = disk_create(path, &fd);
    if (st == NRL_OK) st = disk_finish(fd, path, disk_write(fd, path, text, size));
    if (st == NRL_OK && w->o.is_signed)
        st = sign_write(w->o.key, arena_printf(&w->save, "%s/" FORMAT_SIGNATURE, w->temporary), text, size);
    free(text);
    return st;
}

static bool exchange(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

/* If the file system cannot exchange two names, the old directory is renamed first. For a moment the name does not
 * exist; folder.c then finds the renamed directory. */
/* Renames `from` to `to`. If `to` existed, it is now *aside (malloc'd, else NULL): remove it once the new one is
 * durable, or restore it with put_back. */
static nrl_status replace(const char *from, const char *to, char **aside)
{
    *aside = NULL;
    if (exchange(from, to)) {
        *aside = mem_strdup(from);
        return NRL_OK;
    }
    if (errno != ENOENT && errno != EINVAL && errno != ENOSYS) return disk_fail(to, errno);
    if (faccessat(AT_FDCWD, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0) { /* otherwise .old may be the only checkpoint */
        char *old = mem_printf("%s.old", to);
        nrl_status st = format_remove(old);
        if (st == NRL_OK && rename(to, old) == 0)
            *aside = old;
        else
            free(old);
        NRL_TRY(st);
    }
    if (rename(from, to) == 0) return NRL_OK;
    nrl_status st = disk_fail(to, errno);
    if (*aside) rename(*aside, to);
    free(*aside);
    *aside = NULL;
    return st;
}

static nrl_status put_back(const char *from, const char *to, const char *aside)
{
    if (aside && !strcmp(aside, from)) return exchange(from, to) ? NRL_OK : disk_fail(to, errno);
    if (rename(to, from) != 0 || (aside && rename(aside, to) != 0)) return disk_fail(to, errno);
    return NRL_OK;
}

/* Rank 0: turns the files of all ranks into a checkpoint. Never replaces a checkpoint of a later version of nrl. Reads
 * the sizes and the manifest back from the disk before the rename, and removes the replaced checkpoint last. */
static nrl_status publish(checkpoint_writer *w, manifest_file *files)
{
    char *aside = NULL;
    int64_t step;
    double metric;
    if (access(w->final, F_OK) == 0 && checkpoint_look(w->final, &step, &metric) == NRL_ERR_DATA) {
        nrl_add_context("cannot replace a checkpoint of another version of nrl");
        return NRL_ERR_DATA;
    }
    NRL_TRY(explain_full_disk(w, write_manifest(w, files)));
    nrl_status st = checkpoint_look(w->temporary, &step, &metric);
    if (st != NRL_OK) {
        nrl_add_context("cannot read the new checkpoint back");
        return st;
    }
    NRL_TRY(disk_sync_folder(w->temporary));
    NRL_TRY(check_out(w));
    NRL_TRY(replace(w->temporary, w->final, &aside));
    st = disk_sync_folder(w->parent);
    if (st != NRL_OK) { /* the earlier checkpoint gets its name again */
        const char *why = text_of(w, st);
        if (put_back(w->temporary, w->final, aside) != NRL_OK) nrl_warn("%s", nrl_error_text());
        free(aside);
        return again(st, why);
    }
    if (aside && format_remove(aside) != NRL_OK) nrl_warn("%s", nrl_error_text());
    free(aside);
    return NRL_OK;
}

/* ---- the two roles ---- */

static nrl_status commit_on_rank0(checkpoint_writer *w, nrl_status st, const manifest_file *own)
{
    st = gather(w, st, own, w->files);
    if (st == NRL_OK) st = blame_out(w, publish(w, w->files));
    const char *why = text_of(w, st);
    bool is_ours = st != NRL_OK && check_out(w) == NRL_OK; /* otherwise another run may use the same name now */
    if (is_ours && format_remove(w->temporary) != NRL_OK) nrl_warn("%s", nrl_error_text());
    if (w->ranks.world > 1) message_send(w, "end", st, why); /* a rank that misses it reports a timeout */
    return again(st, why);
}

static nrl_status commit_on_other_rank(checkpoint_writer *w, nrl_status st, const manifest_file *own)
{
    const char *done = arena_printf(&w->save, "done/%d", w->ranks.rank), *answer = NULL, *text = text_of(w, st);
    const char *file =
        arena_printf(&w->save, "%" PRId64 " %" PRId64 " %s %s", own->size, own->index, own->hash, own->digest);
    nrl_status end = message_send(w, done, st, st == NRL_OK ? file : text);
    if (end == NRL_OK) end = message_receive(w, "end", 0, &answer);
    if (answer) message_remove(w, w->serial, done);
    return st == NRL_OK ? end : again(st, text);
}

void commit(checkpoint_writer *w)
{
    manifest_file own = {0};
    nrl_status st = w->status;
    if (st != NRL_OK) nrl_fail(st, "%s", w->text);
    if (st == NRL_OK || w->ranks.world > 1) {
        /* The other ranks wait for a rank that has failed, so it takes part without writing. */
        const char *why = text_of(w, st);
        nrl_status begun = begin(w);
        st = st == NRL_OK ? begun : again(st, why);
        if (st == NRL_OK) st = blame_out(w, write_own(w, &own));
        st = w->ranks.rank == 0 ? commit_on_rank0(w, st, &own) : commit_on_other_rank(w, st, &own);
    }
    free(w->text);
    w->status = st;
    w->text = mem_strdup(st == NRL_OK ? "" : nrl_error_text());
    if (st != NRL_OK || w->ranks.rank != 0 || check_out(w) != NRL_OK) return;
    if (checkpoint_prune(w->o.out, w->o.keep, w->o.keep_best, w->has_pruned) != NRL_OK)
        nrl_warn("%s", nrl_error_text());
    w->has_pruned = true; /* later calls do not repeat the warnings */
}
