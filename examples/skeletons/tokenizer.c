/*
 * @NAME@.c - a tokenizer: replace it by your own. It reads a file with the extension .@NAME@: a
 * first line "@NAME@", then one token per line, with ids from 0; "\n" in a token is a line end. The
 * tokens <unk> and </s> are required and special. A text is split into the longest matching tokens;
 * text that no token matches is <unk>. nrl/tokenizer.h describes the arguments and the contract of
 * each member. Check it with `nrl plugins test FILE.so --path TOKENIZER`.
 */
#include <errno.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { @NAME@_MAX_TOKENS = 65536, @NAME@_MAX_FILE = 1 << 24 };

typedef struct {
    char *text; /* the whole file, whose lines are split into tokens */
    char hash[17];
    int32_t n, unk, eos;
    const char *tokens[@NAME@_MAX_TOKENS];
    size_t longest;
    nrl_named_token named[2];
} @NAME@_tokenizer;

static int32_t @NAME@_probe(const nrl_tokenizer_source *source)
{
    const char *dot = strrchr(source->path, '.');
    return dot && !strcmp(dot, ".@NAME@") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static void @NAME@_close(void *self)
{
    @NAME@_tokenizer *t = self;
    free(t->text);
    free(t);
}

static int32_t @NAME@_token_id(void *self, const char *text, size_t size)
{
    const @NAME@_tokenizer *t = self;
    for (int32_t id = 0; id < t->n; id++)
        if (strlen(t->tokens[id]) == size && !memcmp(t->tokens[id], text, size)) return id;
    return NRL_TOKEN_NONE;
}

/* Whether the text is valid UTF-8, as decoded text must be: the standard's table of well-formed
 * sequences. */
static bool @NAME@_is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        unsigned char c = *p++;
        int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
        if (more < 0 || (c == 0xE0 && *p < 0xA0) || (c == 0xED && *p > 0x9F) || (c == 0xF0 && *p < 0x90) ||
            (c == 0xF4 && *p > 0x8F))
            return false;
        for (; more; more--)
            if ((*p++ & 0xC0) != 0x80) return false;
    }
    return true;
}

/* Replaces "\n" by a line end. */
static void @NAME@_unescape(char *token)
{
    char *to = token;
    for (const char *from = token; *from; from++)
        if (from[0] == '\\' && from[1] == 'n') *to++ = '\n', from++;
        else *to++ = *from;
    *to = 0;
}

static nrl_status @NAME@_parse(@NAME@_tokenizer *t, const char *name, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)t->text[i]) * 0x100000001b3u;
    snprintf(t->hash, sizeof t->hash, "%016llx", (unsigned long long)hash);
    if (strlen(t->text) != size || strncmp(t->text, "@NAME@\n", strlen("@NAME@\n")))
        return nrl_fail(NRL_ERR_DATA, "%s:1: expected the line '@NAME@'", name);
    for (char *line = strtok(t->text + strlen("@NAME@\n"), "\n"); line; line = strtok(NULL, "\n")) {
        @NAME@_unescape(line);
        size_t n = strlen(line);
        if (t->n == @NAME@_MAX_TOKENS || !@NAME@_is_utf8(line) || @NAME@_token_id(t, line, n) != NRL_TOKEN_NONE)
            return nrl_fail(NRL_ERR_DATA, "%s:%d: expected another token in UTF-8, and at most %d of them", name, t->n + 2,
                            @NAME@_MAX_TOKENS);
        if (n > t->longest) t->longest = n;
        t->tokens[t->n++] = line;
    }
    t->unk = @NAME@_token_id(t, "<unk>", 5);
    t->eos = @NAME@_token_id(t, "</s>", 4);
    t->named[0] = (nrl_named_token){"unk_token", "<unk>"};
    t->named[1] = (nrl_named_token){"eos_token", "</s>"};
    return t->unk >= 0 && t->eos >= 0 ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: expected the tokens <unk> and </s>", name);
}

static nrl_status @NAME@_read(@NAME@_tokenizer *t, const nrl_tokenizer_source *source, size_t *size)
{
    FILE *f = source->bytes ? NULL : fopen(source->path, "rb");
    if (!source->bytes && !f) return nrl_fail(NRL_ERR_IO, "cannot open %s: %s", source->path, strerror(errno));
    t->text = malloc(@NAME@_MAX_FILE);
    size_t room = @NAME@_MAX_FILE - 1;
    *size = source->bytes ? source->n_bytes : t->text ? fread(t->text, 1, room, f) : 0;
    if (t->text && source->bytes && *size < room) memcpy(t->text, source->bytes, *size);
    bool read = t->text && *size < room && !(f && ferror(f));
    if (f) fclose(f);
    if (!read) return nrl_fail(NRL_ERR_IO, "cannot read %s: reading failed, or it is larger than %d bytes", source->path, @NAME@_MAX_FILE);
    t->text[*size] = 0;
    return NRL_OK;
}

