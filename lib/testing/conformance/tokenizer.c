/*
 * tokenizer.c - rules for every tokenizer, whatever its files: ids lie in the vocabulary and their
 * starts rise; the same ids for the same text on any thread; special tokens only if the flags ask
 * for them; decoded text is valid UTF-8 and encodes again; a hash follows the files; errors name
 * the file.
 *
 * The files are those of `--path`, or a vocabulary that the plugin itself trains.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "files.h"
#include "suites.h"
#include <nrl/harness.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    N_THREADS = 4,
    N_LIVES = 16,
    N_EDITS = 12,   /* of each file */
    MAX_IDS = 4096, /* ids that are checked individually */
    LONG_TEXT = 1 << 16,
    MAX_COPIED = 64 << 20, /* bytes of a file that is copied */
    MAX_EDITED = 8 << 20,  /* bytes of a file that is also edited */
    TRAINED_SIZE = 300
};

typedef struct {
    const char *text;
    size_t size;
} sample_text;

#define TEXT(t)                                                                                                        \
    {                                                                                                                  \
        (t), sizeof(t) - 1                                                                                             \
    }
static const sample_text samples[] = {
    TEXT("Hello, world! 1234"),
    TEXT("two  spaces\n\tand a tab\r\n"),
    TEXT("na\xC3\xAFve caf\xC3\xA9 \xE6\x9D\xB1\xE4\xBA\xAC \xF0\x9F\x98\x80 e\xCC\x81"),
    TEXT("<html> & \"quotes\" {curly} [square]"),
    TEXT("a"),
    TEXT(""),
    TEXT(" leads and trails "),
    TEXT("x\0y"),
    TEXT("it's I'LL we've \xC2\xA0 \xE2\x80\x8B")};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

/* An invalid text, and the same text with U+FFFD. */
static const sample_text broken[][2] = {
    {TEXT("a\xFF b"), TEXT("a\xEF\xBF\xBD b")},
    {TEXT("a\xE4\xB8"), TEXT("a\xEF\xBF\xBD")},
    {TEXT("\xC3 \xA9"), TEXT("\xEF\xBF\xBD \xEF\xBF\xBD")},
    {TEXT("\xF0\x9F\x98x\x80"), TEXT("\xEF\xBF\xBDx\xEF\xBF\xBD")},
    {TEXT("\xED\xA0\x80 s"), TEXT("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD s")},
};

typedef struct {
    const nrl_tokenizer *table;
    const void *options;
    conformance_report *r;
    arena a;
    const char *folder;
    void *self, *scratch;
    nrl_tokenizer_info info;
} suite;

/* ---- calls ---- */

static nrl_status suite_open(suite *s, const char *path, void **self)
{
    const nrl_tokenizer_source source = {.size = sizeof source, .path = path};
    nrl_fail(NRL_OK, "%s", "");
    return s->table->open(s->options, &source, self);
}

static nrl_tokenizer_info suite_info(const suite *s, void *self)
{
    nrl_tokenizer_info info = {.size = sizeof info};
    s->table->info(self, &info);
    return info;
}

static void *suite_scratch(const suite *s, void *self)
{
    return s->table->scratch_create ? s->table->scratch_create(self) : NULL;
}

static void suite_scratch_end(const suite *s, void *scratch)
{
    if (s->table->scratch_destroy) s->table->scratch_destroy(scratch);
}

static nrl_status suite_encode(const suite *s, sample_text text, uint32_t flags, nrl_token_ids *out)
{
    out->n = 0;
    return s->table->encode(s->self, s->scratch, text.text, text.size, flags, out);
}

/* NULL on failure; freed by the caller. */
static nrl_text *suite_decode(const suite *s, const int32_t *ids, size_t n, bool skip_special)
{
    nrl_text *out = nrl_harness_text_create();
    if (s->table->decode(s->self, ids, n, skip_special, out) == NRL_OK) return out;
    nrl_harness_text_free(out);
    return NULL;
}

