/*
 * tokenizer.h - text to token ids and back. A tokenizer plugin reads one or more file formats, which the core does not
 * know: the core probes the installed plugins in name order to find the one that reads a path, unless the config names
 * the plugin (`tokenizer: {name: ..., path: ...}`).
 *
 * Ownership: results of info and token_text belong to the instance and live until close.
 * Threads: an open instance is read-only and used by many threads at once; data that encode modifies is in a scratch
 * object of each thread.
 * Text: input is any bytes; an invalid UTF-8 sequence is read as U+FFFD, as Python's errors="replace" does.
 * Decoded text is always valid UTF-8.
 */
#ifndef NRL_TOKENIZER_H
#define NRL_TOKENIZER_H
#include <nrl/plugin.h>
#include <nrl/text.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    NRL_TOKEN_MAX_ID = 1 << 22,   /* plugins reject files with ids of at least this */
    NRL_ENCODE_MAX_TEXT = 1 << 26 /* largest text of an encode call in bytes; the core rejects longer text */
};

/* Flags of encode. */
enum {
    NRL_ENCODE_ADD_SPECIAL = 1,    /* add the tokens at the start and end of every text: BOS, EOS, [CLS] */
    NRL_ENCODE_SPECIAL_AS_TEXT = 2 /* "</s>" in the text is four characters, not the token */
};

/* Flags of a token. */
enum {
    NRL_TOKEN_SPECIAL = 1, /* omitted by decode with skip_special */
    NRL_TOKEN_ADDED = 2    /* matched in the text before the text is split into words */
};

/* The source of a tokenizer: a path, or, if `bytes` is not NULL, bytes in memory. */
typedef struct {
    uint32_t size;    /* of this struct */
    const char *path; /* a file or a directory; with bytes, only their name in errors */
    const char *bytes;
    size_t n_bytes;
} nrl_tokenizer_source;

/* The text of a special token by the name that chat templates use: "bos_token", "eos_token", ... */
typedef struct {
    const char *name;
    const char *text;
} nrl_named_token;

typedef struct {
    uint32_t size;           /* of this struct, set by the caller */
    int32_t vocab_size;      /* largest id + 1, special tokens included */
    int32_t bos, eos, pad;   /* NRL_TOKEN_NONE = none; eos is the token that training appends */
    bool adds_bos, adds_eos; /* whether encode with NRL_ENCODE_ADD_SPECIAL adds them */
    /* Tokens include the space before a word ("_word" of SentencePiece), and encode adds no space after a special
     * token: a template must write that space itself. */
    bool space_after_special;
    bool space_before_text; /* encode adds a space before the first range of a text, and before no other */
    const int32_t *eos_ids; /* [n_eos] all ids that end a generation, eos first */
    size_t n_eos;
    const char *hash;           /* hex digits, a hash of all files: identifies token caches */
    const char *folder;         /* directory of the files, for export; NULL = none */
    const char *chat_template;  /* text of the template that came with the files; NULL = none */
    const char *tools_template; /* the same, for conversations with tools; NULL = none */
    const nrl_named_token *named;
    uint32_t n_named, named_size; /* entries; bytes of an entry */
    size_t stream_room;           /* bytes that one decode_next may write, including its NUL */
    /* Names in `folder` that are copied along with an exported model, NULL-ended, beside those that the format of the
     * weights copies (nrl/format.h); NULL = none. */
    const char *const *files;
} nrl_tokenizer_info;

/* State of decoding token by token; zero before the first token. The plugin defines its contents. */
typedef struct {
    uint64_t state[4];
} nrl_decode_stream;

/* Options for training a vocabulary. */
typedef struct {
    uint32_t size;              /* of this struct */
    int64_t vocab_size;         /* including special tokens */
    const char *const *special; /* [n_special] get the first ids, in this order */
    size_t n_special;
    int64_t min_frequency; /* a less frequent pair or word does not become a token; 0 = the plugin's default */
    const char *pattern;   /* how text is split into words, a name that the plugin defines; NULL = its default */
    bool overwrite;        /* replace a tokenizer that the directory already has */
    /* Called before a file is written; an error is returned. NULL = every file may be written. */
    nrl_status (*may_write)(void *user, const char *path);
    void *user;
} nrl_train_tokenizer;

