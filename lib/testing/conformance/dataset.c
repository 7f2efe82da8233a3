/*
 * dataset.c - rules for every dataset: all rows once and in order, whichever thread reads which
 * range; line numbers that are those of the file; a hash that follows the content; damage gives an
 * error with a text; no files stay open and no memory stays allocated. A plugin with a writer is
 * tested on files that it wrote, any other one on the file of --path.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/node.h"
#include "suites.h"
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FEW = 12, MANY = 4000, FILLING = 400, MAX_RANGES = 1 << 16, THREADS = 4, CYCLES = 200, MAX_FILE = 64 << 20 };
/* Bytes that malloc may count as used after 200 readings: less than 32 bytes each. */
enum { LEAK_SLACK = 6000 };

typedef struct {
    const nrl_dataset *t;
    const void *options;
    conformance_report *r;
    const char *folder;
    arena a;
} suite;

/* All rows of one reading, in order: a hash of each, its line, and the row itself if it is kept. */
typedef struct {
    int64_t n, room, n_ranges;
    char (*hash)[HASH_TEXT];
    uint32_t *line;
    nrl_status status;
    char error[512];
} reading;

/* ---- files ---- */

/* Texts that a careless reader truncates or changes. */
static const char *const endings[] = {"",
                                      ",;\t|",
                                      "\"quoted\" and \"\"doubled\"\"",
                                      "line\nline\n\nline",
                                      "\r\n",
                                      "  spaces  ",
                                      "\\n \\ \\\\",
                                      "{\"a\": [1, 2]}",
                                      "\xC3\xBC\xE4\xB8\xAD\xF0\x9F\x98\x80",
                                      "'",
                                      "null",
                                      "0123"};

/* Every text of row i begins with "r<i>c", which occurs in no other row. */
static const nrl_node *make_rows(suite *s, int n, int changed, size_t filling)
{
    static const char *const keys[] = {"prompt", "completion"};
    nrl_node *rows = node_new(&s->a, NRL_NODE_LIST);
    for (int i = 0; i < n; i++) {
        nrl_node *row = node_new(&s->a, NRL_NODE_MAP);
        for (int k = 0; k < 2; k++) {
            const char *end = endings[(size_t)(i + 5 * k) % (sizeof endings / sizeof *endings)];
            buffer b = {0};
            buffer_print(&b, "r%dc%d%s ", i, k, i == changed ? "!" : "?");
            for (size_t j = 0; j < filling; j++)
                buffer_add(&b, j % 7 ? "x" : " ", 1);
            buffer_puts(&b, end);
            node_append(&s->a, row, keys[k], node_string(&s->a, b.text, b.size));
            buffer_free(&b);
        }
        node_append(&s->a, rows, NULL, row);
    }
    return rows;
}

static const char *path_of(suite *s, const char *name)
{
    return arena_printf(&s->a, "%s/%s.%s", s->folder, name, s->t->extension ? s->t->extension : "rows");
}

static const char *write_rows(suite *s, const char *name, const nrl_node *rows)
{
    const char *path = path_of(s, name);
    return report_ok(s->r, s->t->write(s->options, path, rows), "rows are written") ? path : NULL;
}

static const char *write_bytes(suite *s, const char *name, const char *bytes, size_t size)
{
    const char *path = path_of(s, name);
    FILE *f = fopen(path, "wb");
    bool written = f && fwrite(bytes, 1, size, f) == size;
    if (f && fclose(f)) written = false;
    return report_check(s->r, written, "the suite can write a file", "%s", path) ? path : NULL;
}

static int n_open(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n;
}

/* ---- reading ---- */

static nrl_status open_path(const suite *s, const char *path, void **self, nrl_dataset_info *info)
{
    const nrl_dataset_source source = {.size = sizeof source, .path = path};
    nrl_fail(NRL_OK, "%s", "");
    NRL_TRY(s->t->open(s->options, &source, self));
    *info = (nrl_dataset_info){.size = sizeof *info, .rows = -1, .bytes = -1};
    s->t->info(*self, info);
    return NRL_OK;
}

static void hash_row(const nrl_node *row, char out[HASH_TEXT])
{
    buffer b = {0};
    for (size_t i = 0; i < nrl_node_size(row); i++) {
        const nrl_node *value = nrl_node_at(row, i);
        buffer_print(&b, "%s %d %zu ", nrl_node_key(row, i), (int)nrl_node_kind(value), nrl_node_string_size(value));
        buffer_add(&b, nrl_node_string(value, ""), nrl_node_string_size(value));
    }
    hash_bytes(b.text, b.size, out);
    buffer_free(&b);
}

