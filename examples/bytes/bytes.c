/*
 * bytes.c - a tokenizer whose tokens are the 256 bytes, and special tokens that a file lists. The
 * file is `tokenizer.bytes`, or any name that ends with .bytes: a first line "bytes 1", then a line
 * "ROLE TEXT" for each special token, where ROLE is bos, eos, pad or -. The first special token has
 * the id 256.
 *
 * Begin with the table at the end of this file. nrl/tokenizer.h describes the arguments and the
 * contract of each member.
 */
#include <errno.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, MAX_SPECIAL = 64, MAX_TEXT = 64, MAX_FILE = 8192, PATH_SIZE = 4096 };

typedef struct {
    char text[MAX_TEXT];
    size_t size;
    char role[8];
} bytes_special;

typedef struct {
    char path[PATH_SIZE], folder[PATH_SIZE], hash[17];
    int32_t n_special, bos, eos, pad;
    bytes_special special[MAX_SPECIAL];
    nrl_named_token named[3];
    uint32_t n_named;
    char single[N_BYTES][2]; /* the text of each byte's token */
} bytes;

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ---- UTF-8 ---- */

typedef enum { CHARACTER_WHOLE, CHARACTER_BROKEN, CHARACTER_UNFINISHED } bytes_character;

/* Classifies the start of text[0..n): a character, bytes that do not begin a character, or an
 * incomplete character; *size is its number of bytes. */
static bytes_character bytes_next(const unsigned char *text, size_t n, size_t *size)
{
    unsigned char c = text[0];
    size_t more = c < 0x80 ? 0 : c < 0xC2 ? 4 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : c < 0xF5 ? 3 : 4;
    unsigned char least = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    unsigned char most = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    *size = 1;
    if (more == 4) return CHARACTER_BROKEN;
    for (; *size <= more; ++*size) {
        if (*size == n) return CHARACTER_UNFINISHED;
        if (text[*size] < least || text[*size] > most) return CHARACTER_BROKEN;
        least = 0x80;
        most = 0xBF;
    }
    return CHARACTER_WHOLE;
}

/* ---- opening ---- */

static int32_t bytes_probe(const nrl_tokenizer_source *source)
{
    char path[PATH_SIZE];
    size_t n = strlen(source->path);
    FILE *f = n > 6 && !strcmp(source->path + n - 6, ".bytes") ? fopen(source->path, "rb") : NULL;
    if (!f && snprintf(path, sizeof path, "%s/tokenizer.bytes", source->path) < (int)sizeof path) f = fopen(path, "rb");
    if (!f) return NRL_PROBE_NO;
    fclose(f);
    return NRL_PROBE_YES + 1; /* also if the directory contains files of another tokenizer */
}

static nrl_status bytes_add_special(bytes *b, int number, const char *role, const char *text, size_t size)
{
    if (!size || size >= MAX_TEXT || b->n_special == MAX_SPECIAL)
        return nrl_fail(NRL_ERR_DATA, "%s:%d: expected a token of 1 to %d bytes, and at most %d tokens", b->path,
                        number, MAX_TEXT - 1, MAX_SPECIAL);
    size_t character;
    for (size_t i = 0; i < size; i += character)
        if (bytes_next((const unsigned char *)text + i, size - i, &character) != CHARACTER_WHOLE)
            return nrl_fail(NRL_ERR_DATA, "%s:%d: the token is not valid UTF-8", b->path, number);
    for (int32_t i = 0; i < b->n_special; i++)
        if (b->special[i].size == size && !memcmp(b->special[i].text, text, size))
            return nrl_fail(NRL_ERR_DATA, "%s:%d: the token '%s' is listed twice", b->path, number, b->special[i].text);
    if (size == 1)
        return nrl_fail(NRL_ERR_DATA, "%s:%d: the token '%.1s' is a byte; expected a longer one", b->path, number,
                        text);
    bytes_special *s = &b->special[b->n_special];
    memcpy(s->text, text, size);
    s->size = size;
    snprintf(s->role, sizeof s->role, "%s", role);
    int32_t id = N_BYTES + b->n_special++, *of_role = !strcmp(role, "bos")   ? &b->bos
                                                      : !strcmp(role, "eos") ? &b->eos
                                                      : !strcmp(role, "pad") ? &b->pad
                                                                             : NULL;
    if (!of_role) return NRL_OK;
    if (*of_role != NRL_TOKEN_NONE) return nrl_fail(NRL_ERR_DATA, "%s:%d: a second %s token", b->path, number, role);
    *of_role = id;
    b->named[b->n_named++] = (nrl_named_token){.name = *role == 'b'   ? "bos_token"
                                                       : *role == 'e' ? "eos_token"
                                                                      : "pad_token",
                                               .text = s->text};
    return NRL_OK;
}