static bool has_id(const nrl_token_ids *ids, int32_t id)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] == id) return true;
    return false;
}

static bool same_ids(const nrl_token_ids *a, const nrl_token_ids *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->ids, b->ids, a->n * sizeof *a->ids));
}

static const nrl_named_token *named_at(const nrl_tokenizer_info *info, uint32_t i)
{
    return (const void *)((const char *)info->named + (size_t)i * info->named_size);
}

/* ---- files ---- */

static void check_foreign(suite *s)
{
    static const char alone[] = "a probe leaves other files alone", refused[] = "a foreign file is refused by its name";
    unsigned char noise[2048];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
    const char *empty = arena_printf(&s->a, "%s/nothing", s->folder);
    mkdir(empty, 0777);
    const char *files[] = {empty, arena_printf(&s->a, "%s/noise.dat", s->folder),
                           arena_printf(&s->a, "%s/empty.dat", s->folder), "/nowhere/that/is"};
    files_write(files[1], (const char *)noise, sizeof noise);
    files_write(files[2], "", 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const nrl_tokenizer_source source = {.size = sizeof source, .path = files[i]};
        void *self;
        int32_t sure = s->table->probe(&source);
        const char *name = strrchr(files[i], '/') + 1;
        report_check(s->r, sure <= NRL_PROBE_EXPLAINS, alone, "%s: it returned %d", name, (int)sure);
        nrl_status st = suite_open(s, files[i], &self);
        if (st == NRL_OK) s->table->close(self);
        report_check(s->r, st != NRL_OK && strstr(nrl_error_text(), name), refused, "%s: status %d, '%s'", name,
                     (int)st, st == NRL_OK ? "" : nrl_error_text());
    }
}

/* A hash of everything that an open tokenizer returns. */
static void describe(suite *s, char hash[HASH_TEXT])
{
    buffer all = {0};
    nrl_token_ids ids = {.want_starts = true};
    const nrl_tokenizer_info *info = &s->info;
    buffer_print(&all, "%d %d %d %d %d %d %s %s\n", info->vocab_size, info->bos, info->eos, info->pad, info->adds_bos,
                 info->adds_eos, info->chat_template ? info->chat_template : "",
                 info->tools_template ? info->tools_template : "");
    for (int32_t id = 0; id < info->vocab_size; id++) {
        size_t size = 0;
        uint32_t flags = 0;
        const char *text = s->table->token_text(s->self, id, &size, &flags);
        buffer_print(&all, "%d %u ", id, flags);
        if (text) buffer_add(&all, text, size);
    }
    for (size_t i = 0; i < N_SAMPLES; i++)
        for (uint32_t flags = 0; flags < 4; flags++)
            if (suite_encode(s, samples[i], flags, &ids) == NRL_OK)
                buffer_add(&all, (const char *)ids.ids, ids.n * sizeof *ids.ids);
    hash_bytes(all.text, all.size, hash);
    buffer_free(&all);
    nrl_token_ids_free(&ids);
}

/* Opens a copy; gives its hash and a hash of its results; false if it is refused. */
static bool open_copy(suite *s, const char *path, char hash[256], char answers[HASH_TEXT])
{
    suite other = *s;
    if (suite_open(s, path, &other.self) != NRL_OK) return false;
    other.info = suite_info(s, other.self);
    other.scratch = suite_scratch(s, other.self);
    snprintf(hash, 256, "%s", other.info.hash ? other.info.hash : "");
    describe(&other, answers);
    suite_scratch_end(s, other.scratch);
    s->table->close(other.self);
    return true;
}