static void reading_add(reading *g, const nrl_node *row)
{
    if (g->n == g->room) {
        g->room = g->room ? g->room * 2 : 64;
        g->hash = mem_realloc(g->hash, (size_t)g->room * sizeof *g->hash);
        g->line = mem_realloc(g->line, (size_t)g->room * sizeof *g->line);
    }
    hash_row(row, g->hash[g->n]);
    g->line[g->n++] = row->line;
}

static void reading_free(reading *g)
{
    free(g->hash);
    free(g->line);
    *g = (reading){0};
}

static void reading_fail(reading *g, nrl_status st)
{
    g->status = st;
    snprintf(g->error, sizeof g->error, "%s", nrl_error_text());
}

static void read_range(const nrl_dataset *t, void *range, reading *g)
{
    arena a = {0};
    const nrl_node *row = NULL;
    nrl_status st;
    while ((st = t->next_row(range, &a, &row)) == NRL_OK && row) {
        reading_add(g, row);
        arena_reset(&a);
        row = NULL;
    }
    if (st != NRL_OK) reading_fail(g, st);
    t->close_range(range);
    arena_free(&a);
}

/* Reads as one thread does: a range to its end, then the next. */
static void read_path(const suite *s, const char *path, reading *g)
{
    void *self;
    nrl_dataset_info info;
    nrl_status st = open_path(s, path, &self, &info);
    if (st != NRL_OK) {
        reading_fail(g, st);
        return;
    }
    while (g->status == NRL_OK) {
        void *range = NULL;
        st = s->t->next_range(self, &range);
        if (st != NRL_OK) reading_fail(g, st);
        if (st != NRL_OK || !range) break;
        g->n_ranges++;
        read_range(s->t, range, g);
    }
    s->t->close(self);
}

static bool same_reading(const reading *x, const reading *y)
{
    return x->status == y->status && x->n == y->n &&
           (!x->n || (!memcmp(x->hash, y->hash, (size_t)x->n * sizeof *x->hash) &&
                      !memcmp(x->line, y->line, (size_t)x->n * sizeof *x->line)));
}

/* ---- content and places ---- */

static void check_content(suite *s, const reading *g, const nrl_node *rows)
{
    int64_t n = (int64_t)nrl_node_size(rows), wrong = -1;
    char expected[HASH_TEXT];
    if (!report_check(s->r, g->status == NRL_OK, "what was written can be read", "status %d: %s", (int)g->status,
                      g->error))
        return;
    report_check(s->r, g->n == n, "every row is given once", "%lld of %lld rows", (long long)g->n, (long long)n);
    for (int64_t i = 0; i < g->n && i < n && wrong < 0; i++) {
        hash_row(nrl_node_at(rows, (size_t)i), expected);
        if (memcmp(expected, g->hash[i], HASH_TEXT) != 0) wrong = i;
    }
    report_check(s->r, wrong < 0, "a row has the texts that were written", "row %lld, in the file's order, differs",
                 (long long)wrong + 1);
}

/* The first line of the file that contains the mark; 0: none does. */
static uint32_t line_of(const char *text, size_t size, const char *mark)
{
    uint32_t line = 1;
    const char *found = memmem(text, size, mark, strlen(mark));
    for (const char *c = text; found && c < found; c++)
        line += *c == '\n';
    return found ? line : 0;
}

static void check_places(suite *s, const char *path, const reading *g, bool is_marked)
{
    static const char rule[] = "a row's line is where the file has it";
    char *text;
    size_t size;
    for (int64_t i = 0; i < g->n; i++) {
        uint32_t before = i ? g->line[i - 1] : 1;
        if (!report_check(s->r, g->line[i] >= 1, "a row has a line, from 1", "row %lld has none", (long long)i + 1))
            return;
        if (!report_check(s->r, g->line[i] >= before, "lines never fall",
                          "row %lld is at line %u, the one before at %u", (long long)i + 1, g->line[i], before))
            return;
    }
    if (!is_marked || file_read(path, MAX_FILE, &text, &size) != NRL_OK) return;
    for (int64_t i = 0; i < g->n; i++) {
        char mark[32];
        snprintf(mark, sizeof mark, "r%lldc", (long long)i);
        uint32_t line = line_of(text, size, mark);
        if (!line) {
            report_skip(s->r, rule, "the file does not hold texts as they are");
            break;
        }
        if (!report_check(s->r, g->line[i] == line, rule, "row %lld says line %u, it is at %u", (long long)i + 1,
                          g->line[i], line))
            break;
    }
    free(text);
}