static nrl_status bytes_parse(bytes *b, const char *text, size_t size)
{
    static const char first[] = "bytes 1\n";
    static const char *const roles[] = {"bos ", "eos ", "pad ", "- "};
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    snprintf(b->hash, sizeof b->hash, "%016llx", (unsigned long long)hash);
    if (size < strlen(first) || memcmp(text, first, strlen(first)))
        return nrl_fail(NRL_ERR_DATA, "%s:1: expected the line 'bytes 1'", b->path);
    const char *line = text + strlen(first), *end = text + size;
    for (int number = 2; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) return nrl_fail(NRL_ERR_DATA, "%s:%d: the last line has no end", b->path, number);
        size_t length = (size_t)(stop - line), k = 0;
        while (k < 4 && (length < strlen(roles[k]) || memcmp(line, roles[k], strlen(roles[k]))))
            k++;
        if (k == 4 || memchr(line, 0, length))
            return nrl_fail(NRL_ERR_DATA, "%s:%d: expected 'ROLE TEXT', where ROLE is bos, eos, pad or -", b->path,
                            number);
        char role[4] = "-";
        if (k < 3) memcpy(role, roles[k], 3);
        size_t skipped = strlen(roles[k]);
        NRL_TRY(bytes_add_special(b, number, role, line + skipped, length - skipped));
        line = stop + 1;
    }
    return NRL_OK;
}

/* Reads the file, at most MAX_FILE bytes, and finds its directory. */
static nrl_status bytes_read(bytes *b, const char *path, char text[MAX_FILE], size_t *size)
{
    size_t n = strlen(path);
    bool is_file = n > 6 && !strcmp(path + n - 6, ".bytes");
    const char *slash = strrchr(path, '/');
    int wanted = snprintf(b->path, sizeof b->path, is_file ? "%s" : "%s/tokenizer.bytes", path);
    if (wanted >= (int)sizeof b->path) return nrl_fail(NRL_ERR_IO, "the path '%s' is too long", path);
    if (is_file)
        snprintf(b->folder, sizeof b->folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    else
        snprintf(b->folder, sizeof b->folder, "%s", path);
    FILE *f = fopen(b->path, "rb");
    if (!f) return nrl_fail(NRL_ERR_IO, "cannot open %s: %s", b->path, strerror(errno));
    *size = fread(text, 1, MAX_FILE, f);
    bool read = !ferror(f) && *size < MAX_FILE;
    fclose(f);
    return read ? NRL_OK : nrl_fail(NRL_ERR_DATA, "cannot read %s: it has %d bytes or more", b->path, MAX_FILE);
}

static void bytes_close(void *self)
{
    free(self);
}

static nrl_status bytes_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    (void)options;
    char text[MAX_FILE];
    size_t size = 0;
    bytes *b = calloc(1, sizeof *b);
    if (!b) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a tokenizer");
    b->bos = b->eos = b->pad = NRL_TOKEN_NONE;
    for (int i = 0; i < N_BYTES; i++)
        b->single[i][0] = (char)i;
    snprintf(b->path, sizeof b->path, "%s", source->path);
    nrl_status st = source->bytes ? NRL_OK : bytes_read(b, source->path, text, &size);
    if (st == NRL_OK) st = source->bytes ? bytes_parse(b, source->bytes, source->n_bytes) : bytes_parse(b, text, size);
    if (st == NRL_OK)
        *self = b;
    else
        free(b);
    return st;
}

static const char *const bytes_files[] = {"tokenizer.bytes", NULL};

static void bytes_info(void *self, nrl_tokenizer_info *out)
{
    bytes *b = self;
    size_t longest = 0;
    for (int32_t i = 0; i < b->n_special; i++)
        if (b->special[i].size > longest) longest = b->special[i].size;
    out->vocab_size = N_BYTES + b->n_special;
    out->bos = b->bos;
    out->eos = b->eos;
    out->pad = b->pad;
    out->adds_bos = b->bos != NRL_TOKEN_NONE;
    out->eos_ids = &b->eos;
    out->n_eos = b->eos != NRL_TOKEN_NONE;
    out->hash = b->hash;
    out->folder = *b->folder ? b->folder : NULL;
    out->named = b->named;
    out->n_named = b->n_named;
    out->named_size = sizeof *b->named;
    out->files = bytes_files;
    out->stream_room = longest + sizeof replacement + 1;
}

/* ---- encoding ---- */

/* The longest special token at the start of text[0..n); -1 = none. */
static int32_t bytes_find_special(const bytes *b, const char *text, size_t n)
{
    int32_t found = -1;
    for (int32_t i = 0; i < b->n_special; i++) {
        const bytes_special *s = &b->special[i];
        bool here = s->size <= n && !memcmp(s->text, text, s->size);
        if (here && (found < 0 || s->size > b->special[found].size)) found = i;
    }
    return found;
}