/* Changes one byte of a file at a time, then removes its second half. */
static void check_edits(suite *s, const char *copy, const char *file, const char *was, const char *did)
{
    char *bytes, hash[256], answers[HASH_TEXT];
    size_t size;
    if (file_read(file, MAX_EDITED, &bytes, &size) != NRL_OK) return;
    for (size_t i = 0; i <= N_EDITS && size; i++) {
        size_t at = size * i / N_EDITS;
        if (i < N_EDITS) bytes[at] ^= 1;
        files_write(file, bytes, i < N_EDITS ? size : size / 2);
        bool opened = open_copy(s, copy, hash, answers);
        const char *where = strrchr(file, '/') + 1;
        if (opened)
            report_check(s->r, !strcmp(answers, did) || strcmp(hash, was), "a changed file changes the hash",
                         "%s, byte %zu of %zu", where, at, size);
        else
            report_check(s->r, *nrl_error_text(), "a damaged file gives an error text", "%s, byte %zu of %zu", where,
                         at, size);
        if (i < N_EDITS) bytes[at] ^= 1;
    }
    files_write(file, bytes, size);
    free(bytes);
}

static void check_hash(suite *s, const char *path)
{
    static const char rule[] = "equal files have equal hashes";
    char hash[2][256], answers[2][HASH_TEXT];
    const char *copies[2], *names[FILES_MAX];
    for (int i = 0; i < 2; i++) {
        const char *to = arena_printf(&s->a, "%s/copy%d", s->folder, i);
        copies[i] = files_copy(&s->a, path, to, MAX_COPIED);
        if (!report_check(s->r, copies[i] && open_copy(s, copies[i], hash[i], answers[i]), rule,
                          "a copy does not open: %s", nrl_error_text()))
            return;
    }
    report_check(s->r, !strcmp(hash[0], hash[1]), rule, "%s and %s", hash[0], hash[1]);
    report_check(s->r, !strcmp(answers[0], answers[1]), rule, "two copies answer differently");
    if (strcmp(copies[0], arena_printf(&s->a, "%s/copy0", s->folder))) { /* a file in that directory */
        check_edits(s, copies[0], copies[0], hash[0], answers[0]);
        return;
    }
    size_t n = files_list(&s->a, copies[0], names);
    for (size_t i = 0; i < n; i++)
        check_edits(s, copies[0], arena_printf(&s->a, "%s/%s", copies[0], names[i]), hash[0], answers[0]);
}

/* ---- info ---- */

static void check_info(suite *s)
{
    static const char fits[] = "info fits the vocabulary";
    const nrl_tokenizer_info *i = &s->info;
    const int32_t ids[] = {i->bos, i->eos, i->pad};
    report_check(s->r, i->vocab_size > 0 && i->vocab_size <= NRL_TOKEN_MAX_ID, fits, "vocab_size is %d", i->vocab_size);
    for (int k = 0; k < 3; k++)
        report_check(s->r, ids[k] >= NRL_TOKEN_NONE && ids[k] < i->vocab_size, fits, "%s is %d of %d",
                     (const char *[]){"bos", "eos", "pad"}[k], ids[k], i->vocab_size);
    for (size_t k = 0; k < i->n_eos; k++)
        report_check(s->r, i->eos_ids[k] >= 0 && i->eos_ids[k] < i->vocab_size, fits, "eos_ids[%zu] is %d", k,
                     i->eos_ids[k]);
    report_check(s->r, i->eos == NRL_TOKEN_NONE ? !i->n_eos : i->n_eos && i->eos_ids[0] == i->eos, fits,
                 "eos is %d, eos_ids has %zu and does not begin with it", i->eos, i->n_eos);
    report_check(s->r, (!i->adds_bos || i->bos >= 0) && (!i->adds_eos || i->eos >= 0), fits,
                 "an added token does not exist");
    for (uint32_t k = 0; k < i->n_named; k++) {
        const nrl_named_token *n = named_at(i, k);
        report_check(s->r, n->name && n->text && s->table->token_id(s->self, n->text, strlen(n->text)) >= 0,
                     "named tokens are tokens", "%s: %s", n->name ? n->name : "NULL", n->text ? n->text : "NULL");
    }
    size_t n = i->hash ? strspn(i->hash, "0123456789abcdef") : 0;
    report_check(s->r, n >= 8 && !i->hash[n], "a hash is hex digits", "'%s'", i->hash ? i->hash : "NULL");
}

