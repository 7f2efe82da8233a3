/*
 * tokenizer.h - text to token ids and back. A tokenizer plugin reads one or more file formats; the core
 * never looks into them: it asks each installed plugin (probe) which one reads a path, in name order,
 * unless the config names the plugin (`tokenizer: {name: ..., path: ...}`).
 *
 * Ownership: what info, token_text and close concern belongs to the instance and lives until close.
 * Threads: an open instance is read-only and used by many threads at once; what a thread changes while
 * it encodes lies in a scratch of its own.
 * Text: input is any bytes; a broken UTF-8 sequence is read as U+FFFD, as Python's errors="replace" does.
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
    NRL_TOKEN_MAX_ID = 1 << 22,   /* a plugin refuses files with ids at or above */
    NRL_ENCODE_MAX_TEXT = 1 << 26 /* bytes of one encode call; the core refuses longer text */
};

/* Flags of encode. */
enum {
    NRL_ENCODE_ADD_SPECIAL = 1,    /* what stands around every text: BOS, EOS, [CLS] */
    NRL_ENCODE_SPECIAL_AS_TEXT = 2 /* "</s>" in the text is four characters, not the token */
};

/* Flags of a token. */
enum {
    NRL_TOKEN_SPECIAL = 1, /* omitted by decode with skip_special */
    NRL_TOKEN_ADDED = 2    /* found in text as a whole, before the text is cut into words */
};

/* What is opened: a path, or bytes in memory where `bytes` is not NULL. */
typedef struct {
    uint32_t size;    /* of this struct */
    const char *path; /* a file or a folder; with bytes only their name in errors */
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
    int32_t bos, eos, pad;   /* NRL_TOKEN_NONE where there is none; eos is the one that training appends */
    bool adds_bos, adds_eos; /* by encode with NRL_ENCODE_ADD_SPECIAL */
    /* Words are written with their space in front ("_word" of SentencePiece) and encode puts none behind a
     * special token: a template writes that space itself. */
    bool space_after_special;
    bool space_before_text; /* encode puts a space in front of a text's first range, and of no other */
    const int32_t *eos_ids; /* [n_eos] all ids that end a generation, eos first */
    size_t n_eos;
    const char *hash;           /* hex digits over all bytes that were read: names token caches */
    const char *folder;         /* that the files lie in, for export; NULL = none */
    const char *chat_template;  /* text of the template that came with the files; NULL = none */
    const char *tools_template; /* the same, for conversations with tools; NULL = none */
    const nrl_named_token *named;
    uint32_t n_named, named_size; /* entries; bytes of an entry */
    size_t stream_room;           /* bytes that one decode_next may write, its NUL included */
    /* Names in `folder` that are copied along with an exported model, NULL-ended, beside those that the format of the
     * weights copies (nrl/format.h); NULL = none. */
    const char *const *files;
} nrl_tokenizer_info;

/* State of a decoding token by token; zero before the first. The plugin defines what is in it. */
typedef struct {
    uint64_t state[4];
} nrl_decode_stream;

/* What a vocabulary is trained to. */
typedef struct {
    uint32_t size;              /* of this struct */
    int64_t vocab_size;         /* special tokens included */
    const char *const *special; /* [n_special] get the first ids, in this order */
    size_t n_special;
    int64_t min_frequency; /* a pair or word seen less often makes no token; 0 = the plugin's default */
    const char *pattern;   /* how text is cut into words, a word of the plugin's; NULL = its default */
    bool overwrite;        /* a tokenizer that the folder holds already is replaced */
    /* Asked before a file is written; a failure is passed on. NULL = every file may be. */
    nrl_status (*may_write)(void *user, const char *path);
    void *user;
} nrl_train_tokenizer;

typedef struct {
    nrl_plugin plugin;
    /* [main] how surely (NRL_PROBE_*) this plugin reads source->path (never bytes). Cheap: names, and at most the first
     * bytes. */
    int32_t (*probe)(const nrl_tokenizer_source *source);
    /* [main] NRL_ERR_IO: absent or unreadable; NRL_ERR_DATA: malformed, or a part that this version does not
     * know, named. */
    nrl_status (*open)(const void *options, const nrl_tokenizer_source *source, void **self);
    void (*close)(void *self);                         /* [main] */
    void (*info)(void *self, nrl_tokenizer_info *out); /* [any] */
    /* [any] both optional, present together: a thread's buffers; without them encode gets NULL */
    void *(*scratch_create)(void *self);
    void (*scratch_destroy)(void *scratch);
    /* [any] optional: characters that had no token and vanished, since the scratch was created */
    size_t (*scratch_dropped)(const void *scratch);
    /* [any] appends the ids of text[0..size) to out. Offsets: of tokens that encode adds 0 or size. Equal text and
     * flags give equal ids, whatever was encoded before. */
    nrl_status (*encode)(void *self, void *scratch, const char *text, size_t size, uint32_t flags, nrl_token_ids *out);
    /* [any] appends the text of ids; an id outside the vocabulary is NRL_ERR_DATA */
    nrl_status (*decode)(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out);
    /* [any] writes the text that became certain with this id, NUL-ended, and returns its bytes, fewer than
     * room. An id outside the vocabulary gives U+FFFD; NRL_TOKEN_NONE flushes. */
    size_t (*decode_next)(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                          size_t room);
    /* [any] id of the token with this text, as its file writes it; NRL_TOKEN_NONE */
    int32_t (*token_id)(void *self, const char *text, size_t size);
    /* [any] text of a token, NUL-ended, and its flags; NULL where the id has none */
    const char *(*token_text)(void *self, int32_t id, size_t *size, uint32_t *flags);
    /* [main] optional: the files of info.folder that change when a model travels with another chat template,
     * whose text in Jinja is given; text NULL: the file is omitted. Stops at the first failure of `file`. */
    nrl_status (*export_template)(void *self, const char *jinja,
                                  nrl_status (*file)(void *user, const char *name, const char *text), void *user);

    /* ---- training a vocabulary; all four or none ---- */

    /* [main] NRL_ERR_CONFIG: a size or a word that cannot be. `what` and its texts outlive the trainer. */
    nrl_status (*train_begin)(const void *options, const nrl_train_tokenizer *what, void **trainer);
    nrl_status (*train_add)(void *trainer, const char *text, size_t size); /* [main] counts one text */
    /* [main] learns, and writes files that `open` reads into the folder, made where absent. *n_tokens is what was
     * reached. Equal texts in any order give equal files. */
    nrl_status (*train_save)(void *trainer, const char *folder, int64_t *n_tokens);
    void (*train_end)(void *trainer); /* [main] also after a failure */
} nrl_tokenizer;

/* An open tokenizer, as a template is given it. */
typedef struct {
    uint32_t size; /* of this struct */
    const nrl_tokenizer *table;
    void *self;
    const nrl_tokenizer_info *info;
} nrl_open_tokenizer;

#ifdef __cplusplus
}
#endif
#endif