typedef struct {
    nrl_plugin plugin;
    /* [main] how likely (NRL_PROBE_*) this plugin can read source->path (never bytes). Must be cheap: checks names, and
     * at most the first bytes. */
    int32_t (*probe)(const nrl_tokenizer_source *source);
    /* [main] NRL_ERR_IO: missing or unreadable; NRL_ERR_DATA: malformed, or has a feature, named in the error, that
     * this version does not support. */
    nrl_status (*open)(const void *options, const nrl_tokenizer_source *source, void **self);
    void (*close)(void *self);                         /* [main] */
    void (*info)(void *self, nrl_tokenizer_info *out); /* [any] */
    /* [any] optional, both or none: buffers of a thread; without them encode receives NULL */
    void *(*scratch_create)(void *self);
    void (*scratch_destroy)(void *scratch);
    /* [any] optional: number of characters without a token that encode has dropped since the scratch was created */
    size_t (*scratch_dropped)(const void *scratch);
    /* [any] appends the ids of text[0..size) to out. The offset of an added special token is 0 or size. Equal text and
     * flags always give equal ids. */
    nrl_status (*encode)(void *self, void *scratch, const char *text, size_t size, uint32_t flags, nrl_token_ids *out);
    /* [any] appends the text of ids; an id outside the vocabulary is NRL_ERR_DATA */
    nrl_status (*decode)(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out);
    /* [any] writes the text that is complete with this id, NUL-terminated, and returns its size, less than room. An id
     * outside the vocabulary gives U+FFFD; NRL_TOKEN_NONE flushes. */
    size_t (*decode_next)(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                          size_t room);
    /* [any] id of the token with this text, as written in its file; NRL_TOKEN_NONE = no such token */
    int32_t (*token_id)(void *self, const char *text, size_t size);
    /* [any] text of a token, NUL-terminated, and its flags; NULL if the id has no token */
    const char *(*token_text)(void *self, int32_t id, size_t *size, uint32_t *flags);
    /* [main] optional: calls `file` for each file of info.folder that changes if a model is exported with the chat
     * template `jinja`, with the new text (NULL: the file is omitted). Stops at the first error of `file`. A plugin
     * with the option `add_tokens` (a list of texts or {token, special}), which model.add_tokens sets, writes the new
     * tokens too; jinja is NULL then if the template does not change. */
    nrl_status (*export_template)(void *self, const char *jinja,
                                  nrl_status (*file)(void *user, const char *name, const char *text), void *user);

    /* ---- training a vocabulary; all four or none ---- */

    /* [main] NRL_ERR_CONFIG: an invalid size or name. `what` and its texts must outlive the trainer. */
    nrl_status (*train_begin)(const void *options, const nrl_train_tokenizer *what, void **trainer);
    nrl_status (*train_add)(void *trainer, const char *text, size_t size); /* [main] counts one text */
    /* [main] trains the vocabulary and writes files for `open` to the directory, which is created if missing. *n_tokens
     * is the size of the vocabulary. Equal texts in any order give equal files. */
    nrl_status (*train_save)(void *trainer, const char *folder, int64_t *n_tokens);
    void (*train_end)(void *trainer); /* [main] also after a failure */
} nrl_tokenizer;

/* An open tokenizer, for a template. */
typedef struct nrl_open_tokenizer {
    uint32_t size; /* of this struct */
    const nrl_tokenizer *table;
    void *self;
    const nrl_tokenizer_info *info;
} nrl_open_tokenizer;

/* Appends the ids of text[0..size) to `out`; flags as above. `scratch` is a result of table->scratch_create that only
 * this thread uses; NULL = a new one for this call. NRL_ERR_DATA: the text is longer than NRL_ENCODE_MAX_TEXT. [any] */
NRL_API nrl_status nrl_tokenizer_encode(const nrl_open_tokenizer *t, void *scratch, const char *text, size_t size,
                                        uint32_t flags, nrl_token_ids *out);
/* Decodes ids to valid UTF-8, NUL-terminated and allocated; *size is its size without the NUL (`size` may be NULL).
 * NRL_ERR_DATA: an id outside the vocabulary. [any] */
NRL_API nrl_status nrl_tokenizer_decode(const nrl_open_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                                        char **text, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