static void check_tokens(suite *s)
{
    static const char rule[] = "a token's text finds the token", none[] = "ids outside the vocabulary have no text";
    int32_t n = s->info.vocab_size, step = n / MAX_IDS + 1;
    for (int32_t id = 0; id < n; id += step) {
        size_t size = 0, other_size = 0;
        uint32_t flags = 0;
        const char *text = s->table->token_text(s->self, id, &size, &flags);
        if (!text) continue;
        report_check(s->r, !text[size], "a token's text is NUL-ended", "id %d", id);
        int32_t found = s->table->token_id(s->self, text, size);
        const char *other = found < 0 ? NULL : s->table->token_text(s->self, found, &other_size, &flags);
        bool same = other && other_size == size && !memcmp(text, other, size);
        if (!report_check(s->r, same, rule, "id %d, text '%.40s', found %d", id, text, found)) return;
    }
    const int32_t outside[] = {-1, n, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        size_t size;
        uint32_t flags;
        report_check(s->r, !s->table->token_text(s->self, outside[i], &size, &flags), none, "id %d", outside[i]);
        nrl_text *text = suite_decode(s, &outside[i], 1, false);
        report_check(s->r, !text, "an id outside the vocabulary is refused", "id %d is decoded", outside[i]);
        nrl_harness_text_free(text);
    }
}

/* ---- encoding ---- */

static void check_starts(suite *s, sample_text text, const nrl_token_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        bool in = ids->ids[i] >= 0 && ids->ids[i] < s->info.vocab_size;
        bool rises = ids->starts[i] <= text.size && (!i || ids->starts[i - 1] <= ids->starts[i]);
        if (!report_check(s->r, in, "ids lie in the vocabulary", "id %d of %d", ids->ids[i], s->info.vocab_size))
            return;
        if (!report_check(s->r, rises, "starts rise inside the text", "token %zu of '%.40s' starts at %zu of %zu", i,
                          text.text, ids->starts[i], text.size))
            return;
    }
}

static void check_sample(suite *s, sample_text text)
{
    static const char equal[] = "equal text gives equal ids";
    nrl_token_ids ids = {.want_starts = true}, again = {0};
    if (!report_ok(s->r, suite_encode(s, text, 0, &ids), "any text is encoded")) return;
    check_starts(s, text, &ids);
    for (size_t i = 0; i < N_SAMPLES; i++)
        suite_encode(s, samples[i], 0, &again);
    report_check(s->r, suite_encode(s, text, 0, &again) == NRL_OK && same_ids(&ids, &again), equal, "'%.40s'",
                 text.text);
    bool has_roles = (s->info.bos >= 0 && has_id(&ids, s->info.bos)) || (s->info.eos >= 0 && has_id(&ids, s->info.eos));
    report_check(s->r, !has_roles, "BOS and EOS are added only with the flag", "'%.40s'", text.text);

    size_t n = again.n, at = 0;
    int32_t first = n ? again.ids[0] : 0;
    s->table->encode(s->self, s->scratch, text.text, text.size, 0, &again);
    report_check(s->r, again.n == 2 * n && (!n || again.ids[0] == first), "encode appends", "%zu ids, then %zu", n,
                 again.n);

    report_ok(s->r, suite_encode(s, text, NRL_ENCODE_ADD_SPECIAL, &again), "any text is encoded");
    while (at + n <= again.n && n && memcmp(again.ids + at, ids.ids, n * sizeof *ids.ids))
        at++;
    report_check(s->r, at + n <= again.n, "the flag adds tokens around a text", "'%.40s'", text.text);
    bool begins = !s->info.adds_bos || (again.n && again.ids[0] == s->info.bos);
    bool ends = !s->info.adds_eos || (again.n && again.ids[again.n - 1] == s->info.eos);
    report_check(s->r, begins && ends, "the flag adds what info says", "'%.40s'", text.text);
    nrl_token_ids_free(&ids);
    nrl_token_ids_free(&again);
}