static void check_info(suite *s, const char *path, const reading *g)
{
    void *self;
    struct stat st;
    nrl_dataset_info info;
    if (open_path(s, path, &self, &info) != NRL_OK) return;
    if (info.rows < 0)
        report_skip(s->r, "the number of rows is the announced one", "it announces none");
    else
        report_check(s->r, info.rows == g->n, "the number of rows is the announced one", "%lld announced, %lld given",
                     (long long)info.rows, (long long)g->n);
    if (info.hash)
        report_check(s->r, *info.hash && strlen(info.hash) <= 64 && !info.hash[strspn(info.hash, "0123456789abcdef")],
                     "a hash is up to 64 hex digits", "'%s'", info.hash);
    else
        report_check(s->r, !stat(path, &st) && S_ISREG(st.st_mode), "without a hash the path is a regular file", "%s",
                     path);
    s->t->close(self);
}

/* Rows stay valid as long as their memory, and name the path. */
static void check_rows(suite *s, const char *path)
{
    void *self, *range = NULL;
    nrl_dataset_info info;
    const nrl_node *row[2] = {NULL, NULL};
    arena a[2] = {{0}, {0}};
    char was[HASH_TEXT], is[HASH_TEXT];
    if (open_path(s, path, &self, &info) != NRL_OK) return;
    if (s->t->next_range(self, &range) == NRL_OK && range) {
        if (s->t->next_row(range, &a[0], &row[0]) == NRL_OK && row[0] &&
            report_check(s->r, nrl_node_kind(row[0]) == NRL_NODE_MAP, "a row is a map", "it is a %s",
                         node_kind_name(nrl_node_kind(row[0])))) {
            const char *place = nrl_node_place(row[0]);
            report_check(s->r, !strncmp(place, path, strlen(path)) && place[strlen(path)] == ':',
                         "a row names its path", "'%s'", place);
            hash_row(row[0], was);
            bool two = s->t->next_row(range, &a[1], &row[1]) == NRL_OK && row[1];
            hash_row(row[0], is);
            report_check(s->r, !two || !strcmp(was, is), "a row stays valid as long as its memory",
                         "the next one changed it");
        }
        s->t->close_range(range);
    }
    s->t->close(self);
    arena_free(&a[0]);
    arena_free(&a[1]);
}

/* ---- ranges ---- */

typedef struct {
    const nrl_dataset *t;
    void **ranges;
    reading *of;
    size_t n, begin;
} range_worker;

static void *read_share(void *self)
{
    range_worker *w = self;
    for (size_t i = w->begin; i < w->n; i += THREADS)
        read_range(w->t, w->ranges[i], &w->of[i]);
    return NULL;
}

/* All ranges are taken first, then several threads read them. */
static void read_by_threads(suite *s, const char *path, reading *all)
{
    void *self;
    nrl_dataset_info info;
    size_t n = 0;
    void **ranges = mem_alloc(MAX_RANGES * sizeof *ranges);
    nrl_status st = open_path(s, path, &self, &info);
    if (st == NRL_OK) {
        while (n < MAX_RANGES && (st = s->t->next_range(self, &ranges[n])) == NRL_OK && ranges[n])
            n++;
        reading *of = mem_alloc((n + 1) * sizeof *of);
        range_worker w[THREADS];
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            w[i] = (range_worker){s->t, ranges, of, n, i};
            if (pthread_create(&threads[i], NULL, read_share, &w[i])) NRL_ASSERT(0, ==, 1);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (size_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < of[i].n; k++) {
                const nrl_node row = {.line = of[i].line[k]};
                reading_add(all, &row);
                memcpy(all->hash[all->n - 1], of[i].hash[k], HASH_TEXT);
            }
            if (all->status == NRL_OK) all->status = of[i].status;
            reading_free(&of[i]);
        }
        free(of);
        s->t->close(self);
    }
    if (st != NRL_OK) all->status = st;
    free(ranges);
}

