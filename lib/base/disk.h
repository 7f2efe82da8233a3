/*
 * disk.h - durable files and directories. Errors separate a full disk, which the user can fix, from a broken one.
 * All calls are plain libc calls, so that tests can intercept them. No function follows a symbolic link where it
 * expects a file.
 */
#ifndef BASE_DISK_H
#define BASE_DISK_H
#include <nrl/status.h>
#include <stdbool.h>

nrl_status disk_status(int error); /* NRL_ERR_FULL or NRL_ERR_IO depending on `error`, an errno */
/* Returns it with the text "path: strerror". */
nrl_status disk_fail(const char *path, int error);

/* Creates a file for writing. The file must not exist. */
nrl_status disk_create(const char *path, int *fd);
/* Appends all bytes. `path` is for messages. Exceeding a file size limit is an error, not a signal. */
nrl_status disk_write(int fd, const char *path, const void *data, size_t size);
/* Starts to write these bytes of the file back to the disk, without waiting. */
void disk_start_sync(int fd, int64_t offset, int64_t size);
/* Reserves `size` bytes if the file system can; otherwise does nothing. */
nrl_status disk_reserve(int fd, const char *path, int64_t size);
/* If st is NRL_OK, makes the file durable. Closes it in any case. Returns st, or the error of the sync or close. */
nrl_status disk_finish(int fd, const char *path, nrl_status st);

/* Opens a regular file for reading and returns its size. NRL_ERR_CORRUPT if it is missing or not a regular file. */
nrl_status disk_open(const char *path, int *fd, int64_t *size);
/* Reads exactly size bytes at offset. NRL_ERR_CORRUPT if the file is shorter. */
nrl_status disk_read(int fd, const char *path, int64_t offset, void *to, size_t size);
/* Reads a whole file of at most max_bytes as malloc'd, NUL-terminated text. NRL_ERR_MEMORY. */
nrl_status disk_read_whole(const char *path, int64_t max_bytes, char **text, size_t *size);

nrl_status disk_make_folder(const char *path); /* one level; it may exist */
int disk_make_path(const char *path);          /* a directory and those above it; returns 0 or an errno */
/* Makes a directory and its missing parents, so that they outlive a loss of power. NRL_ERR_CONFIG, which begins with
 * `key`, or NRL_ERR_FULL. */
nrl_status disk_make_folders(const char *key, const char *path);
/* Locks an existing directory for this process until *fd is closed; false: another process holds it. *fd is -1 then,
 * and if the file system has no locks. */
bool disk_lock_folder(const char *path, int *fd);
nrl_status disk_sync_folder(const char *path);
nrl_status disk_sync_parent(const char *path); /* the directory that holds `path` */

#endif