static void check_broken(suite *s)
{
    nrl_token_ids ids = {0}, other = {0};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        bool encoded = report_ok(s->r, suite_encode(s, broken[i][0], 0, &ids), "any text is encoded") &&
                       report_ok(s->r, suite_encode(s, broken[i][1], 0, &other), "any text is encoded");
        report_check(s->r, encoded && same_ids(&ids, &other), "broken UTF-8 is read as U+FFFD", "text %zu", i);
    }
    nrl_token_ids_free(&ids);
    nrl_token_ids_free(&other);
}

static void check_long(suite *s)
{
    char *text = malloc(LONG_TEXT);
    nrl_token_ids ids = {.want_starts = true};
    for (int round = 0; text && round < 2; round++) {
        for (size_t i = 0; i < LONG_TEXT; i++)
            text[i] = round ? 'a' : samples[0].text[i % samples[0].size];
        const sample_text whole = {text, LONG_TEXT};
        if (report_ok(s->r, suite_encode(s, whole, 0, &ids), "a long text is encoded")) check_starts(s, whole, &ids);
    }
    nrl_token_ids_free(&ids);
    free(text);
}

/* Special tokens that are recognised in text, at most 64. */
static void check_special(suite *s)
{
    nrl_token_ids ids = {0};
    const char *unknown = "";
    for (uint32_t i = 0; i < s->info.n_named; i++)
        if (!strcmp(named_at(&s->info, i)->name, "unk_token")) unknown = named_at(&s->info, i)->text;
    for (int32_t id = 0, n = 0; id < s->info.vocab_size && n < 64; id++) {
        sample_text text = {0};
        uint32_t flags = 0;
        text.text = s->table->token_text(s->self, id, &text.size, &flags);
        if (!text.text || !(flags & NRL_TOKEN_SPECIAL)) continue;
        nrl_text *shown = suite_decode(s, &id, 1, true);
        size_t size = 1;
        if (shown) nrl_harness_text_bytes(shown, &size);
        report_check(s->r, !size, "a special token is skipped when asked", "%s", text.text);
        nrl_harness_text_free(shown);
        if (!(flags & NRL_TOKEN_ADDED) || !strcmp(text.text, unknown)) continue;
        n++;
        report_check(s->r, suite_encode(s, text, 0, &ids) == NRL_OK && has_id(&ids, id),
                     "a special token is found in text", "%s", text.text);
        report_check(s->r, suite_encode(s, text, NRL_ENCODE_SPECIAL_AS_TEXT, &ids) == NRL_OK && !has_id(&ids, id),
                     "a special token is text when asked", "%s", text.text);
    }
    nrl_token_ids_free(&ids);
}

/* ---- decoding ---- */

static void check_stream(suite *s, const nrl_token_ids *ids, const char *whole, size_t size)
{
    static const char rule[] = "decoding token by token gives the same text",
                      inside[] = "decode_next writes at most stream_room bytes";
    size_t room = s->info.stream_room;
    char *piece = malloc(room + 16);
    buffer all = {0};
    nrl_decode_stream stream = {{0}};
    bool kept = room > 0 && piece;
    for (size_t i = 0; kept && i <= ids->n; i++) {
        memset(piece, 0x5a, room + 16);
        size_t n =
            s->table->decode_next(s->self, &stream, i < ids->n ? ids->ids[i] : NRL_TOKEN_NONE, false, piece, room);
        kept = n < room && !piece[n];
        for (size_t k = 0; k < 16; k++)
            kept &= piece[room + k] == 0x5a;
        if (kept) buffer_add(&all, piece, n);
    }
    report_check(s->r, kept, inside, "stream_room is %zu", room);
    report_check(s->r, !kept || (all.size == size && (!size || !memcmp(all.text, whole, size))), rule,
                 "'%.60s', whole '%.60s'", all.text ? all.text : "", whole);
    buffer_free(&all);
    free(piece);
}

