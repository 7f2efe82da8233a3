/*
 * download.c - `nrl download ORG/NAME`: fetches a model or a data set of the Hugging Face hub into the cache that its
 * own tools use (lib/base/hub.h), so that these, `model.path: ORG/NAME` and `data.train: hf://ORG/NAME` find it.
 *
 * A file is written to blobs/HASH.incomplete, which an interrupted download continues, is checked, and then gets its
 * name. A snapshot is a directory of links to blobs; the name of a branch is written when all files are there.
 */
#include "base/disk.h"
#include "base/hash.h"
#include "base/hub.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include "hub_client.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_PATTERNS = 64, MAX_PATH_BYTES = 1024, MAX_HASH = 64 };

typedef struct {
    const char *path;   /* in the repository */
    const char *hash;   /* names the blob: SHA-256 of a file in large file storage, else git's hash */
    const char *sha256; /* NULL = unknown */
    int64_t size;
    bool skipped; /* weights in a format that nrl does not read */
} hub_file;

typedef struct {
    arena *a;
    hub_client *client;
    const char *name, *revision, *kind; /* kind: "models" or "datasets" */
    const char *patterns[MAX_PATTERNS];
    size_t n_patterns;
    bool json;
    hub_subject about;
    const char *web; /* path of the repository in URLs: "org/name" or "datasets/org/name" */
    const char *repository, *snapshot, *locks, *commit;
    hub_file *files;
    size_t n_files;
    int64_t n_skipped, bytes, fetched;
} download;

/* ---- the list of files ---- */

static bool is_word(const char *text, size_t most)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i])) return false;
    return n && n <= most;
}

/* A path that stays in its directory. */
static bool is_inside(const char *path)
{
    if (!*path || strlen(path) > MAX_PATH_BYTES) return false;
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        if (!n || (n == 1 && *part == '.') || (n == 2 && !strncmp(part, "..", 2))) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 127 || part[i] == '\\') return false;
        part += n;
        if (!*part) return true;
    }
}

static bool matches(const char *const *patterns, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (!fnmatch(patterns[i], path, 0)) return true;
    return false;
}

/* Without --include, weights in other formats are not downloaded if the model has safetensors: they would double the
 * size. */
static void skip_other_weights(download *d)
{
    static const char *const others[] = {"*.bin",     "*.pt",       "*.pth",     "*.ckpt",      "*.h5",
                                         "*.msgpack", "*.onnx",     "*.ot",      "*.gguf",      "*.tflite",
                                         "onnx/*",    "original/*", "*.mlmodel", "*.onnx_data", "*.pkl"};
    bool has_safetensors = false;
    for (size_t i = 0; i < d->n_files; i++)
        has_safetensors |= !fnmatch("*.safetensors", d->files[i].path, 0);
    for (size_t i = 0; i < d->n_files && has_safetensors && !d->n_patterns && !strcmp(d->kind, "models"); i++)
        if (matches(others, sizeof others / sizeof *others, d->files[i].path)) {
            d->files[i].skipped = true;
            d->n_skipped++;
        }
}

static nrl_status add_file(download *d, const nrl_node *entry)
{
    const nrl_node *lfs = nrl_node_find(entry, "lfs");
    hub_file f = {.path = nrl_node_string(nrl_node_find(entry, "rfilename"), ""),
                  .hash = nrl_node_string(nrl_node_find(entry, "blobId"), ""),
                  .sha256 = nrl_node_string(nrl_node_find(lfs, "sha256"), NULL),
                  .size = nrl_node_int(nrl_node_find(entry, "size"), -1)};
    if (d->n_patterns && !matches(d->patterns, d->n_patterns, f.path)) return NRL_OK;
    if (f.sha256) f.hash = f.sha256;
    if (!is_inside(f.path) || !is_word(f.hash, MAX_HASH) || f.size < 0)
        return nrl_fail(NRL_ERR_IO, "%s: the server lists the file '%.200s' without a usable name, hash and size",
                        d->about.what, f.path);
    d->files[d->n_files++] = f;
    return NRL_OK;
}

static nrl_status list_files(download *d)
{
    nrl_node *answer;
    const char *revision = hub_client_encode(d->client, d->a, d->revision);
    char *slash;
    while ((slash = strchr(revision, '/'))) /* refs/pr/1 is one part of the path */
        revision = arena_printf(d->a, "%.*s%%2F%s", (int)(slash - revision), revision, slash + 1);
    const char *path = arena_printf(d->a, "api/%s/%s/revision/%s?blobs=true", d->kind, d->name, revision);
    NRL_TRY(hub_client_json(d->client, &d->about, path, NULL, NULL, d->a, &answer));
    const nrl_node *list = nrl_node_find(answer, "siblings");
    d->commit = nrl_node_string(nrl_node_find(answer, "sha"), "");
    if (!is_word(d->commit, MAX_HASH) || nrl_node_kind(list) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_IO, "%s: the response of %s contains no commit and list of files", d->about.what,
                        hub_client_endpoint(d->client));
    size_t n = nrl_node_size(list);
    d->files = arena_alloc(d->a, (n + 1) * sizeof *d->files);
    for (size_t i = 0; i < n; i++)
        NRL_TRY(add_file(d, nrl_node_at(list, i)));
    if (!d->n_files && d->n_patterns)
        return nrl_fail(NRL_ERR_CONFIG, "%s: none of its %zu files matches --include", d->about.what, n);
    skip_other_weights(d);
    return NRL_OK;
}

