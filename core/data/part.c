/*
 * part.c - the key of a data file's tokens, and opening or building them.
 */
#include "data/part.h"
#include "base/arena.h"
#include "base/disk.h"
#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Hashes the first and the last bytes of a file, and its size. This does not notice a change between them that keeps
 * the size; the hash of the tokens of each window does. */
static nrl_status hash_ends(data_part *p)
{
    enum { ENDS = 1 << 16 };
    char *bytes = mem_alloc(2 * ENDS + 24);
    const int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    const int64_t tail = p->bytes > ENDS ? p->bytes - ENDS : 0;
    ssize_t n = fd < 0 ? -1 : pread(fd, bytes, ENDS, 0), m = n < 0 ? -1 : pread(fd, bytes + n, ENDS, tail);
    nrl_status st = m < 0 ? nrl_fail(NRL_ERR_IO, "%s: %s", p->path, strerror(errno)) : NRL_OK;
    if (fd >= 0) close(fd);
    if (st == NRL_OK) n += m + snprintf(bytes + n + m, 24, "%" PRId64, p->bytes);
    if (st == NRL_OK) hash_bytes(bytes, (size_t)n, p->hash);
    free(bytes);
    return st;
}

/* Uses the hash of the plugin, or else hashes the bytes of the file. */
static nrl_status hash_part(const dataset_options *o, data_part *p)
{
    const nrl_dataset_info *info = &p->reader->info;
    struct stat st;
    if (info->hash) {
        p->bytes = info->bytes > 0 ? info->bytes : 0;
        int n = snprintf(p->hash, sizeof p->hash, "%s", info->hash);
        if (n > 0 && n < (int)sizeof p->hash) return NRL_OK;
        return nrl_fail(NRL_ERR_PLUGIN, "%s: dataset plugin %s: the hash has %d digits, expected 1 to %d", p->path,
                        p->reader->plugin, n, DATA_HASH - 1);
    }
    if (stat(p->path, &st))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", p->path,
                        strerror(errno));
    if (p->is_pipe) {
        snprintf(p->hash, sizeof p->hash, "pipe");
        return NRL_OK;
    }
    if (!S_ISREG(st.st_mode))
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s, expected a file of rows", p->path,
                        S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    p->bytes = st.st_size;
    p->modified = st.st_mtim;
    if (o->streaming) return hash_ends(p);
    return hash_file(p->path, p->hash);
}

/* The key contains everything on which the tokens depend and nothing else, such as the name or the time of the file. */
nrl_status data_part_identify(const dataset_options *o, data_part *p)
{
    buffer b = {0};
    const data_selection *s = &p->select;
    if (p->template_choice.name || p->template_choice.source)
        NRL_TRY(chat_template_open(o->host, &p->template_choice, o->tokenizer, &p->template));
    struct stat file;
    p->is_pipe = o->streaming && !stat(p->path, &file) && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode);
    NRL_TRY(data_reader_open(o->host, &p->choice, p->path, p->is_pipe ? NRL_DATASET_PIPE : 0, &p->reader));
    p->plugin = &p->reader->table->plugin;
    p->plugin_name = mem_strdup(p->reader->plugin);
    NRL_TRY(hash_part(o, p));
    char *columns = p->columns || o->columns ? json_write(p->columns ? p->columns : o->columns, 0) : NULL;
    const chat_template *template = p->template ? p->template : o->template;
    /* What belongs to the part alone enters its hash, which checkpoints and ranks compare. */
    if (s->first || s->end || s->limit_below || s->held_below)
        buffer_print(&b, " rows %" PRId64 ":%" PRId64 " %" PRIx64 " %" PRIx64 " %d", s->first, s->end, s->limit_below,
                     s->held_below, s->is_held_out);
    if (p->columns) buffer_print(&b, " columns %s", columns);
    if (p->template) buffer_print(&b, " template %s", p->template->identity);
    if (b.size) {
        buffer_puts(&b, p->hash);
        hash_bytes(b.text, b.size, p->hash);
        b.size = 0;
    }
    char *extra = o->extra ? json_write(o->extra, 0) : NULL;
    const char *ending = strrchr(p->path, '.'); /* some plugins read a file by its ending, such as .tsv */
    buffer_print(&b, "%d\n%s\n%s\n%s\n%" PRId64 "\n%s\n%s\n%" PRId64 "\n%d\n%d\n%d\n%" PRId64 "\n%s\n%s\n%s\n",
                 DATA_CACHE_VERSION, p->reader->plugin, p->reader->options, p->hash, p->bytes,
                 o->tokenizer ? o->tokenizer->identity : "none", template ? template->identity : "none", o->max_length,
                 o->max_length ? p->overlong : 0, o->train_on_all + 2 * o->train_on_last + 4 * o->generates,
                 o->pairs + 2 * o->labels + 4 * o->kl_pairs, o->vocab_size, columns ? columns : "", extra ? extra : "",
                 ending && !strchr(ending, '/') ? ending : "");
    hash_bytes(b.text, b.size, p->key);
    buffer_free(&b);
    free(columns);
    free(extra);
    return NRL_OK;
}