/* Decoded text must encode and decode to itself: a tokenizer may change a text, but only once. */
static void check_return(suite *s, sample_text text)
{
    static const char rule[] = "text that was decoded comes back";
    nrl_token_ids ids = {0};
    nrl_text *once = NULL, *twice = NULL;
    sample_text first = {0}, second = {0};
    bool good = suite_encode(s, text, 0, &ids) == NRL_OK && (once = suite_decode(s, ids.ids, ids.n, false));
    if (report_check(s->r, good, "ids that were encoded are decoded", "'%.40s': %s", text.text, nrl_error_text())) {
        first.text = nrl_harness_text_bytes(once, &first.size);
        report_check(s->r, utf8_valid(first.text, first.size), "decoded text is valid UTF-8", "of '%.40s'", text.text);
        check_stream(s, &ids, first.text, first.size);
        good = suite_encode(s, first, 0, &ids) == NRL_OK && (twice = suite_decode(s, ids.ids, ids.n, false));
        if (good) second.text = nrl_harness_text_bytes(twice, &second.size);
        report_check(s->r, good && first.size == second.size && !memcmp(first.text, second.text, first.size), rule,
                     "'%.60s' became '%.60s'", first.text, good ? second.text : "");
    }
    nrl_harness_text_free(once);
    nrl_harness_text_free(twice);
    nrl_token_ids_free(&ids);
}

/* Ids in an arbitrary order, as a model may sample them. */
static void check_any_ids(suite *s)
{
    nrl_token_ids ids = {0};
    uint32_t x = 7;
    for (int round = 0; round < 16; round++) {
        ids.n = 0;
        for (int i = 0; i < 64; i++) {
            size_t size;
            uint32_t flags;
            int32_t id = (int32_t)(((x = x * 1664525 + 1013904223) >> 8) % (uint32_t)s->info.vocab_size);
            if (s->table->token_text(s->self, id, &size, &flags)) nrl_token_ids_push(&ids, id, 0);
        }
        nrl_text *text = suite_decode(s, ids.ids, ids.n, false);
        if (report_check(s->r, text != NULL, "any ids of the vocabulary are decoded", "%s", nrl_error_text())) {
            size_t size;
            const char *whole = nrl_harness_text_bytes(text, &size);
            report_check(s->r, utf8_valid(whole, size), "decoded text is valid UTF-8", "of ids in arbitrary order");
            check_stream(s, &ids, whole, size);
        }
        nrl_harness_text_free(text);
    }
    nrl_token_ids_free(&ids);
}

/* ---- threads and instances ---- */

typedef struct {
    const suite *s;
    const nrl_token_ids *expected; /* [N_SAMPLES] */
    pthread_t thread;
    int64_t differ;
} encoder;

static void *encode_all(void *arg)
{
    encoder *e = arg;
    suite own = *e->s;
    nrl_token_ids ids = {0};
    own.scratch = suite_scratch(&own, own.self);
    for (int round = 0; round < 50; round++)
        for (size_t i = 0; i < N_SAMPLES; i++) {
            bool encoded = suite_encode(&own, samples[i], NRL_ENCODE_ADD_SPECIAL, &ids) == NRL_OK;
            e->differ += !encoded || !same_ids(&ids, &e->expected[i]);
        }
    nrl_token_ids_free(&ids);
    suite_scratch_end(&own, own.scratch);
    return NULL;
}

static void check_threads(suite *s)
{
    encoder threads[N_THREADS];
    nrl_token_ids expected[N_SAMPLES] = {{0}};
    int64_t differ = 0;
    int n = 0;
    for (size_t i = 0; i < N_SAMPLES; i++)
        if (suite_encode(s, samples[i], NRL_ENCODE_ADD_SPECIAL, &expected[i]) != NRL_OK) differ++;
    for (; n < N_THREADS; n++) {
        threads[n] = (encoder){.s = s, .expected = expected};
        if (pthread_create(&threads[n].thread, NULL, encode_all, &threads[n])) break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i].thread, NULL);
        differ += threads[i].differ;
    }
    report_check(s->r, n == N_THREADS && !differ, "several threads give the same ids",
                 "%lld texts differ on %d threads", (long long)differ, n);
    for (size_t i = 0; i < N_SAMPLES; i++)
        nrl_token_ids_free(&expected[i]);
}

