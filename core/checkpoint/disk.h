/*
 * disk.h - file system calls that report who must act: a full disk is not a broken one. Everything that
 * checkpoints do to a disk is here, as plain calls of libc, so that tests can stand in between.
 * Nothing follows a symbolic link in the place of a file.
 */
#ifndef CHECKPOINT_DISK_H
#define CHECKPOINT_DISK_H
#include <nrl/status.h>
#include <stdbool.h>

/* NRL_ERR_FULL or NRL_ERR_IO by `error`, which is an errno; "path: words". */
nrl_status disk_fail(const char *path, int error);

/* A new file to write; one that is there already is an error. */
nrl_status disk_create(const char *path, int *fd);
/* All of it, at the file's end. `path` is for messages. A file size limit is an error, not a
 * signal. */
nrl_status disk_write(int fd, const char *path, const void *data, size_t size);
/* The disk begins with these bytes of the file now, instead of when someone asks for all of it. */
void disk_start_sync(int fd, int64_t offset, int64_t size);
/* Reserves room up to `size` bytes where the file system can; elsewhere does nothing. */
nrl_status disk_reserve(int fd, const char *path, int64_t size);
/* Makes the file durable where st is NRL_OK, and closes it in any case; returns st or what went wrong
 * here. */
nrl_status disk_finish(int fd, const char *path, nrl_status st);

/* A regular file to read, and its size. NRL_ERR_CORRUPT where there is none or something else. */
nrl_status disk_open(const char *path, int *fd, int64_t *size);
/* Exactly size bytes at offset; NRL_ERR_CORRUPT where the file ends before. */
nrl_status disk_read(int fd, const char *path, int64_t offset, void *to, size_t size);
/* A whole file of at most max_bytes as malloc'd, NUL-ended text. */
nrl_status disk_read_whole(const char *path, int64_t max_bytes, char **text, size_t *size);

nrl_status disk_make_folder(const char *path); /* one level; an existing one is fine */
nrl_status disk_make_new_folder(const char *path);
nrl_status disk_sync_folder(const char *path);
/* `from` takes the name `to`. What had it is *aside (malloc'd, NULL = nothing had it) from then on: to
 * be removed once the new one is durable, or brought back by disk_put_back. */
nrl_status disk_replace(const char *from, const char *to, char **aside);
nrl_status disk_put_back(const char *from, const char *to, const char *aside);
/* Removes a folder and the files in it that checkpoints have; with others it stays, an error. A missing one is
 * fine. */
nrl_status disk_remove_folder(const char *path);

#endif
