/*
 * sample.c - text around generate.c: encode the prompts, stop at any end token, decode what came.
 */
#include "inference/sample.h"
#include "base/buffer.h"
#include "rows/row.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The text of a prompt as it is generated, for callers that want tokens or have stop texts. */
typedef struct {
    nrl_decode_stream stream;
    buffer text;
    size_t shown; /* bytes that `token` has received */
} sample_stream;

typedef struct {
    const tokenizer *tok;
    const nrl_sample_options *options;
    int32_t turn; /* ends a turn where a template was used; NRL_TOKEN_NONE without one */
    bool chat;
    sample_stream *streams; /* [n], of the prompts; NULL: only the final texts matter */
    char *piece;            /* room for the text of a token and of what is left at the end */
} sample_call;

/* What ends a text: any end token of the tokenizer, and the end of a turn. */
static bool sample_is_end(void *user, int32_t id)
{
    const sample_call *c = user;
    return id == c->turn || tokenizer_is_eos(c->tok, id);
}

/* Returns the end of the text before the first stop text at or after `from`, or SIZE_MAX. */
static size_t find_stop(const nrl_sample_options *o, const buffer *text, size_t from)
{
    size_t first = SIZE_MAX;
    for (size_t k = 0; k < o->n_stop; k++) {
        size_t size = strlen(o->stop[k]);
        const char *at =
            size && text->size >= from ? memmem(text->text + from, text->size - from, o->stop[k], size) : NULL;
        if (at && (size_t)(at - text->text) < first) first = (size_t)(at - text->text);
    }
    return first;
}

/* Bytes at the end of the text that may become a stop text. */
static size_t held_back(const nrl_sample_options *o, const buffer *text, size_t from)
{
    size_t most = 0;
    for (size_t k = 0; k < o->n_stop; k++)
        for (size_t n = strlen(o->stop[k]); n-- > most + 1;)
            if (n <= text->size - from && !memcmp(text->text + text->size - n, o->stop[k], n)) most = n;
    return most;
}

static nrl_status sample_token(void *user, size_t i, int32_t id, bool *is_last)
{
    const sample_call *c = user;
    const nrl_sample_options *o = c->options;
    sample_stream *s = &c->streams[i];
    const nrl_tokenizer *table = c->tok->open.table;
    void *self = c->tok->open.self;
    bool skip = !o->keep_special;
    size_t n = 0, room = c->tok->info.stream_room, end;
    if (!skip || !sample_is_end(user, id)) n = table->decode_next(self, &s->stream, id, skip, c->piece, room);
    if (*is_last) n += table->decode_next(self, &s->stream, NRL_TOKEN_NONE, skip, c->piece + n, room);
    buffer_add(&s->text, c->piece, n);
    if (!s->text.text) return o->token ? o->token(o->token_user, i, id, "", 0) : NRL_OK;
    end = find_stop(o, &s->text, s->shown);
    if (end != SIZE_MAX) {
        s->text.text[s->text.size = end] = 0;
        *is_last = true;
    }
    if (!o->token) return NRL_OK;
    n = s->text.size - s->shown - (*is_last ? 0 : held_back(o, &s->text, s->shown));
    if (!n) return o->token(o->token_user, i, id, "", 0);
    char *text = s->text.text + s->shown, next = text[n];
    text[n] = 0; /* `token` gets a terminated text */
    nrl_status st = o->token(o->token_user, i, id, text, n);
    text[n] = next;
    s->shown += n;
    return st;
}

