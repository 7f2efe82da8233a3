/*
 * tokenizers.h - tokenizers that break one rule each, with the rule that must detect it. All are
 * the example tokenizer bytes with one member replaced.
 */
#ifndef WRONG_TOKENIZERS_H
#define WRONG_TOKENIZERS_H
#include <nrl/nrl.h>
#undef NRL_EXPORT /* plugin.c exports a row instead */
#define NRL_EXPORT(t)                                                                                                  \
    __attribute__((unused)) static const void *bytes_table(void)                                                       \
    {                                                                                                                  \
        return &(t);                                                                                                   \
    }
#include "../../../examples/bytes/bytes.c"
#include <fcntl.h>
#include <sched.h>

static int32_t greedy_probe(const nrl_tokenizer_source *source)
{
    (void)source;
    return NRL_PROBE_YES;
}

static int32_t blind_probe(const nrl_tokenizer_source *source)
{
    (void)source;
    return NRL_PROBE_NO;
}

/* ---- opening ---- */

static nrl_status mute_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    nrl_status st = bytes_open(options, source, self);
    return st == NRL_OK ? st : nrl_fail(st, "it is no tokenizer");
}

static nrl_status silent_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    nrl_status st = bytes_open(options, source, self);
    bool own = strstr(source->path, "copy");
    return st == NRL_OK || !own ? st : nrl_fail(st, "%s", "");
}

static nrl_status holding_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    NRL_TRY(bytes_open(options, source, self));
    return open("/dev/null", O_RDONLY) < 0 ? NRL_ERR_IO : NRL_OK;
}

static void leaking_close(void *self)
{
    (void)self;
}

static int wrong_closed;

static void sharing_close(void *self)
{
    wrong_closed++;
    bytes_close(self);
}

static nrl_status sharing_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                 nrl_token_ids *out)
{
    NRL_TRY(bytes_encode(self, scratch, text, size, flags, out));
    if (wrong_closed && out->n) out->ids[out->n - 1] = wrong_closed % 100;
    return NRL_OK;
}

/* ---- what it says about itself ---- */

static void small_info(void *self, nrl_tokenizer_info *out)
{
    bytes_info(self, out);
    out->vocab_size = 40;
}

static void ending_info(void *self, nrl_tokenizer_info *out)
{
    static const int32_t other[] = {1};
    bytes_info(self, out);
    out->eos_ids = other;
}

static void named_info(void *self, nrl_tokenizer_info *out)
{
    static const nrl_named_token named[] = {{"bos_token", "<beginning>"}};
    bytes_info(self, out);
    out->named = named;
    out->n_named = 1;
}

static void constant_info(void *self, nrl_tokenizer_info *out)
{
    bytes_info(self, out);
    out->hash = "0123456789abcdef";
}

static void worded_info(void *self, nrl_tokenizer_info *out)
{
    bytes_info(self, out);
    out->hash = "the second version";
}

static void located_info(void *self, nrl_tokenizer_info *out)
{
    bytes *b = self;
    bytes_info(self, out);
    snprintf(b->hash, sizeof b->hash, "%016llx", strstr(b->folder, "copy1") ? 1ull : 2ull);
}

static void narrow_info(void *self, nrl_tokenizer_info *out)
{
    bytes_info(self, out);
    out->stream_room = 3;
}

static int32_t forgetful_id(void *self, const char *text, size_t size)
{
    int32_t id = bytes_token_id(self, text, size);
    return id < 200 ? id : NRL_TOKEN_NONE;
}

static const char *endless_text(void *self, int32_t id, size_t *size, uint32_t *flags)
{
    bytes *b = self;
    *flags = 0;
    *size = 1;
    return id >= N_BYTES + b->n_special ? "?" : bytes_token_text(self, id, size, flags);
}

/* ---- encoding ---- */

static nrl_status failing_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                 nrl_token_ids *out)
{
    if (size && memchr(text, 0, size)) return nrl_fail(NRL_ERR_DATA, "the text holds a NUL");
    return bytes_encode(self, scratch, text, size, flags, out);
}

static nrl_status falling_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                 nrl_token_ids *out)
{
    NRL_TRY(bytes_encode(self, scratch, text, size, flags, out));
    for (size_t i = 0; out->starts && i < out->n; i++)
        out->starts[i] = size - out->starts[i];
    return NRL_OK;
}

static nrl_status replacing_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                   nrl_token_ids *out)
{
    out->n = 0;
    return bytes_encode(self, scratch, text, size, flags, out);
}

static nrl_status moody_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                               nrl_token_ids *out)
{
    static int n;
    NRL_TRY(bytes_encode(self, scratch, text, size, flags, out));
    if (out->n) out->ids[out->n - 1] = ++n % 100;
    return NRL_OK;
}

static nrl_status pushy_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                               nrl_token_ids *out)
{
    return bytes_encode(self, scratch, text, size, flags | NRL_ENCODE_ADD_SPECIAL, out);
}

static nrl_status bare_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                              nrl_token_ids *out)
{
    return bytes_encode(self, scratch, text, size, flags & ~(uint32_t)NRL_ENCODE_ADD_SPECIAL, out);
}

static nrl_status finding_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                 nrl_token_ids *out)
{
    return bytes_encode(self, scratch, text, size, flags & ~(uint32_t)NRL_ENCODE_SPECIAL_AS_TEXT, out);
}