static nrl_status @NAME@_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    (void)options;
    size_t size;
    @NAME@_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a tokenizer");
    nrl_status st = @NAME@_read(t, source, &size);
    if (st == NRL_OK) st = @NAME@_parse(t, source->path, size);
    if (st == NRL_OK) *self = t;
    else @NAME@_close(t);
    return st;
}

static void @NAME@_info(void *self, nrl_tokenizer_info *out)
{
    @NAME@_tokenizer *t = self;
    out->vocab_size = t->n;
    out->bos = out->pad = NRL_TOKEN_NONE;
    out->eos = t->eos;
    out->eos_ids = &t->eos;
    out->n_eos = 1;
    out->hash = t->hash;
    out->named = t->named;
    out->n_named = 2;
    out->named_size = sizeof *t->named;
    out->stream_room = t->longest + 4;
}

/* Whether the id is a special token, which is plain text if the flags say so. */
static bool @NAME@_is_special(const @NAME@_tokenizer *t, int32_t id)
{
    return id == t->unk || id == t->eos;
}

static nrl_status @NAME@_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                nrl_token_ids *out)
{
    (void)scratch;
    const @NAME@_tokenizer *t = self;
    bool unknown = false; /* the previous token is <unk>, which stands for all bytes that no token matches */
    for (size_t i = 0, n; i < size; i += n) {
        int32_t best = NRL_TOKEN_NONE;
        for (int32_t id = 0; id < t->n; id++) {
            size_t length = strlen(t->tokens[id]);
            bool special = @NAME@_is_special(t, id) && (flags & NRL_ENCODE_SPECIAL_AS_TEXT || id == t->unk);
            if (special || length > size - i || memcmp(t->tokens[id], text + i, length)) continue;
            if (best == NRL_TOKEN_NONE || length > strlen(t->tokens[best])) best = id;
        }
        n = best == NRL_TOKEN_NONE ? 1 : strlen(t->tokens[best]);
        if (best != NRL_TOKEN_NONE || !unknown) nrl_token_ids_push(out, best == NRL_TOKEN_NONE ? t->unk : best, i);
        unknown = best == NRL_TOKEN_NONE;
    }
    return NRL_OK;
}

/* A token consists of whole characters, so each can be decoded at once; <unk> is shown as U+FFFD. */
static size_t @NAME@_decode_next(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                                 size_t room)
{
    (void)stream;
    const @NAME@_tokenizer *t = self;
    const char *text = id == NRL_TOKEN_NONE ? "" : id < 0 || id >= t->n || id == t->unk ? "\xEF\xBF\xBD" : t->tokens[id];
    if (skip_special && @NAME@_is_special(t, id)) text = "";
    return (size_t)snprintf(buffer, room, "%s", text);
}

static nrl_status @NAME@_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    const @NAME@_tokenizer *t = self;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->n)
            return nrl_fail(NRL_ERR_DATA, "cannot decode id %d; expected 0 to %d", (int)ids[i], (int)t->n - 1);
        const char *text = ids[i] == t->unk ? "\xEF\xBF\xBD" : t->tokens[ids[i]];
        if (!skip_special || !@NAME@_is_special(t, ids[i])) nrl_text_add(out, text, strlen(text));
    }
    return NRL_OK;
}

static const char *@NAME@_token_text(void *self, int32_t id, size_t *size, uint32_t *flags)
{
    const @NAME@_tokenizer *t = self;
    if (id < 0 || id >= t->n) return NULL;
    *size = strlen(t->tokens[id]);
    *flags = @NAME@_is_special(t, id) ? NRL_TOKEN_SPECIAL | NRL_TOKEN_ADDED : 0;
    return t->tokens[id];
}

static const nrl_tokenizer @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_TOKENIZER, nrl_tokenizer, "@NAME@", "0.1", "one line for `nrl plugins`"),
    .probe = @NAME@_probe,
    .open = @NAME@_open,
    .close = @NAME@_close,
    .info = @NAME@_info,
    .encode = @NAME@_encode,
    .decode = @NAME@_decode,
    .decode_next = @NAME@_decode_next,
    .token_id = @NAME@_token_id,
    .token_text = @NAME@_token_text,
};
NRL_EXPORT(@NAME@)