/* Opens, encodes and closes. */
static bool live_once(suite *s, const char *path)
{
    suite other = *s;
    nrl_token_ids ids = {0};
    if (suite_open(s, path, &other.self) != NRL_OK) return false;
    other.scratch = suite_scratch(s, other.self);
    bool good = true;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        good &= suite_encode(&other, samples[i], 0, &ids) == NRL_OK;
        nrl_harness_text_free(suite_decode(&other, ids.ids, ids.n, false));
    }
    nrl_token_ids_free(&ids);
    suite_scratch_end(s, other.scratch);
    s->table->close(other.self);
    return good;
}

static void check_lives(suite *s, const char *path)
{
    static const char alone[] = "instances live side by side";
    suite other = *s;
    nrl_token_ids ids = {0}, same = {0};
    if (report_ok(s->r, suite_open(s, path, &other.self), alone)) {
        suite_encode(s, samples[0], 0, &ids);
        report_check(s->r, live_once(s, path), alone, "a third instance fails: %s", nrl_error_text());
        other.scratch = suite_scratch(s, other.self);
        report_check(s->r, suite_encode(&other, samples[0], 0, &same) == NRL_OK && same_ids(&ids, &same), alone,
                     "two instances encode differently");
        suite_scratch_end(s, other.scratch);
        s->table->close(other.self);
        report_check(s->r, suite_encode(s, samples[0], 0, &same) == NRL_OK && same_ids(&ids, &same), alone,
                     "an instance changes when another is closed");
    }
    nrl_token_ids_free(&ids);
    nrl_token_ids_free(&same);
    for (int i = 0; i < 4; i++)
        live_once(s, path);
    int descriptors = files_open_descriptors();
    size_t bytes = files_memory_in_use();
    for (int i = 0; i < N_LIVES; i++)
        live_once(s, path);
    report_check(s->r, files_open_descriptors() == descriptors, "nothing stays open", "%d descriptors more",
                 files_open_descriptors() - descriptors);
    size_t now = files_memory_in_use();
    report_check(s->r, now < bytes + N_LIVES * 64, "close gives the memory back", "%zu bytes more after %d instances",
                 now - bytes, N_LIVES);
}

/* ---- training a vocabulary ---- */

static nrl_status allow_write(void *user, const char *path)
{
    (void)user, (void)path;
    return NRL_OK;
}

static nrl_status refuse_write(void *user, const char *path)
{
    (void)user;
    return nrl_fail(NRL_ERR_FULL, "%s is refused", path);
}

/* Trains on the samples, forwards or backwards, and writes the directory. */
static nrl_status train(suite *s, const char *folder, bool backwards, bool refused, int64_t *n_tokens)
{
    static const char *const special[] = {"<s>", "</s>"};
    const nrl_train_tokenizer what = {.size = sizeof what,
                                      .vocab_size = TRAINED_SIZE,
                                      .special = special,
                                      .n_special = 2,
                                      .min_frequency = 1,
                                      .may_write = refused ? refuse_write : allow_write};
    void *trainer;
    NRL_TRY(s->table->train_begin(s->options, &what, &trainer));
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < N_SAMPLES && st == NRL_OK; i++) {
        const sample_text text = samples[backwards ? N_SAMPLES - 1 - i : i];
        st = s->table->train_add(trainer, text.text, text.size);
    }
    if (st == NRL_OK) st = s->table->train_save(trainer, folder, n_tokens);
    s->table->train_end(trainer);
    return st;
}

