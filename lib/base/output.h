/*
 * output.h - writing a directory of files atomically: the files are written and synced in a temporary directory
 * beside the final one, then the two exchange names. Errors name the file; errors about a full disk also give the
 * bytes that the file needs.
 */
#ifndef BASE_OUTPUT_H
#define BASE_OUTPUT_H
#include "base/inputs.h"
#include <nrl/status.h>
#include <stdbool.h>

/* A README.md with this line is nrl's to replace and to remove. */
#define OUTPUT_CARD_MARKER "<!-- written by nrl export -->"

typedef struct {
    char *given;     /* the directory as the caller named it, for messages */
    char *dir;       /* the final directory; for a link, its target */
    char *temporary; /* where the files are until output_publish */
    int lock;        /* a descriptor that locks `temporary` while this process lives; at most 0: none */
    bool exists;     /* dir existed before */
} output;

/* Creates missing parents and the temporary directory. NRL_ERR_CONFIG if `dir` is not a directory, is one of the inputs
 * `read` (may be NULL), or has an input in it. */
nrl_status output_open(const char *dir, const inputs *read, output *out);

/* What does not survive in a directory that is replaced: files of the format that is written and of the one that was
 * there, and with `overwrite` also those names (NULL-terminated; NULL = none), which accompany a model. */
typedef struct {
    bool (*is_ours)(const char *name), (*is_former)(const char *name);
    const char *const *companions;
} output_stale;

/* Fails with NRL_ERR_CONFIG if the directory has a file for which one of the functions returns true. Call it before
 * writing. */
nrl_status output_refuse(const output *o, bool (*is_ours)(const char *name), bool (*is_former)(const char *name));

/* Removes the files of earlier temporary directories of `dir`, as output_remove does, whose processes were killed:
 * those that nothing locks. */
void output_sweep(const output *o, bool (*is_ours)(const char *name), const char *const *also);

/* One file in the temporary directory. */
typedef struct {
    int fd;
    char *path;       /* in the temporary directory */
    const char *name; /* borrowed */
    uint64_t needed;  /* size of the complete file, for errors about a full disk */
} output_file;
nrl_status output_file_open(const output *o, const char *name, uint64_t needed, output_file *out);
nrl_status output_file_write(output_file *f, const void *bytes, size_t size);
/* Syncs the file if st is NRL_OK, and closes it. Returns st, or the error of syncing or closing. */
nrl_status output_file_close(output_file *f, nrl_status st);

nrl_status output_text(const output *o, const char *name, const char *text);
nrl_status output_copy(const output *o, const char *from_dir, const char *name); /* a missing file is skipped */

/* Renames the temporary directory to the final one; if the final one exists, the two exchange names, so a complete
 * directory exists at every moment. Other files of the old directory are kept, except stale ones. Without `overwrite`,
 * a file that would be replaced or is stale is NRL_ERR_CONFIG. */
nrl_status output_publish(output *o, bool overwrite, output_stale stale);

/* Removes the files of a directory for which is_ours returns true or that are in `also` (NULL-terminated; NULL = none),
 * then the directory itself if it is empty, else warns about the files that remain. A missing directory is not an
 * error. */
nrl_status output_remove(const char *dir, bool (*is_ours)(const char *name), const char *const *also);

/* Removes the temporary directory, if it still exists, and frees the fields. Call it after success and failure. */
void output_close(output *o);

#endif
