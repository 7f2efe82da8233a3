/*
 * sample.c - text around generate.c: encode the prompts, stop at any end token, decode what came.
 */
#include "inference/sample.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tokenizer *tok;
    const nrl_sample_options *options;
    int32_t turn; /* ends a turn where a template was used; NRL_TOKEN_NONE without one */
    bool chat;
    nrl_decode_stream *streams; /* [n], of the prompts; NULL where nobody asks for tokens */
    char *piece;                /* room for the text of a token and of what is left at the end */
} sample_call;

/* What ends a text: any end token of the tokenizer, and the end of a turn. */
static bool sample_is_end(void *user, int32_t id)
{
    const sample_call *c = user;
    return id == c->turn || tokenizer_is_eos(c->tok, id);
}

static nrl_status sample_token(void *user, size_t i, int32_t id, bool is_last)
{
    const sample_call *c = user;
    const nrl_tokenizer *table = c->tok->open.table;
    void *self = c->tok->open.self;
    bool skip = !c->options->keep_special;
    size_t n = 0, room = c->tok->info.stream_room;
    if (!skip || !sample_is_end(user, id)) n = table->decode_next(self, &c->streams[i], id, skip, c->piece, room);
    if (is_last) n += table->decode_next(self, &c->streams[i], NRL_TOKEN_NONE, skip, c->piece + n, room);
    c->piece[n] = 0;
    return c->options->token(c->options->token_user, i, id, c->piece, n);
}

/* One prompt's ids, malloc'd: what the tokenizer adds in front (BOS), never an end token behind. */
static nrl_status encode_prompt(const tokenizer *tok, const chat_template *chat, tokenizer_scratch *scratch,
                                const char *text, int32_t **ids, int64_t *n)
{
    chat_ids list = {0};
    nrl_status st;
    if (chat) {
        nrl_message m = {.role = "user", .content = text, .content_size = strlen(text)};
        st = chat_render(chat, scratch, &m, 1, true, &list);
    } else {
        st = tokenizer_encode(tok, scratch, text, strlen(text), NRL_ENCODE_ADD_SPECIAL, &list.tokens);
        if (st == NRL_OK && tok->info.adds_eos && list.tokens.n > 1 &&
            tokenizer_is_eos(tok, list.tokens.ids[list.tokens.n - 1]))
            list.tokens.n--;
    }
    if (st == NRL_OK) {
        *n = (int64_t)list.tokens.n;
        *ids = mem_try((list.tokens.n + 1) * sizeof **ids, "the tokens of a prompt");
        if (!*ids) st = NRL_ERR_MEMORY;
        if (*ids && list.tokens.n) memcpy(*ids, list.tokens.ids, list.tokens.n * sizeof **ids);
    }
    chat_ids_free(&list);
    return st;
}

/* ids[from..n) as they continue ids[0..from). Tokenizers of Llama's kind drop the blank that a text begins with,
 * so both are decoded, and the text of the first cut off. */
static nrl_status decode_behind(const tokenizer *tok, const int32_t *ids, int64_t from, int64_t n, bool skip_special,
                                char **text)
{
    char *before = NULL, *whole = NULL;
    size_t cut = 0, size = 0;
    nrl_status st = tokenizer_decode(tok, ids, (size_t)from, skip_special, &before, &cut);
    if (st == NRL_OK) st = tokenizer_decode(tok, ids, (size_t)n, skip_special, &whole, &size);
    if (st == NRL_OK && cut <= size && !memcmp(whole, before, cut)) {
        memmove(whole, whole + cut, size - cut + 1);
        *text = whole;
        whole = NULL;
    } else if (st == NRL_OK) {
        st = tokenizer_decode(tok, ids + from, (size_t)(n - from), skip_special, text, NULL);
    }
    free(before);
    free(whole);
    return st;
}

/* What was generated, without its end token. The answer to a chat message is a text of its own. */
static nrl_status decode(sample_call *c, const int32_t *prompt, int64_t n_prompt, const generate_result *g, char **text)
{
    const bool skip = !c->options->keep_special;
    int64_t n = g->n;
    if (n && skip && sample_is_end(c, g->ids[n - 1])) n--;
    if (c->chat) return tokenizer_decode(c->tok, g->ids, (size_t)n, skip, text, NULL);
    int32_t *all = mem_try((size_t)(n_prompt + n + 1) * sizeof *all, "the tokens of a text");
    if (!all) return NRL_ERR_MEMORY;
    if (n_prompt) memcpy(all, prompt, (size_t)n_prompt * sizeof *all);
    if (n) memcpy(all + n_prompt, g->ids, (size_t)n * sizeof *all);
    nrl_status st = decode_behind(c->tok, all, n_prompt, n_prompt + n, skip, text);
    free(all);
    return st;
}

nrl_status sample_texts(work *w, const tokenizer *tok, const chat_template *chat, const char *const *prompts, size_t n,
                        const nrl_sample_options *options, char **texts, int64_t *n_tokens)
{
    nrl_sample_options all = {0};
    const nrl_sample_options *o = &all;
    memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    nrl_status st = NRL_OK;
    tokenizer_scratch *scratch = tokenizer_scratch_create(tok);
    int32_t **ids = mem_alloc(n * sizeof *ids);
    int64_t *lengths = mem_alloc(n * sizeof *lengths);
    generate_result *results = mem_alloc(n * sizeof *results);
    sample_call c = {
        .tok = tok, .options = o, .turn = chat ? chat_template_end(chat) : NRL_TOKEN_NONE, .chat = chat != NULL};
    generate_options g = {.max_tokens = o->max_tokens,
                          .temperature = o->temperature,
                          .top_p = o->top_p,
                          .seed = o->seed,
                          .is_end = sample_is_end,
                          .token = o->token ? sample_token : NULL,
                          .user = &c,
                          .vocab_size = tok->info.vocab_size};
    memset(texts, 0, n * sizeof *texts);
    for (size_t i = 0; i < n && st == NRL_OK; i++)
        st = encode_prompt(tok, chat, scratch, prompts[i], &ids[i], &lengths[i]);
    /* A text goes on behind its prompt, so the prompt's tokens come first; an answer is a text of its own. */
    if (st == NRL_OK && o->token) {
        const size_t room = c.tok->info.stream_room;
        c.streams = mem_alloc(n * sizeof *c.streams);
        c.piece = mem_alloc(2 * room + 1);
        for (size_t i = 0; i < n && !c.chat; i++)
            for (int64_t t = 0; t < lengths[i]; t++)
                c.tok->open.table->decode_next(c.tok->open.self, &c.streams[i], ids[i][t], !c.options->keep_special,
                                               c.piece, room);
    }
    if (st == NRL_OK) st = generate(w, (const int32_t *const *)ids, lengths, n, &g, results);
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        st = decode(&c, ids[i], lengths[i], &results[i], &texts[i]);
        if (n_tokens) n_tokens[i] = results[i].n;
    }
    for (size_t i = 0; i < n; i++) {
        if (st != NRL_OK) {
            free(texts[i]);
            texts[i] = NULL;
        }
        free(ids[i]);
        free(results[i].ids);
    }
    free(c.streams);
    free(c.piece);
    free(ids);
    free(lengths);
    free(results);
    tokenizer_scratch_destroy(scratch);
    return st;
}