static nrl_status deaf_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                              nrl_token_ids *out)
{
    return bytes_encode(self, scratch, text, size, flags | NRL_ENCODE_SPECIAL_AS_TEXT, out);
}

static nrl_status raw_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                             nrl_token_ids *out)
{
    size_t n;
    for (size_t i = 0; i < size; i += n)
        if (bytes_next((const unsigned char *)text + i, size - i, &n) != CHARACTER_WHOLE) {
            for (size_t k = 0; k < size; k++)
                nrl_token_ids_push(out, (unsigned char)text[k], k);
            return NRL_OK;
        }
    return bytes_encode(self, scratch, text, size, flags, out);
}

/* One thread's text ends another's: the buffer of both is the same. */
static nrl_status racing_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                                nrl_token_ids *out)
{
    static int inside;
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    nrl_status st = bytes_encode(self, scratch, text, size, flags, out);
    for (int i = 0; i < 4; i++)
        sched_yield();
    if (__atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST) > 1) nrl_token_ids_push(out, 0, size);
    return st;
}

/* ---- decoding ---- */

static nrl_status growing_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    if (n) nrl_text_add(out, " ", 1);
    return bytes_decode(self, ids, n, skip_special, out);
}

static nrl_status raw_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < N_BYTES)
            nrl_text_add(out, &(char){(char)ids[i]}, 1);
        else
            NRL_TRY(bytes_decode(self, &ids[i], 1, skip_special, out));
    return NRL_OK;
}

static nrl_status tolerant_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    nrl_status st = bytes_decode(self, ids, n, skip_special, out);
    if (st != NRL_OK) nrl_text_add(out, "?", 1);
    return NRL_OK;
}

static nrl_status showing_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    (void)skip_special;
    return bytes_decode(self, ids, n, false, out);
}

static size_t hasty_next(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                         size_t room)
{
    size_t n = bytes_decode_next(self, stream, id, skip_special, buffer, room);
    memset(stream, 0, sizeof *stream); /* forgets the unfinished character */
    return n;
}

/* ---- training ---- */

static nrl_status half_begin(const void *options, const nrl_train_tokenizer *what, void **trainer)
{
    (void)options, (void)what, (void)trainer;
    return NRL_OK;
}

#pragma GCC diagnostic ignored "-Woverride-init"
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_TOKENIZER, nrl_tokenizer, #nm, "0", rule),                                           \
            .probe = bytes_probe, .open = bytes_open, .close = bytes_close, .info = bytes_info,                        \
            .encode = bytes_encode, .decode = bytes_decode, .decode_next = bytes_decode_next,                          \
            .token_id = bytes_token_id, .token_text = bytes_token_text, __VA_ARGS__                                    \
    }
static const nrl_tokenizer wrong[] = {
    WRONG(right, "nothing is wrong with it", .train_end = NULL),
    WRONG(greedy, "a probe leaves other files alone", .probe = greedy_probe),
    WRONG(blind, "a probe knows its own files", .probe = blind_probe),
    WRONG(mute, "a foreign file is refused by its name", .open = mute_open),
    WRONG(silent, "a damaged file gives an error text", .open = silent_open),
    WRONG(holding, "nothing stays open", .open = holding_open),
    WRONG(leaking, "close gives the memory back", .close = leaking_close),
    WRONG(sharing, "instances live side by side", .close = sharing_close, .encode = sharing_encode),
    WRONG(small, "ids lie in the vocabulary", .info = small_info),
    WRONG(ending, "info fits the vocabulary", .info = ending_info),
    WRONG(named, "named tokens are tokens", .info = named_info),
    WRONG(constant, "a changed file changes the hash", .info = constant_info),
    WRONG(worded, "a hash is hex digits", .info = worded_info),
    WRONG(located, "equal files have equal hashes", .info = located_info),
    WRONG(narrow, "decode_next writes at most stream_room bytes", .info = narrow_info),
    WRONG(forgetful, "a token's text finds the token", .token_id = forgetful_id),
    WRONG(endless, "ids outside the vocabulary have no text", .token_text = endless_text),
    WRONG(failing, "any text is encoded", .encode = failing_encode),
    WRONG(falling, "starts rise inside the text", .encode = falling_encode),
    WRONG(replacing, "encode appends", .encode = replacing_encode),
    WRONG(moody, "equal text gives equal ids", .encode = moody_encode),
    WRONG(pushy, "BOS and EOS are added only with the flag", .encode = pushy_encode),
    WRONG(bare, "the flag adds what info says", .encode = bare_encode),
    WRONG(finding, "a special token is text when asked", .encode = finding_encode),
    WRONG(deaf, "a special token is found in text", .encode = deaf_encode),
    WRONG(raw, "broken UTF-8 is read as U+FFFD", .encode = raw_encode),
    WRONG(racing, "several threads give the same ids", .encode = racing_encode),
    WRONG(growing, "text that was decoded comes back", .decode = growing_decode),
    WRONG(invalid, "decoded text is valid UTF-8", .decode = raw_decode),
    WRONG(tolerant, "an id outside the vocabulary is refused", .decode = tolerant_decode),
    WRONG(showing, "a special token is skipped when asked", .decode = showing_decode),
    WRONG(hasty, "decoding token by token gives the same text", .decode_next = hasty_next),
    WRONG(half, "a trainer has all its members", .train_begin = half_begin),
    WRONG(lacks_encode, "encode is NULL", .encode = NULL),
};
#undef WRONG

#endif