/* The rows of a source that has gone to `position` after its first range. */
static void read_from(const suite *s, const char *path, const char *position, reading *g)
{
    void *self, *range = NULL;
    nrl_dataset_info info;
    nrl_status st = open_path(s, path, &self, &info);
    if (st == NRL_OK) {
        st = s->t->next_range(self, &range);
        if (st == NRL_OK && range) s->t->close_range(range);
        if (st == NRL_OK) st = s->t->seek(self, position);
        while (st == NRL_OK && g->status == NRL_OK && (st = s->t->next_range(self, &range)) == NRL_OK && range)
            read_range(s->t, range, g);
        s->t->close(self);
    }
    if (st != NRL_OK) reading_fail(g, st);
}

static void check_positions(suite *s, const char *path, const reading *g)
{
    static const char rule[] = "a source goes on where it said that it was";
    void *self, *range = NULL;
    nrl_dataset_info info;
    reading before = {0};
    char at[NRL_DATASET_POSITION] = "";
    if (!report_check(s->r, !s->t->tell == !s->t->seek, "tell and seek go together", "one of the two is NULL")) return;
    if (!s->t->tell) {
        report_skip(s->r, rule, "it has no tell");
        return;
    }
    if (open_path(s, path, &self, &info) != NRL_OK) return;
    for (bool good = true; good && s->t->next_range(self, &range) == NRL_OK && range;) {
        read_range(s->t, range, &before);
        if (!s->t->tell(self, at)) continue;
        reading rest = {0};
        good = report_check(s->r, memchr(at, 0, sizeof at), rule, "the text of a position has no end");
        if (good) read_from(s, path, at, &rest);
        bool same = rest.status == g->status && before.n + rest.n == g->n;
        for (int64_t i = 0; same && i < rest.n; i++)
            same = !memcmp(rest.hash[i], g->hash[before.n + i], HASH_TEXT) && rest.line[i] == g->line[before.n + i];
        good = good && report_check(s->r, same, rule, "after row %lld: %lld rows of %lld; %s", (long long)before.n,
                                    (long long)rest.n, (long long)(g->n - before.n), rest.error);
        reading_free(&rest);
    }
    report_check(s->r, !*at || s->t->seek(self, "nowhere") == NRL_ERR_DATA, "no position is NRL_ERR_DATA",
                 "it went on");
    s->t->close(self);
    reading_free(&before);
}

static void check_ranges(suite *s, const char *path, const reading *g)
{
    reading again = {0}, threads = {0};
    read_path(s, path, &again);
    report_check(s->r, same_reading(g, &again), "a second reading gives the same rows", "%lld rows, then %lld",
                 (long long)g->n, (long long)again.n);
    read_by_threads(s, path, &threads);
    report_check(s->r, same_reading(g, &threads), "threads read the same rows in the same order",
                 "%lld rows by one thread, %lld by %d", (long long)g->n, (long long)threads.n, THREADS);
    reading_free(&again);
    reading_free(&threads);
    check_positions(s, path, g);
}

/* ---- leaks ---- */

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Opens, reads one row, and closes the range before its end. */
static void leave_early(const suite *s, const char *path)
{
    void *self, *range = NULL;
    nrl_dataset_info info;
    const nrl_node *row = NULL;
    arena a = {0};
    if (open_path(s, path, &self, &info) != NRL_OK) return;
    if (s->t->next_range(self, &range) == NRL_OK && range) {
        (void)s->t->next_row(range, &a, &row);
        s->t->close_range(range);
    }
    s->t->close(self);
    arena_free(&a);
}

static void check_life(suite *s, const char *path)
{
    int before = 0;
    size_t used = 0;
    for (int i = 0; i < CYCLES + 4; i++) {
        reading g = {0};
        if (i == 4) { /* by now all one-time allocations were made */
            before = n_open();
            used = in_use();
        }
        read_path(s, path, &g);
        leave_early(s, path);
        reading_free(&g);
    }
    int64_t more = (int64_t)in_use() - (int64_t)used;
    report_check(s->r, n_open() == before, "nothing stays open", "%d descriptors more", n_open() - before);
    report_check(s->r, more < LEAK_SLACK, "readings leave no memory behind", "%lld bytes after %d readings",
                 (long long)more, 2 * CYCLES);

    void *x, *y;
    nrl_dataset_info info;
    reading alone = {0}, beside = {0};
    read_path(s, path, &alone);
    if (!report_ok(s->r, open_path(s, path, &x, &info), "instances live side by side")) return;
    if (open_path(s, path, &y, &info) == NRL_OK) s->t->close(y);
    void *range = NULL;
    nrl_status st = NRL_OK;
    while (beside.status == NRL_OK && (st = s->t->next_range(x, &range)) == NRL_OK && range)
        read_range(s->t, range, &beside);
    if (st != NRL_OK) reading_fail(&beside, st);
    report_check(s->r, same_reading(&alone, &beside), "instances live side by side",
                 "an instance reads differently after another one was closed");
    s->t->close(x);
    reading_free(&alone);
    reading_free(&beside);
}