static nrl_status bytes_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                               nrl_token_ids *out)
{
    (void)scratch;
    const bytes *b = self;
    bool around = flags & NRL_ENCODE_ADD_SPECIAL;
    if (around && b->bos != NRL_TOKEN_NONE) nrl_token_ids_push(out, b->bos, 0);
    for (size_t i = 0, n; i < size; i += n) {
        int32_t special = flags & NRL_ENCODE_SPECIAL_AS_TEXT ? -1 : bytes_find_special(b, text + i, size - i);
        if (special >= 0) {
            nrl_token_ids_push(out, N_BYTES + special, i);
            n = b->special[special].size;
            continue;
        }
        bool whole = bytes_next((const unsigned char *)text + i, size - i, &n) == CHARACTER_WHOLE;
        const char *character = whole ? text + i : replacement;
        for (size_t k = 0; k < (whole ? n : strlen(replacement)); k++)
            nrl_token_ids_push(out, (unsigned char)character[k], whole ? i + k : i);
    }
    return NRL_OK;
}

/* ---- decoding ---- */

/* stream->state[0] is the number of bytes of an unfinished character, state[1] holds them. */
static size_t bytes_decode_next(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                                size_t room)
{
    const bytes *b = self;
    unsigned char pending[5];
    size_t n = stream->state[0], written = 0, size;
    (void)room;
    memcpy(pending, &stream->state[1], 4);
    bool is_byte = id >= 0 && id < N_BYTES;
    if (is_byte) pending[n++] = (unsigned char)id;
    while (n) {
        bytes_character found = bytes_next(pending, n, &size);
        if (found == CHARACTER_UNFINISHED && is_byte) break;
        const char *text = found == CHARACTER_WHOLE ? (const char *)pending : replacement;
        size_t length = found == CHARACTER_WHOLE ? size : strlen(replacement);
        memcpy(buffer + written, text, length);
        written += length;
        n -= size;
        memmove(pending, pending + size, n);
    }
    stream->state[0] = n;
    memcpy(&stream->state[1], pending, 4);
    const char *special = NULL;
    if (id >= N_BYTES && id < N_BYTES + b->n_special)
        special = skip_special ? "" : b->special[id - N_BYTES].text;
    else if (!is_byte && id != NRL_TOKEN_NONE)
        special = replacement;
    if (special) written += (size_t)sprintf(buffer + written, "%s", special);
    buffer[written] = 0;
    return written;
}

static nrl_status bytes_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    const bytes *b = self;
    char buffer[MAX_TEXT + 16];
    nrl_decode_stream stream = {{0}};
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= N_BYTES + b->n_special)
            return nrl_fail(NRL_ERR_DATA, "cannot decode id %d; expected 0 to %d", (int)ids[i],
                            N_BYTES + (int)b->n_special - 1);
    for (size_t i = 0; i <= n; i++) {
        int32_t id = i < n ? ids[i] : NRL_TOKEN_NONE;
        size_t size = bytes_decode_next(self, &stream, id, skip_special, buffer, sizeof buffer);
        if (size) nrl_text_add(out, buffer, size);
    }
    return NRL_OK;
}

static int32_t bytes_token_id(void *self, const char *text, size_t size)
{
    const bytes *b = self;
    if (size == 1) return (unsigned char)*text;
    for (int32_t i = 0; i < b->n_special; i++)
        if (b->special[i].size == size && !memcmp(b->special[i].text, text, size)) return N_BYTES + i;
    return NRL_TOKEN_NONE;
}

static const char *bytes_token_text(void *self, int32_t id, size_t *size, uint32_t *flags)
{
    const bytes *b = self;
    if (id < 0 || id >= N_BYTES + b->n_special) return NULL;
    const bytes_special *s = id < N_BYTES ? NULL : &b->special[id - N_BYTES];
    *size = s ? s->size : 1;
    *flags = s ? NRL_TOKEN_SPECIAL | NRL_TOKEN_ADDED : 0;
    return s ? s->text : b->single[id];
}

static const nrl_tokenizer bytes_tokenizer = {
    NRL_PLUGIN_PLAIN(NRL_KIND_TOKENIZER, nrl_tokenizer, "bytes", "0.1", "256 bytes and the special tokens of a file"),
    .probe = bytes_probe,
    .open = bytes_open,
    .close = bytes_close,
    .info = bytes_info,
    .encode = bytes_encode,
    .decode = bytes_decode,
    .decode_next = bytes_decode_next,
    .token_id = bytes_token_id,
    .token_text = bytes_token_text,
};
NRL_EXPORT(bytes_tokenizer)