/* ---- the cache ---- */

static nrl_status make_path(const char *dir)
{
    int error = disk_make_path(dir);
    return error ? disk_fail(dir, error) : NRL_OK;
}

static nrl_status open_cache(download *d)
{
    const char *cache = hub_cache(d->a, cli_variable), *name = NULL;
    d->repository = hub_repository(d->a, cache, d->kind, d->name, strlen(d->name));
    d->snapshot = arena_printf(d->a, "%s/snapshots/%s", d->repository, d->commit);
    name = strrchr(d->repository, '/') + 1;
    d->locks = arena_printf(d->a, "%s/.locks/%s", cache, name);
    NRL_TRY(make_path(arena_printf(d->a, "%s/blobs", d->repository)));
    NRL_TRY(make_path(d->snapshot));
    return make_path(d->locks);
}

static int64_t size_of(const char *path)
{
    struct stat s;
    return stat(path, &s) || !S_ISREG(s.st_mode) ? -1 : (int64_t)s.st_size;
}

static const char *blob_of(const download *d, const hub_file *f)
{
    return arena_printf(d->a, "%s/blobs/%s", d->repository, f->hash);
}

/* What is missing fits on the disk; nothing is fetched otherwise. */
static nrl_status check_room(download *d)
{
    struct statvfs disk;
    double missing = 0;
    for (size_t i = 0; i < d->n_files; i++) {
        const char *blob = blob_of(d, &d->files[i]);
        int64_t part = size_of(arena_printf(d->a, "%s.incomplete", blob));
        if (d->files[i].skipped || size_of(blob) == d->files[i].size) continue;
        missing += (double)(d->files[i].size - (part > 0 && part <= d->files[i].size ? part : 0));
    }
    if (statvfs(d->repository, &disk)) return NRL_OK;
    double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    if (missing <= free_bytes) return NRL_OK;
    return nrl_fail(NRL_ERR_FULL,
                    "%s needs %.1f MiB more in %s, which has %.1f MiB free\n"
                    "hint: HF_HUB_CACHE sets another directory; --include PATTERN selects files",
                    d->about.what, missing / (1 << 20), d->repository, free_bytes / (1 << 20));
}

/* Gives a file of the snapshot its link, which replaces one to another blob. */
static nrl_status link_file(const download *d, const hub_file *f)
{
    const char *link = arena_printf(d->a, "%s/%s", d->snapshot, f->path);
    const char *temporary = arena_printf(d->a, "%s.%d.link", link, (int)getpid());
    const char *target = arena_printf(d->a, "../../blobs/%s", f->hash);
    for (const char *p = strchr(f->path, '/'); p; p = strchr(p + 1, '/'))
        target = arena_printf(d->a, "../%s", target);
    NRL_TRY(make_path(arena_printf(d->a, "%.*s", (int)(strrchr(link, '/') - link), link)));
    unlink(temporary);
    if (symlink(target, temporary) || rename(temporary, link)) return disk_fail(link, errno);
    return NRL_OK;
}

/* ---- one file ---- */

static nrl_status check_blob(const download *d, const hub_file *f, const char *path)
{
    char found[HASH_SHA256_TEXT];
    if (!f->sha256) return NRL_OK;
    NRL_TRY(hash_sha256_file(path, found));
    if (!strcmp(found, f->sha256)) return NRL_OK;
    unlink(path); /* continuing it would give the same result */
    return nrl_fail(NRL_ERR_CORRUPT,
                    "%s: '%s' has the SHA-256 %s; expected %s\n"
                    "hint: the file was removed; run the command again",
                    d->about.what, f->path, found, f->sha256);
}