/* ---- probes, hashes, damage ---- */

static void check_probe(suite *s, const char *own)
{
    const char *noise = arena_printf(&s->a, "%s/noise.bin", s->folder);
    FILE *f = fopen(noise, "wb");
    if (f) fclose(f); /* an empty file with an unknown name */
    const char *others[] = {"/nowhere/at/all.bin", noise, s->folder};
    for (size_t i = 0; i < 3; i++) {
        const nrl_dataset_source source = {.size = sizeof source, .path = others[i]};
        int32_t sure = s->t->probe(&source);
        report_check(s->r, sure <= NRL_PROBE_EXPLAINS, "a probe leaves other files alone", "'%s': %d", others[i],
                     (int)sure);
    }
    const nrl_dataset_source source = {.size = sizeof source, .path = own};
    int32_t sure = own ? s->t->probe(&source) : NRL_PROBE_YES;
    report_check(s->r, sure >= NRL_PROBE_PERHAPS, "a probe knows the plugin's own files", "it returned %d", (int)sure);
}

static void check_missing(suite *s)
{
    void *self;
    nrl_dataset_info info;
    const char *path = path_of(s, "nowhere/at/all");
    nrl_status st = open_path(s, path, &self, &info);
    if (st == NRL_OK) s->t->close(self);
    report_check(s->r, st == NRL_ERR_CONFIG, "a missing path is NRL_ERR_CONFIG", "status %d", (int)st);
    report_check(s->r, st == NRL_OK || strstr(nrl_error_text(), path), "an error names the path", "'%s'",
                 nrl_error_text());
}

static void check_hash(suite *s)
{
    void *self;
    nrl_dataset_info info;
    char *hash[3] = {NULL, NULL, NULL};
    const int changed[] = {-1, FEW - 1, -1};
    static const char *const names[] = {"hashed", "hashed_other", "hashed_equal"};
    for (int i = 0; i < 3; i++) {
        const char *path = write_rows(s, names[i], make_rows(s, FEW, changed[i], 0));
        if (!path || open_path(s, path, &self, &info) != NRL_OK) continue;
        hash[i] = info.hash ? mem_strdup(info.hash) : NULL;
        s->t->close(self);
    }
    if (hash[0]) {
        report_check(s->r, hash[1] && strcmp(hash[0], hash[1]), "another content has another hash", "%s", hash[0]);
        report_check(s->r, hash[2] && !strcmp(hash[0], hash[2]), "equal content has an equal hash", "%s and %s",
                     hash[0], hash[2] ? hash[2] : "none");
    } else {
        report_skip(s->r, "another content has another hash", "the core hashes the file's bytes");
    }
    for (int i = 0; i < 3; i++)
        free(hash[i]);
}

static void check_empty(suite *s)
{
    reading g = {0};
    const char *path = write_bytes(s, "empty", "", 0);
    if (!path) return;
    read_path(s, path, &g);
    report_check(s->r, g.n == 0, "an empty file has no rows", "%lld rows", (long long)g.n);
    report_check(s->r, g.status == NRL_OK || strstr(g.error, path), "an error names the path", "'%s'", g.error);
    reading_free(&g);
}