/* The directory of the trained vocabulary; NULL on failure. */
static const char *check_train(suite *s)
{
    static const char rule[] = "texts in any order train the same";
    const char *folders[3];
    char hash[2][256] = {""};
    int64_t n = 0;
    for (int i = 0; i < 3; i++)
        folders[i] = arena_printf(&s->a, "%s/trained%d", s->folder, i);
    for (int i = 0; i < 2; i++) {
        void *self;
        if (!report_ok(s->r, train(s, folders[i], i, false, &n), "a vocabulary is trained") ||
            !report_ok(s->r, suite_open(s, folders[i], &self), "what was trained opens"))
            return NULL;
        nrl_tokenizer_info info = suite_info(s, self);
        snprintf(hash[i], sizeof hash[i], "%s", info.hash ? info.hash : "");
        report_check(s->r, n == info.vocab_size && n <= TRAINED_SIZE, "a trained vocabulary has its size",
                     "%lld tokens, info has %d, asked for %d", (long long)n, info.vocab_size, TRAINED_SIZE);
        report_check(s->r, !s->table->token_id(self, "<s>", 3) && s->table->token_id(self, "</s>", 4) == 1,
                     "special tokens get the first ids", "<s> is %d", s->table->token_id(self, "<s>", 3));
        s->table->close(self);
    }
    report_check(s->r, !strcmp(hash[0], hash[1]), rule, "hashes %s and %s", hash[0], hash[1]);
    nrl_status st = train(s, folders[2], false, true, &n);
    report_check(s->r, st == NRL_ERR_FULL, "a file that is refused stops the training", "status %d", (int)st);
    return folders[0];
}

void conformance_tokenizer(const nrl_tokenizer *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .options = setup->options, .r = report, .folder = setup->folder};
    const char *path = setup->path, *trained = NULL;
    REPORT_CASE(report, "a probe leaves other files alone") check_foreign(&s);
    bool trains = table->train_begin || table->train_add || table->train_save || table->train_end;
    bool all = table->train_begin && table->train_add && table->train_save && table->train_end;
    if (!trains)
        report_skip(report, "a vocabulary is trained", "it trains none");
    else if (report_check(report, all, "a trainer has all its members", "one of the four is NULL"))
        trained = check_train(&s);
    if (!path) path = trained;
    if (!path) {
        report_skip(report, "any text is encoded", "it has no files: --path PATH names a tokenizer that it reads");
    } else if (report_ok(report, suite_open(&s, path, &s.self), "its own files open")) {
        const nrl_tokenizer_source source = {.size = sizeof source, .path = path};
        int32_t sure = table->probe(&source);
        report_check(report, sure >= NRL_PROBE_PERHAPS, "a probe knows its own files", "it returned %d", (int)sure);
        s.info = suite_info(&s, s.self);
        s.scratch = suite_scratch(&s, s.self);
        REPORT_CASE(report, "info fits the vocabulary") check_info(&s);
        REPORT_CASE(report, "a token's text finds the token") check_tokens(&s);
        for (size_t i = 0; i < N_SAMPLES; i++)
            REPORT_CASE(report, "any text is encoded")
            {
                check_sample(&s, samples[i]);
                check_return(&s, samples[i]);
            }
        REPORT_CASE(report, "broken UTF-8 is read as U+FFFD") check_broken(&s);
        REPORT_CASE(report, "any text is encoded") check_long(&s);
        REPORT_CASE(report, "a special token is found in text") check_special(&s);
        if (s.info.vocab_size > 0) REPORT_CASE(report, "an id outside the vocabulary is refused") check_any_ids(&s);
        REPORT_CASE(report, "several threads give the same ids") check_threads(&s);
        REPORT_CASE(report, "close gives the memory back") check_lives(&s, path);
        REPORT_CASE(report, "a changed file changes the hash") check_hash(&s, path);
        suite_scratch_end(&s, s.scratch);
        table->close(s.self);
    }
    arena_free(&s.a);
}