/* Renders the messages of a conversation, with the turn that the assistant is to fill. */
static nrl_status render_conversation(const chat_template *chat, tokenizer_scratch *scratch, const nrl_node *node,
                                      chat_ids *list)
{
    arena a = {0};
    data_sample notes = {0};
    data_messages messages;
    const nrl_node *items = nrl_node_kind(node) == NRL_NODE_MAP ? nrl_node_find(node, "messages") : node;
    nrl_status st = NRL_OK;
    if (nrl_node_kind(items) != NRL_NODE_LIST || !nrl_node_size(items))
        st = nrl_fail(NRL_ERR_DATA, "cannot render a conversation: expected a list of messages");
    if (st == NRL_OK) st = data_read_messages(&a, "messages", items, &notes, &messages);
    if (st == NRL_OK) {
        const nrl_conversation c = {.messages = messages.items,
                                    .n = messages.n,
                                    .n_prompt = messages.n,
                                    .add_generation_prompt = true,
                                    .tools = nrl_node_find(node, "tools"),
                                    .variables = nrl_node_find(node, "chat_template_kwargs")};
        st = chat_render_conversation(chat, scratch, &c, list);
    }
    arena_free(&a);
    return st;
}

/* One prompt's ids, malloc'd: what the tokenizer adds in front (BOS), never an end token behind. */
static nrl_status encode_prompt(const tokenizer *tok, const chat_template *chat, tokenizer_scratch *scratch,
                                const char *text, const nrl_node *conversation, int32_t **ids, int64_t *n)
{
    chat_ids list = {0};
    nrl_status st;
    NRL_ASSERT((conversation || text), ==, true);
    if (conversation) {
        st = render_conversation(chat, scratch, conversation, &list);
    } else if (chat) {
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
static nrl_status decode(sample_call *c, size_t i, const int32_t *prompt, int64_t n_prompt, const generate_result *g,
                         char **text)
{
    const bool skip = !c->options->keep_special;
    int64_t n = g->n;
    if (c->options->n_stop) {
        *text = buffer_take(&c->streams[i].text);
        return NRL_OK;
    }
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

bool sample_needs_template(const nrl_sample_options *options)
{
    bool has_member = options->size >= offsetof(nrl_sample_options, conversations) + sizeof options->conversations;
    return options->chat || (has_member && options->conversations);
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
                          .top_k = o->top_k,
                          .min_p = o->min_p,
                          .repetition_penalty = o->repetition_penalty,
                          .seed = o->seed,
                          .is_end = sample_is_end,
                          .token = o->token || o->n_stop ? sample_token : NULL,
                          .user = &c,
                          .vocab_size = tok->info.vocab_size};
    memset(texts, 0, n * sizeof *texts);
    for (size_t i = 0; i < n && st == NRL_OK; i++)
        st = encode_prompt(tok, chat, scratch, prompts ? prompts[i] : NULL,
                           o->conversations ? o->conversations[i] : NULL, &ids[i], &lengths[i]);
    /* A text goes on behind its prompt, so the prompt's tokens come first; an answer is a text of its own. */
    if (st == NRL_OK && g.token) {
        const size_t room = c.tok->info.stream_room;
        c.streams = mem_alloc(n * sizeof *c.streams);
        c.piece = mem_alloc(2 * room + 1);
        for (size_t i = 0; i < n && !c.chat; i++)
            for (int64_t t = 0; t < lengths[i]; t++)
                c.tok->open.table->decode_next(c.tok->open.self, &c.streams[i].stream, ids[i][t],
                                               !c.options->keep_special, c.piece, room);
    }
    if (st == NRL_OK) st = generate(w, (const int32_t *const *)ids, lengths, n, &g, results);
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        st = decode(&c, i, ids[i], lengths[i], &results[i], &texts[i]);
        if (n_tokens) n_tokens[i] = results[i].n;
    }
    for (size_t i = 0; i < n; i++) {
        if (st != NRL_OK) {
            free(texts[i]);
            texts[i] = NULL;
        }
        free(ids[i]);
        free(results[i].ids);
        if (c.streams) buffer_free(&c.streams[i].text);
    }
    free(c.streams);
    free(c.piece);
    free(ids);
    free(lengths);
    free(results);
    tokenizer_scratch_destroy(scratch);
    return st;
}