/* The file without its last line end, truncated at many positions, and with changed bytes. */
static void check_damage(suite *s, const char *path, const reading *whole)
{
    static const char cut_rule[] = "a truncated file gives its first rows or an error";
    char *text;
    size_t size;
    reading g = {0};
    if (file_read(path, MAX_FILE, &text, &size) != NRL_OK) return;
    if (size && text[size - 1] == '\n') {
        const char *open_end = write_bytes(s, "open_end", text, size - 1);
        if (open_end) read_path(s, open_end, &g);
        report_check(s->r, same_reading(whole, &g), "the last row needs no line end", "%lld of %lld rows %s",
                     (long long)g.n, (long long)whole->n, g.error);
        reading_free(&g);
    } else {
        report_skip(s->r, "the last row needs no line end", "its files do not end in one");
    }
    for (size_t at = 0; at < size; at += 1 + size / 199) {
        const char *cut = write_bytes(s, "cut", text, at);
        if (!cut) break;
        read_path(s, cut, &g);
        /* missing text of the last row cannot always be detected */
        bool first = g.n <= whole->n;
        for (int64_t i = 0; first && i + 1 < g.n; i++)
            first = !memcmp(g.hash[i], whole->hash[i], HASH_TEXT) && g.line[i] == whole->line[i];
        report_check(s->r, first, cut_rule, "cut at byte %zu of %zu: %lld rows", at, size, (long long)g.n);
        report_check(s->r, g.status == NRL_OK || strstr(g.error, cut), "an error names the path", "'%s'", g.error);
        reading_free(&g);
    }
    for (size_t at = 0; at < size; at += 1 + size / 199) {
        char was = text[at];
        text[at] = (char)(was ^ (at % 2 ? 0x80 : 0x07));
        const char *damaged = write_bytes(s, "damaged", text, size);
        text[at] = was;
        if (!damaged) break;
        read_path(s, damaged, &g);
        report_check(s->r, g.status == NRL_OK || strstr(g.error, damaged), "an error names the path", "'%s'", g.error);
        reading_free(&g);
    }
    free(text);
}

/* Rules for any readable file. */
static void check_file(suite *s, const char *path, const reading *g, bool is_marked)
{
    check_places(s, path, g, is_marked);
    check_info(s, path, g);
    check_rows(s, path);
    check_ranges(s, path, g);
}

void conformance_dataset(const nrl_dataset *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.t = table, .options = setup->options, .r = report, .folder = setup->folder};
    reading few = {0}, many = {0}, given = {0};
    bool writes = table->write && table->extension;
    report_check(report, !table->write == !table->extension, "a writer has an extension", "one of the two is NULL");
    REPORT_CASE(report, "a missing path is NRL_ERR_CONFIG") check_missing(&s);
    if (writes) {
        const nrl_node *rows = make_rows(&s, FEW, -1, 0), *more = make_rows(&s, MANY, -1, FILLING);
        const char *small = write_rows(&s, "few", rows), *large = write_rows(&s, "many", more);
        REPORT_CASE(report, "a probe knows the plugin's own files") check_probe(&s, small);
        if (small) {
            read_path(&s, small, &few);
            REPORT_CASE(report, "a row has the texts that were written") check_content(&s, &few, rows);
            REPORT_CASE(report, "a second reading gives the same rows") check_file(&s, small, &few, true);
            REPORT_CASE(report, "instances live side by side") check_life(&s, small);
        }
        if (large) {
            read_path(&s, large, &many);
            REPORT_CASE(report, "a row has the texts that were written") check_content(&s, &many, more);
            report_check(report, many.n_ranges > 1, "many rows are more than one range", "%d rows of %d bytes in %lld",
                         MANY, 2 * FILLING, (long long)many.n_ranges);
            REPORT_CASE(report, "threads read the same rows in the same order") check_ranges(&s, large, &many);
            REPORT_CASE(report, "the number of rows is the announced one") check_info(&s, large, &many);
        }
        REPORT_CASE(report, "another content has another hash") check_hash(&s);
        REPORT_CASE(report, "an empty file has no rows") check_empty(&s);
        if (small && few.status == NRL_OK)
            REPORT_CASE(report, "a truncated file gives its first rows or an error") check_damage(&s, small, &few);
    } else {
        REPORT_CASE(report, "a probe leaves other files alone") check_probe(&s, NULL);
        report_skip(report, "what was written can be read", "it has no writer: --path PATH names a file to read");
    }
    if (setup->path) {
        read_path(&s, setup->path, &given);
        if (report_check(report, given.status == NRL_OK, "the file of --path can be read", "%s", given.error)) {
            check_file(&s, setup->path, &given, false);
            check_life(&s, setup->path);
        }
    }
    reading_free(&few);
    reading_free(&many);
    reading_free(&given);
    arena_free(&s.a);
}
