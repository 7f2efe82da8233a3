/*
 * upload.c - `nrl upload DIR ORG/NAME`: puts the files of an exported model into a repository of the Hugging Face hub,
 * in one commit. `nrl export --push ORG/NAME` runs it.
 *
 * The server says which files go to large file storage. These are sent first, by URLs that the server gives, unless it
 * has them; then one request commits everything, so that nobody sees half of a model.
 */
#include "base/buffer.h"
#include "base/disk.h"
#include "base/hash.h"
#include "base/hub.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include "tools/download/hub_client.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 4096, MAX_DEPTH = 32, MAX_REGULAR = 64 << 20, SAMPLE_BYTES = 512, MAX_PARTS = 10000 };

#define JSON "application/json"
#define LFS_JSON "application/vnd.git-lfs+json"

typedef struct {
    const char *name, *path;
    char sha256[HASH_SHA256_TEXT];
    int64_t size;
    bool is_large;
} upload_file;

typedef struct {
    arena *a;
    hub_client *client;
    const char *dir, *name, *branch, *message;
    bool is_private, is_model; /* is_model: the directory contains one */
    hub_subject about;
    upload_file *files;
    size_t n_files;
} upload;

/* ---- the files ---- */

static int by_name(const void *x, const void *y)
{
    return strcmp(((const upload_file *)x)->name, ((const upload_file *)y)->name);
}

static nrl_status add_file(upload *u, const char *name, const char *path, int64_t size)
{
    const size_t n = strlen(name);
    if (u->n_files == MAX_FILES)
        return nrl_fail(NRL_ERR_CONFIG, "%s: it contains more than %d files; expected the directory of a model", u->dir,
                        (int)MAX_FILES);
    u->is_model |= !strcmp(name, "config.json") || !strcmp(name, "adapter_config.json") ||
                   (!strchr(name, '/') && n > 5 && !strcmp(name + n - 5, ".gguf"));
    u->files[u->n_files++] = (upload_file){.name = name, .path = path, .size = size};
    return NRL_OK;
}

/* The files of a folder and of those in it; hidden ones stay. `prefix` is its path in the repository, with a final
 * slash. The limit to the depth ends links that lead back. */
