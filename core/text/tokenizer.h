/*
 * tokenizer.h - text to token ids and back.
 * Called by core/data, core/run (sampling), core/script and the `tokenizer` verb. Reads
 * tokenizer.json (BPE), SentencePiece BPE `.model`, tiktoken rank files and a vocab.json +
 * merges.txt pair; ids are equal to those of the Hugging Face tokenizers library on the same files.
 * Conversations are chat.h's.
 *
 * Ownership: an open tokenizer is read-only and may be used by many threads at once; each thread
 * brings its own tokenizer_scratch, which holds buffers and a bounded cache of words.
 * Invalid UTF-8 in the input: each maximal broken sequence becomes U+FFFD, as Python's
 * errors="replace" does. NUL bytes are ordinary characters.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include <nrl/status.h>
#include <stdbool.h>

typedef struct tokenizer tokenizer;
typedef struct tokenizer_scratch tokenizer_scratch;

enum {
    TOKENIZER_NONE = -1,         /* "there is no such token" wherever an id is returned */
    TOKENIZER_MAX_ID = 1 << 22,  /* ids at or above are refused when a file is opened */
    TOKENIZER_MAX_TEXT = 1 << 26 /* bytes of one encode call; longer text is NRL_ERR_DATA */
};

/* Flags of tokenizer_encode. */
enum {
    TOKENIZER_ADD_SPECIAL = 1,    /* what the post-processor adds: BOS, EOS, [CLS] */
    TOKENIZER_SPECIAL_AS_TEXT = 2 /* "</s>" in the text is five characters, not the token */
};

/* A growing list of token ids. Zero-initialise; set want_starts before the first encode to get the
 * byte offset in the text where each token begins (tokens that encode adds: 0 or the text's size;
 * inside a stretch that Unicode normalization changed: the stretch's start). */
typedef struct {
    int32_t *ids;   /* [n] */
    size_t *starts; /* [n], NULL unless want_starts */
    size_t n, room;
    bool want_starts;
} tokenizer_ids;

void tokenizer_ids_push(tokenizer_ids *list, int32_t id, size_t start);
void tokenizer_ids_free(tokenizer_ids *list);

/* Opens a directory (tokenizer.json, else tokenizer.model, else vocab.json + merges.txt, with
 * tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json and
 * config.json beside it where present), completed as AutoTokenizer does; or one file. A
 * tokenizer.json that is named itself gives exactly its own ids (Tokenizer.from_file), and the
 * files beside it only say which tokens are BOS, EOS and PAD; the other formats are completed from
 * the files beside them. Errors: NRL_ERR_IO absent or unreadable; NRL_ERR_DATA malformed, or a
 * component that this version does not know, named. [any] */
nrl_status tokenizer_open(const char *path, tokenizer **out);

/* The same from memory, without companions: tokenizer.json when the first byte is '{', else a
 * .model or tiktoken file. `source` names it in errors. [any] */
nrl_status tokenizer_open_memory(const char *source, const char *bytes, size_t size,
                                 tokenizer **out);
void tokenizer_close(tokenizer *tok); /* NULL is fine */

tokenizer_scratch *tokenizer_scratch_create(void);
void tokenizer_scratch_destroy(tokenizer_scratch *scratch);
/* Characters that had no token and no unknown token and so vanished, as in Hugging Face; since the
 * scratch was created. A caller that reads data shows this number when it is not 0. */
size_t tokenizer_scratch_dropped(const tokenizer_scratch *scratch);

/* Appends the ids of text[0..size) to `out`. [any, one scratch a thread] */
nrl_status tokenizer_encode(const tokenizer *tok, tokenizer_scratch *scratch, const char *text,
                            size_t size, unsigned flags, tokenizer_ids *out);

/* Text of ids, malloc'd, NUL-ended, always valid UTF-8 (broken bytes become U+FFFD); *size may be
 * NULL. An id that is not in the vocabulary is NRL_ERR_DATA. [any] */
nrl_status tokenizer_decode(const tokenizer *tok, const int32_t *ids, size_t n, bool skip_special,
                            char **text, size_t *size);

/* Decoding one id at a time, for generation. Zero-initialise. */
typedef struct {
    unsigned char pending[4]; /* an unfinished UTF-8 character */
    size_t n_pending;
    bool started; /* some text was seen: a leading space is no longer stripped */
} tokenizer_stream;

/* Writes the text that became certain with this id (possibly none) into buffer, NUL-ended, and
 * returns its bytes. `room` of tokenizer_stream_room bytes is always enough. An id outside the
 * vocabulary (a padded model head) gives U+FFFD. id TOKENIZER_NONE flushes. [any] */
size_t tokenizer_decode_next(const tokenizer *tok, tokenizer_stream *stream, int32_t id,
                             bool skip_special, char *buffer, size_t room);
size_t tokenizer_stream_room(const tokenizer *tok);

/* ---- facts; all borrow and never fail ---- */

int32_t tokenizer_vocab_size(const tokenizer *tok); /* largest id + 1, added tokens included */
int32_t tokenizer_token_id(const tokenizer *tok, const char *text); /* as written in the file */
const char *tokenizer_token_text(const tokenizer *tok, int32_t id); /* NULL if there is none */
bool tokenizer_is_special(const tokenizer *tok, int32_t id);

int32_t tokenizer_bos(const tokenizer *tok);
int32_t tokenizer_eos(const tokenizer *tok); /* the one that training appends */
int32_t tokenizer_pad(const tokenizer *tok);
size_t tokenizer_n_eos(const tokenizer *tok); /* all ids that end a generation, eos first */
bool tokenizer_is_eos(const tokenizer *tok, int32_t id);
bool tokenizer_adds_bos(const tokenizer *tok); /* with TOKENIZER_ADD_SPECIAL */
bool tokenizer_adds_eos(const tokenizer *tok);

/* 32 hex digits over the bytes of every file that was read: names a data cache. */
const char *tokenizer_hash(const tokenizer *tok);
/* The Jinja text of chat_template.jinja or tokenizer_config.json (of a list: "default"), or NULL; and
 * the one named "tool_use", for conversations with tools, or NULL. */
const char *tokenizer_chat_template(const tokenizer *tok);
const char *tokenizer_tools_template(const tokenizer *tok);
/* The text that the files beside the tokenizer give to "bos_token", "eos_token", "unk_token",
 * "sep_token", "pad_token", "cls_token" or "mask_token", NULL where they give none: what a chat
 * template prints. Without such files the tokenizer's own BOS, EOS and PAD. */
const char *tokenizer_named_token(const tokenizer *tok, const char *name);
/* Where it was opened: the directory, without a trailing slash; NULL when from memory. */
const char *tokenizer_folder(const tokenizer *tok);

#endif