static nrl_status fetch_locked(download *d, const hub_file *f, const char *blob)
{
    const char *partial = arena_printf(d->a, "%s.incomplete", blob);
    if (size_of(blob) == f->size) return NRL_OK; /* another process created it first */
    int fd = open(partial, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return disk_fail(partial, errno);
    off_t begin = lseek(fd, 0, SEEK_END);
    nrl_status st = NRL_OK;
    if (begin < 0 || ((int64_t)begin > f->size && (ftruncate(fd, 0) || (begin = lseek(fd, 0, SEEK_SET)))))
        st = disk_fail(partial, errno);
    if (st == NRL_OK && (begin < f->size || !f->size)) {
        const char *path =
            arena_printf(d->a, "%s/resolve/%s/%s", d->web, d->commit, hub_client_encode(d->client, d->a, f->path));
        st = f->size ? hub_client_download(d->client, &d->about, path, fd, partial, (int64_t)begin, f->size) : NRL_OK;
        d->fetched += f->size - (int64_t)begin;
    }
    st = disk_finish(fd, partial, st);
    if (st == NRL_OK) st = check_blob(d, f, partial);
    if (st == NRL_OK && rename(partial, blob)) st = disk_fail(blob, errno);
    return st;
}

static nrl_status fetch(download *d, const hub_file *f)
{
    const char *blob = blob_of(d, f), *lock = arena_printf(d->a, "%s/%s.lock", d->locks, f->hash);
    if (size_of(blob) != f->size) {
        int fd = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0) return disk_fail(lock, errno);
        while (flock(fd, LOCK_EX) && errno == EINTR) {
        }
        nrl_status st = fetch_locked(d, f, blob);
        close(fd);
        NRL_TRY(st);
        if (!d->json) cli_page("%10.1f KiB  %s\n", (double)f->size / 1024, f->path);
        fflush(stdout);
    }
    return link_file(d, f);
}

/* refs/main and the like, for readers that ask for a branch. */
static nrl_status write_ref(download *d)
{
    const char *path = arena_printf(d->a, "%s/refs/%s", d->repository, d->revision);
    const char *temporary = arena_printf(d->a, "%s.%d.tmp", path, (int)getpid());
    int fd;
    if (!strcmp(d->revision, d->commit)) return NRL_OK;
    NRL_TRY(make_path(arena_printf(d->a, "%.*s", (int)(strrchr(path, '/') - path), path)));
    unlink(temporary);
    NRL_TRY(disk_create(temporary, &fd));
    NRL_TRY(disk_finish(fd, temporary, disk_write(fd, temporary, d->commit, strlen(d->commit))));
    return rename(temporary, path) ? disk_fail(path, errno) : NRL_OK;
}

/* ---- the verb ---- */

static nrl_status download_all(download *d)
{
    NRL_TRY(list_files(d));
    NRL_TRY(open_cache(d));
    NRL_TRY(check_room(d));
    for (size_t i = 0; i < d->n_files; i++) {
        if (d->files[i].skipped) continue;
        nrl_status st = fetch(d, &d->files[i]);
        if (st == NRL_ERR_IO || st == NRL_ERR_FULL)
            nrl_add_context("%s (the same command continues the download)", d->files[i].path);
        NRL_TRY(st);
        d->bytes += d->files[i].size;
    }
    NRL_TRY(write_ref(d));
    size_t n = d->n_files - (size_t)d->n_skipped;
    if (d->json) {
        nrl_node *map = node_new(d->a, NRL_NODE_MAP);
        node_append_text(d->a, map, "path", d->snapshot);
        node_append_text(d->a, map, "commit", d->commit);
        node_append_int(d->a, map, "files", (int64_t)n);
        node_append_int(d->a, map, "skipped", d->n_skipped);
        node_append_int(d->a, map, "bytes", d->bytes);
        node_append_int(d->a, map, "fetched_bytes", d->fetched);
        char *text = json_write(map, 0);
        puts(text);
        free(text);
        return NRL_OK;
    }
    if (d->n_skipped)
        printf("skipped %lld files with weights in other formats; --include '*' downloads all files\n",
               (long long)d->n_skipped);
    cli_page("%zu files, %.1f MiB: %s\n", n, (double)d->bytes / (1 << 20), d->snapshot);
    return NRL_OK;
}

static nrl_status download_verb(int argc, char **argv)
{
    arena a = {0};
    download d = {.a = &a};
    NRL_TRY(cli_take_value(&argc, argv, "--revision", &d.revision));
    NRL_TRY(cli_take_values(&argc, argv, "--include", d.patterns, MAX_PATTERNS, &d.n_patterns));
    d.kind = cli_take_flag(&argc, argv, "--dataset") ? "datasets" : "models";
    d.json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    d.name = argv[1];
    if (!d.revision) d.revision = "main";
    if (!hub_is_name(d.name, strlen(d.name)))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is not a name on the Hub; expected ORG/NAME", d.name);
    if (!is_inside(d.revision))
        return nrl_fail(NRL_ERR_CONFIG, "--revision: '%s' is not a branch, a tag or a commit", d.revision);
    bool is_model = !strcmp(d.kind, "models");
    nrl_status st = hub_client_open(&d.client);
    if (st == NRL_OK) {
        d.web = is_model ? d.name : arena_printf(&a, "datasets/%s", d.name);
        d.about.what =
            arena_printf(&a, "%s '%s'%s%s", is_model ? "model" : "data set", d.name,
                         strcmp(d.revision, "main") ? " at " : "", strcmp(d.revision, "main") ? d.revision : "");
        d.about.page = arena_printf(&a, "%s/%s", hub_client_endpoint(d.client), d.web);
        st = download_all(&d);
    }
    hub_client_close(d.client);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "download", download_verb);
}