nrl_status data_part_schema(const dataset_options *o, const data_part *p, data_schema *out)
{
    nrl_status st =
        data_schema_set(out, p->columns ? p->columns : o->columns, o->extra, o->pairs, o->labels, o->generates);
    if (st != NRL_OK && p->columns) nrl_add_context("%s", nrl_node_place(p->columns));
    return st;
}

/* ---- the cache ---- */

/* Detects that the file was changed between hashing and reading it. */
nrl_status data_part_check_unchanged(const void *part)
{
    const data_part *p = part;
    struct stat st;
    if (p->is_pipe || p->reader->info.hash) return NRL_OK; /* the plugin is responsible */
    if (!stat(p->path, &st) && st.st_size == p->bytes && st.st_mtim.tv_sec == p->modified.tv_sec &&
        st.st_mtim.tv_nsec == p->modified.tv_nsec)
        return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: the file was changed while it was read", p->path);
}

data_build_options data_part_build_options(const dataset_options *o, const data_part *p, data_schema *schema)
{
    return (data_build_options){.name = p->path,
                                .encode = {.tokenizer = o->tokenizer,
                                           .template = p->template ? p->template : o->template,
                                           .template_problem = o->template_problem,
                                           .max_length = o->max_length,
                                           .vocab_size = o->vocab_size,
                                           .overlong = p->overlong,
                                           .train_on_all = o->train_on_all && !o->labels,
                                           .train_on_last = o->train_on_last,
                                           .generates = o->generates},
                                .schema = schema,
                                .kl_pairs = o->kl_pairs,
                                .select = p->select,
                                .workers = o->workers,
                                .signal = o->signal,
                                .check = data_part_check_unchanged,
                                .check_user = p};
}

static nrl_status build(const dataset_options *o, data_part *p, bool alone)
{
    data_schema schema;
    data_cache_writer *writer;
    NRL_TRY(data_part_schema(o, p, &schema));
    const data_build_options b = data_part_build_options(o, p, &schema);
    NRL_TRY(data_cache_create(p->cache_path, alone, p->key, &writer));
    return data_build(&b, p->reader, writer, &p->cache);
}

/* Processes that build the same cache wait for each other. If the file system has no locks, several may build it, which
 * is correct but slower. */
static nrl_status open_or_build(const dataset_options *o, data_part *p)
{
    int error = disk_make_path(o->cache_dir), locked = -1;
    if (error)
        return nrl_fail(error == ENOSPC ? NRL_ERR_FULL : NRL_ERR_CONFIG,
                        "data.cache: cannot create the directory '%s': %s", o->cache_dir, strerror(error));
    NRL_TRY(data_cache_open(p->cache_path, p->key, o->quiet, &p->cache, &p->from_cache));
    if (p->from_cache) return NRL_OK;
    char *path = mem_printf("%s.lock", p->cache_path);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0) do
            locked = flock(lock, LOCK_EX);
        while (locked && errno == EINTR);
    /* another process may have built the cache while this one waited */
    nrl_status st = data_cache_open(p->cache_path, p->key, true, &p->cache, &p->from_cache);
    if (st == NRL_OK && !p->from_cache) st = build(o, p, !locked);
    if (!locked) unlink(path); /* before the lock ends: a process that waits for it then finds the finished cache */
    if (lock >= 0) close(lock);
    free(path);
    return st;
}

nrl_status data_part_open(const dataset_options *o, data_part *p)
{
    nrl_status st = data_part_identify(o, p);
    if (st != NRL_OK) {
        nrl_add_context("data.%s", o->role ? o->role : "train");
        return st;
    }
    if (o->cache_dir) p->cache_path = mem_printf("%s/%s.tokens", o->cache_dir, p->key);
    NRL_TRY(o->cache_dir ? open_or_build(o, p) : build(o, p, true));
    data_reader_close(p->reader);
    p->reader = NULL;
    const char *line = p->cache.notes, *end = line + p->cache.notes_size;
    while (!o->quiet && line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        nrl_warn("%s: %.*s", p->path, (int)((stop ? stop : end) - line), line);
        line = stop ? stop + 1 : end;
    }
    return NRL_OK;
}
