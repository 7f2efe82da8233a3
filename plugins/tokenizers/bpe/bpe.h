/*
 * bpe.h - an open BPE tokenizer: text to token ids and back. bpe.c wraps it in the table of a
 * plugin. Reads tokenizer.json (BPE), SentencePiece BPE `.model`, tiktoken rank files and pairs of
 * vocab.json and merges.txt. The ids are those of the Hugging Face tokenizers library for the same
 * files.
 *
 * Ownership: an open tokenizer is read-only and may be used by many threads at once. Each thread
 * passes its own bpe_scratch, which holds buffers and a bounded cache of words. Invalid UTF-8 in
 * the input: each maximal invalid sequence becomes U+FFFD, as with Python's errors="replace". NUL
 * bytes are ordinary characters.
 */
#ifndef BPE_H
#define BPE_H
#include <nrl/tokenizer.h>

typedef struct bpe_tokenizer bpe_tokenizer;
typedef struct bpe_scratch bpe_scratch;

/* Opens a file or a directory. A directory is completed as AutoTokenizer does: it has
 * tokenizer.json, else tokenizer.model, else vocab.json and merges.txt, and optionally
 * tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json and
 * config.json. A tokenizer.json that is named as a file gives exactly its own ids
 * (Tokenizer.from_file), and the files beside it only determine which tokens are BOS, EOS and PAD;
 * the other formats are completed from the files beside them. Errors: NRL_ERR_IO if a file is
 * missing or unreadable; NRL_ERR_DATA if it is malformed or has a component that this version does
 * not support, which the error names; NRL_ERR_CONFIG: `add_tokens`, a list of new tokens or NULL, is not possible.
 * [any] */
nrl_status bpe_open(const char *path, const nrl_node *add_tokens, bpe_tokenizer **out);
/* The same from memory, without other files: tokenizer.json if the first byte is '{', else a .model
 * or tiktoken file. `source` is the name in errors. [any] */
nrl_status bpe_open_memory(const char *source, const char *bytes, size_t size, bpe_tokenizer **out);
void bpe_close(bpe_tokenizer *tok); /* accepts NULL */
/* Judges from names and first bytes whether bpe_open can read this path; a probe result of
 * nrl/tokenizer.h. [any] */
int32_t bpe_probe(const char *path);

bpe_scratch *bpe_scratch_create(void);
void bpe_scratch_destroy(bpe_scratch *scratch);
size_t bpe_scratch_dropped(const bpe_scratch *scratch); /* characters without a token, not even an unknown token */

/* Like the members of nrl_tokenizer. [any, one scratch per thread] */
nrl_status bpe_encode(const bpe_tokenizer *tok, bpe_scratch *scratch, const char *text, size_t size, unsigned flags,
                      nrl_token_ids *out);
nrl_status bpe_decode(const bpe_tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, nrl_text *out);

/* Decoding one id at a time. Zero-initialise. */
typedef struct {
    unsigned char pending[4]; /* an unfinished UTF-8 character */
    uint32_t n_pending;
    bool started; /* text was already seen, so a leading space is no longer stripped */
} bpe_stream;
NRL_STATIC_ASSERT(sizeof(bpe_stream) <= sizeof(nrl_decode_stream), "it must fit into the core's state");

size_t bpe_decode_next(const bpe_tokenizer *tok, bpe_stream *stream, int32_t id, bool skip_special, char *buffer,
                       size_t room);
size_t bpe_stream_room(const bpe_tokenizer *tok);

/* ---- info; all results are borrowed, and no call fails ---- */

int32_t bpe_eos(const bpe_tokenizer *tok); /* the one that training appends */
bool bpe_is_eos(const bpe_tokenizer *tok, int32_t id);
bool bpe_adds_bos(const bpe_tokenizer *tok); /* with NRL_ENCODE_ADD_SPECIAL */
bool bpe_adds_eos(const bpe_tokenizer *tok);
void bpe_info(const bpe_tokenizer *tok, nrl_tokenizer_info *out);
void bpe_fill_named(bpe_tokenizer *tok); /* called once, when the tokenizer is open */

/* The files of its directory, changed to contain another chat template (jinja may be NULL) and new tokens.
 * (template_files.c) */
nrl_status bpe_export_template(const bpe_tokenizer *tok, const char *jinja,
                               nrl_status (*file)(void *user, const char *name, const char *text), void *user);

#endif
