/*
 * bpe.c - byte-pair tokenizers from four kinds of file as one plugin; see bpe.h.
 */
#include "bpe.h"
#include "parts.h"
#include "train.h"
#include <string.h>

static int32_t table_probe(const nrl_tokenizer_source *source)
{
    return bpe_probe(source->path);
}

typedef struct {
    const nrl_node *add_tokens;
} bpe_options;

static const nrl_option bpe_rows[] = {
    NRL_OPT_NODE(bpe_options, add_tokens, "",
                 "new tokens, a list of texts or {token, special}; model.add_tokens sets it and gives them embeddings"),
};

static nrl_status table_open(const void *options, const nrl_tokenizer_source *source, void **self)
{
    const bpe_options *o = options;
    bpe_tokenizer *tok;
    NRL_TRY(source->bytes ? bpe_open_memory(source->path, source->bytes, source->n_bytes, &tok)
                          : bpe_open(source->path, o->add_tokens, &tok));
    *self = tok;
    return NRL_OK;
}

static void table_close(void *self)
{
    bpe_close(self);
}

static void table_info(void *self, nrl_tokenizer_info *out)
{
    bpe_info(self, out);
}

static void *table_scratch_create(void *self)
{
    (void)self;
    return bpe_scratch_create();
}

static void table_scratch_destroy(void *scratch)
{
    bpe_scratch_destroy(scratch);
}

static size_t table_scratch_dropped(const void *scratch)
{
    return bpe_scratch_dropped(scratch);
}

static nrl_status table_encode(void *self, void *scratch, const char *text, size_t size, uint32_t flags,
                               nrl_token_ids *out)
{
    return bpe_encode(self, scratch, text, size, flags, out);
}

static nrl_status table_decode(void *self, const int32_t *ids, size_t n, bool skip_special, nrl_text *out)
{
    return bpe_decode(self, ids, n, skip_special, out);
}

static size_t table_decode_next(void *self, nrl_decode_stream *stream, int32_t id, bool skip_special, char *buffer,
                                size_t room)
{
    bpe_stream s;
    memcpy(&s, stream, sizeof s);
    size_t n = bpe_decode_next(self, &s, id, skip_special, buffer, room);
    memcpy(stream, &s, sizeof s);
    return n;
}

static int32_t table_token_id(void *self, const char *text, size_t size)
{
    const bpe_tokenizer *tok = self;
    return vocab_find(&tok->words, text, size);
}

static const char *table_token_text(void *self, int32_t id, size_t *size, uint32_t *flags)
{
    const bpe_tokenizer *tok = self;
    const char *text = vocab_text(&tok->words, id, size);
    if (!text) return NULL;
    const vocab_entry *e = &tok->words.entries[id];
    *flags = (e->special ? NRL_TOKEN_SPECIAL : 0u) | (e->added ? NRL_TOKEN_ADDED : 0u);
    return text;
}

static nrl_status table_export_template(void *self, const char *jinja,
                                        nrl_status (*file)(void *user, const char *name, const char *text), void *user)
{
    return bpe_export_template(self, jinja, file, user);
}

static nrl_status table_train_begin(const void *options, const nrl_train_tokenizer *what, void **trainer)
{
    bpe_trainer *t;
    (void)options;
    NRL_TRY(bpe_trainer_create(what, &t));
    *trainer = t;
    return NRL_OK;
}

static nrl_status table_train_add(void *trainer, const char *text, size_t size)
{
    return bpe_trainer_add(trainer, text, size);
}

static nrl_status table_train_save(void *trainer, const char *folder, int64_t *n_tokens)
{
    return bpe_trainer_save(trainer, folder, n_tokens);
}

static void table_train_end(void *trainer)
{
    bpe_trainer_destroy(trainer);
}

static const nrl_tokenizer bpe = {
    NRL_PLUGIN(NRL_KIND_TOKENIZER, nrl_tokenizer, bpe_options, bpe_rows, "bpe", "0.1",
               "byte-pair encoding: tokenizer.json, SentencePiece BPE, tiktoken, vocab.json with merges.txt"),
    .probe = table_probe,
    .open = table_open,
    .close = table_close,
    .info = table_info,
    .scratch_create = table_scratch_create,
    .scratch_destroy = table_scratch_destroy,
    .scratch_dropped = table_scratch_dropped,
    .encode = table_encode,
    .decode = table_decode,
    .decode_next = table_decode_next,
    .token_id = table_token_id,
    .token_text = table_token_text,
    .export_template = table_export_template,
    .train_begin = table_train_begin,
    .train_add = table_train_add,
    .train_save = table_train_save,
    .train_end = table_train_end,
};

NRL_EXPORT(bpe)