static nrl_status list_folder(upload *u, const char *folder, const char *prefix, int depth)
{
    nrl_status st = NRL_OK;
    struct stat s;
    if (depth > MAX_DEPTH)
        return nrl_fail(NRL_ERR_CONFIG, "%s: more than %d directories inside each other", folder, (int)MAX_DEPTH);
    DIR *d = opendir(folder);
    if (!d) return nrl_fail(NRL_ERR_CONFIG, "%s: %s; expected the directory of a model", folder, strerror(errno));
    for (struct dirent *e; st == NRL_OK && (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        const char *path = arena_printf(u->a, "%s/%s", folder, e->d_name);
        const char *name = arena_printf(u->a, "%s%s", prefix, e->d_name);
        if (stat(path, &s))
            st = nrl_fail(NRL_ERR_IO, "%s: %s; expected a file, a directory or a link to one", path, strerror(errno));
        else if (S_ISDIR(s.st_mode))
            st = list_folder(u, path, arena_printf(u->a, "%s/", name), depth + 1);
        else if (S_ISREG(s.st_mode))
            st = add_file(u, name, path, (int64_t)s.st_size);
    }
    closedir(d);
    return st;
}

static nrl_status list_files(upload *u)
{
    u->files = arena_alloc(u->a, MAX_FILES * sizeof *u->files);
    NRL_TRY(list_folder(u, u->dir, "", 0));
    if (!u->is_model)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: it contains no model; expected config.json, adapter_config.json or a GGUF file", u->dir);
    qsort(u->files, u->n_files, sizeof *u->files, by_name);
    return NRL_OK;
}

static const char *base64(arena *a, const char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = arena_alloc(a, (size + 2) / 3 * 4 + 1), *to = text;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < n ? (unsigned char)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

static const char *json_of(upload *u, const nrl_node *node)
{
    char *text = json_write(node, 0);
    const char *copy = arena_strdup(u->a, text);
    free(text);
    return copy;
}

static nrl_status post(upload *u, const char *path, const char *body, const char *type, nrl_node **answer)
{
    return hub_client_json(u->client, &u->about, path, body, type, u->a, answer);
}

/* ---- steps ---- */

/* Whether the server has this path. It may also answer 401 for a repository that does not exist; if the token is the
 * reason, the request that creates the repository says so. */
static nrl_status look_up(upload *u, const char *path, bool *found)
{
    nrl_node *answer;
    nrl_status st = post(u, path, NULL, NULL, &answer);
    const long code = hub_client_code(u->client);
    *found = st == NRL_OK;
    return code == 404 || code == 401 ? NRL_OK : st;
}

/* A request that creates something; it may exist by now. */
static nrl_status make(upload *u, const char *path, const nrl_node *body)
{
    const char *url = arena_printf(u->a, "%s/%s", hub_client_endpoint(u->client), path);
    nrl_status st = hub_client_post(u->client, &u->about, url, NULL, json_of(u, body), JSON);
    return hub_client_code(u->client) == 409 ? NRL_OK : st;
}

static nrl_status make_repository(upload *u)
{
    bool found;
    NRL_TRY(look_up(u, arena_printf(u->a, "api/models/%s", u->name), &found));
    if (found) return NRL_OK;
    nrl_node *body = node_new(u->a, NRL_NODE_MAP);
    const char *slash = strchr(u->name, '/');
    node_append_text(u->a, body, "name", slash + 1);
    node_append_text(u->a, body, "organization", arena_strndup(u->a, u->name, (size_t)(slash - u->name)));
    node_append_text(u->a, body, "type", "model");
    node_append(u->a, body, "private", node_bool(u->a, u->is_private));
    return make(u, "api/repos/create", body);
}

/* A new branch begins with the files of `main`, which each repository has. */
static nrl_status make_branch(upload *u)
{
    bool found;
    if (!strcmp(u->branch, "main")) return NRL_OK;
    NRL_TRY(look_up(u, arena_printf(u->a, "api/models/%s/revision/%s", u->name, u->branch), &found));
    if (found) return NRL_OK;
    return make(u, arena_printf(u->a, "api/models/%s/branch/%s", u->name, u->branch), node_new(u->a, NRL_NODE_MAP));
}

/* Asks which files go to large file storage. */
static nrl_status choose_storage(upload *u)
{
    nrl_node *answer, *body = node_new(u->a, NRL_NODE_MAP), *list = node_new(u->a, NRL_NODE_LIST);
    for (size_t i = 0; i < u->n_files; i++) {
        const upload_file *f = &u->files[i];
        char sample[SAMPLE_BYTES];
        FILE *in = fopen(f->path, "rbe");
        if (!in) return nrl_fail(NRL_ERR_IO, "%s: %s", f->path, strerror(errno));
        size_t n = fread(sample, 1, sizeof sample, in);
        fclose(in);
        nrl_node *one = node_new(u->a, NRL_NODE_MAP);
        node_append_text(u->a, one, "path", f->name);
        node_append_int(u->a, one, "size", f->size);
        node_append_text(u->a, one, "sample", base64(u->a, sample, n));
        node_append(u->a, list, NULL, one);
    }
    node_append(u->a, body, "files", list);
    NRL_TRY(
        post(u, arena_printf(u->a, "api/models/%s/preupload/%s", u->name, u->branch), json_of(u, body), JSON, &answer));
    const nrl_node *modes = nrl_node_find(answer, "files");
    for (size_t i = 0; i < nrl_node_size(modes); i++)
        for (size_t k = 0; k < u->n_files; k++) {
            const nrl_node *mode = nrl_node_at(modes, i);
            if (!strcmp(nrl_node_string(nrl_node_find(mode, "path"), ""), u->files[k].name))
                u->files[k].is_large = !strcmp(nrl_node_string(nrl_node_find(mode, "uploadMode"), ""), "lfs");
        }
    return NRL_OK;
}

/* One file by the actions of the server: in one piece, or in parts that a last request joins. */
static nrl_status send_large(upload *u, const upload_file *f, const nrl_node *actions)
{
    const nrl_node *send = nrl_node_find(actions, "upload"), *verify = nrl_node_find(actions, "verify");
    const nrl_node *header = nrl_node_find(send, "header"), *chunk = nrl_node_find(header, "chunk_size");
    const char *href = nrl_node_string(nrl_node_find(send, "href"), NULL), *etag;
    if (!href) return NRL_OK; /* the server has it */
    const char *words = nrl_node_string(chunk, NULL);
    int64_t part_size = words ? strtoll(words, NULL, 10) : nrl_node_int(chunk, 0), n_parts = 0;
    if (!chunk) {
        NRL_TRY(hub_client_put(u->client, &u->about, href, f->path, 0, f->size, u->a, NULL));
    } else {
        if (part_size < 1 || f->size / part_size >= MAX_PARTS)
            return nrl_fail(NRL_ERR_IO, "%s: the server asks for parts of %lld bytes", f->name, (long long)part_size);
        nrl_node *body = node_new(u->a, NRL_NODE_MAP), *parts = node_new(u->a, NRL_NODE_LIST);
        for (int64_t at = 0; at < f->size; at += part_size) {
            int64_t n = f->size - at < part_size ? f->size - at : part_size;
            const char *url = NULL;
            n_parts++;
            for (size_t i = 0; i < nrl_node_size(header) && !url; i++) /* "00001", "1" */
                if (strtoll(nrl_node_key(header, i), NULL, 10) == n_parts)
                    url = nrl_node_string(nrl_node_at(header, i), NULL);
            if (!url)
                return nrl_fail(NRL_ERR_IO, "%s: the server gives no URL for part %lld", f->name, (long long)n_parts);
            NRL_TRY(hub_client_put(u->client, &u->about, url, f->path, at, n, u->a, &etag));
            nrl_node *part = node_new(u->a, NRL_NODE_MAP);
            node_append_int(u->a, part, "partNumber", n_parts);
            node_append_text(u->a, part, "etag", etag);
            node_append(u->a, parts, NULL, part);
        }
        node_append_text(u->a, body, "oid", f->sha256);
        node_append(u->a, body, "parts", parts);
        NRL_TRY(hub_client_post(u->client, &u->about, href, NULL, json_of(u, body), LFS_JSON));
    }
    const char *check = nrl_node_string(nrl_node_find(verify, "href"), NULL);
    if (!check) return NRL_OK;
    nrl_node *body = node_new(u->a, NRL_NODE_MAP);
    node_append_text(u->a, body, "oid", f->sha256);
    node_append_int(u->a, body, "size", f->size);
    return hub_client_post(u->client, &u->about, check, nrl_node_find(verify, "header"), json_of(u, body), LFS_JSON);
}

static nrl_status send_all_large(upload *u)
{
    for (size_t i = 0; i < u->n_files; i++) {
        upload_file *f = &u->files[i];
        nrl_node *answer, *body = node_new(u->a, NRL_NODE_MAP), *list = node_new(u->a, NRL_NODE_LIST),
                          *transfers = node_new(u->a, NRL_NODE_LIST), *one = node_new(u->a, NRL_NODE_MAP);
        if (!f->is_large) continue;
        NRL_TRY(hash_sha256_file(f->path, f->sha256));
        node_append_text(u->a, one, "oid", f->sha256);
        node_append_int(u->a, one, "size", f->size);
        node_append(u->a, list, NULL, one);
        node_append(u->a, transfers, NULL, node_string(u->a, "basic", 5));
        node_append(u->a, transfers, NULL, node_string(u->a, "multipart", 9));
        node_append_text(u->a, body, "operation", "upload");
        node_append(u->a, body, "transfers", transfers);
        node_append_text(u->a, body, "hash_algo", "sha256");
        node_append(u->a, body, "objects", list);
        NRL_TRY(
            post(u, arena_printf(u->a, "%s.git/info/lfs/objects/batch", u->name), json_of(u, body), LFS_JSON, &answer));
        const nrl_node *object = nrl_node_at(nrl_node_find(answer, "objects"), 0);
        const nrl_node *error = nrl_node_find(object, "error");
        if (error)
            return nrl_fail(NRL_ERR_IO, "%s: the server refuses it: %s", f->name,
                            nrl_node_string(nrl_node_find(error, "message"), "no reason given"));
        NRL_TRY(send_large(u, f, nrl_node_find(object, "actions")));
        cli_page("%10.1f KiB  %s\n", (double)f->size / 1024, f->name);
        fflush(stdout);
    }
    return NRL_OK;
}

static void add_line(upload *u, buffer *b, const char *key, nrl_node *value)
{
    nrl_node *line = node_new(u->a, NRL_NODE_MAP);
    node_append_text(u->a, line, "key", key);
    node_append(u->a, line, "value", value);
    json_add(b, line, 0);
    buffer_puts(b, "\n");
}

static nrl_status commit(upload *u, const char **id)
{
    buffer b = {0};
    nrl_node *answer, *header = node_new(u->a, NRL_NODE_MAP);
    nrl_status st = NRL_OK;
    node_append_text(u->a, header, "summary", u->message);
    node_append_text(u->a, header, "description", "");
    add_line(u, &b, "header", header);
    for (size_t i = 0; i < u->n_files && st == NRL_OK; i++) {
        const upload_file *f = &u->files[i];
        nrl_node *value = node_new(u->a, NRL_NODE_MAP);
        char *bytes;
        size_t size;
        node_append_text(u->a, value, "path", f->name);
        if (f->is_large) {
            node_append_text(u->a, value, "algo", "sha256");
            node_append_text(u->a, value, "oid", f->sha256);
            node_append_int(u->a, value, "size", f->size);
            add_line(u, &b, "lfsFile", value);
            continue;
        }
        st = disk_read_whole(f->path, MAX_REGULAR, &bytes, &size);
        if (st != NRL_OK) break;
        node_append_text(u->a, value, "encoding", "base64");
        node_append_text(u->a, value, "content", base64(u->a, bytes, size));
        free(bytes);
        add_line(u, &b, "file", value);
    }
    if (st == NRL_OK)
        st = post(u, arena_printf(u->a, "api/models/%s/commit/%s", u->name, u->branch), b.text, "application/x-ndjson",
                  &answer);
    buffer_free(&b);
    if (st == NRL_OK) *id = nrl_node_string(nrl_node_find(answer, "commitOid"), "");
    return st;
}

static nrl_status upload_verb(int argc, char **argv)
{
    arena a = {0};
    upload u = {.a = &a};
    const char *id = NULL;
    NRL_TRY(cli_take_value(&argc, argv, "--revision", &u.branch));
    NRL_TRY(cli_take_value(&argc, argv, "--message", &u.message));
    u.is_private = cli_take_flag(&argc, argv, "--private");
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    u.dir = argv[1];
    u.name = argv[2];
    if (!u.branch) u.branch = "main";
    if (!u.message) u.message = "Upload model with nrl";
    if (!hub_is_name(u.name, strlen(u.name)))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is not a name on the Hub; expected ORG/NAME", u.name);
    if (strchr(u.branch, '/') || !*u.branch)
        return nrl_fail(NRL_ERR_CONFIG, "--revision: '%s' is not the name of a branch", u.branch);
    nrl_status st = hub_client_open(&u.client);
    if (st == NRL_OK) {
        u.branch = hub_client_encode(u.client, &a, u.branch);
        u.about.what = arena_printf(&a, "model '%s'", u.name);
        u.about.page = arena_printf(&a, "%s/%s", hub_client_endpoint(u.client), u.name);
        st = list_files(&u);
    }
    if (st == NRL_OK) st = make_repository(&u);
    if (st == NRL_OK) st = make_branch(&u);
    if (st == NRL_OK) st = choose_storage(&u);
    if (st == NRL_OK) st = send_all_large(&u);
    if (st == NRL_OK) st = commit(&u, &id);
    if (st == NRL_OK) cli_page("uploaded %zu files of %s to %s (commit %s)\n", u.n_files, u.dir, u.about.page, id);
    hub_client_close(u.client);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "upload", upload_verb);
}
