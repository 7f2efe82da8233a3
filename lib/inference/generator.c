/*
 * generator.c - text around scheduler.c: encodes prompts, decodes tokens as they come, ends texts.
 */
#include "inference/generator.h"
#include "base/buffer.h"
#include "rows/row.h"
#include "inference/logits.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What was added by one call, shared by its texts. */
typedef struct {
    int64_t n_users; /* texts that have not ended, and the call that adds them */
    nrl_sample_options options;
    char **stop;  /* [options.n_stop] copies */
    int32_t turn; /* ends a turn where a template was used; NRL_TOKEN_NONE without one */
    uint64_t id;
} request;

typedef struct generated_text {
    struct generated_text *next;
    nrl_generator *generator;
    request *request;
    sequence *sequence;
    size_t index;
    nrl_decode_stream stream;
    buffer text;
    size_t shown;  /* bytes that `token` has received */
    char **result; /* where the text goes at its end; NULL = nowhere */
    int64_t *n_tokens;
} generated_text;

struct nrl_generator {
    work *work;
    const tokenizer *tok;
    const chat_template *const *chat;
    tokenizer_scratch *scratch;
    scheduler *scheduler;
    generated_text *texts;
    uint64_t n_requests;
    char *piece; /* room for the text of a token and of what is left at the end */
};

nrl_status generator_create(work *w, const tokenizer *tok, const chat_template *const *chat,
                            const nrl_generator_options *options, nrl_generator **out)
{
    nrl_generator_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    nrl_generator *g = mem_alloc(sizeof *g);
    *g = (nrl_generator){.work = w, .tok = tok, .chat = chat};
    g->scratch = tokenizer_scratch_create(tok);
    g->piece = mem_alloc(2 * tok->info.stream_room + 1);
    nrl_status st = scheduler_create(w,
                                     &(scheduler_options){.max_sequences = o.max_sequences,
                                                          .max_cached = o.max_cached,
                                                          .vocab_size = tok->info.vocab_size},
                                     &g->scheduler);
    if (st != NRL_OK) nrl_generator_close(g);
    *out = st == NRL_OK ? g : NULL;
    return st;
}

static void request_release(request *r)
{
    if (--r->n_users > 0) return;
    for (size_t i = 0; i < r->options.n_stop; i++)
        free(r->stop[i]);
    free(r->stop);
    free(r);
}

/* Removes a text from the list and frees it. */
static void text_free(generated_text *t)
{
    for (generated_text **at = &t->generator->texts; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    request_release(t->request);
    buffer_free(&t->text);
    free(t);
}

/* Ends the texts of a request, or all if id is 0. */
static void remove_texts(nrl_generator *g, uint64_t id)
{
    for (generated_text *t = g->texts, *next; t; t = next) {
        next = t->next;
        if (id && t->request->id != id) continue;
        if (t->sequence) scheduler_remove(g->scheduler, t->sequence);
        text_free(t);
    }
}

void nrl_generator_close(nrl_generator *g)
{
    if (!g) return;
    remove_texts(g, 0);
    scheduler_destroy(g->scheduler);
    tokenizer_scratch_destroy(g->scratch);
    free(g->piece);
    free(g);
}

/* ---- a text as it is generated ---- */

/* What ends a text: any end token of the tokenizer, and the end of a turn. */
static bool is_end(const generated_text *t, int32_t id)
{
    return id == t->request->turn || tokenizer_is_eos(t->generator->tok, id);
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

/* No token could be chosen. nrl_inference_sample and nrl_run_sample return the error and do not call `token`. */
static nrl_status text_fail(generated_text *t)
{
    const nrl_sample_options *o = &t->request->options;
    const nrl_sampled_token none = {
        .size = sizeof none, .id = NRL_TOKEN_NONE, .text = t->index, .finish = NRL_FINISH_FAILED, .piece = ""};
    if (o->token && !t->result) o->token(o->token_user, &none);
    text_free(t);
    return NRL_ERR_DATA;
}

/* Adds the text of a token to its text, and passes it on. */
static nrl_status text_token(void *user, const scheduler_token *chosen, bool *is_last)
{
    generated_text *t = user;
    if (chosen->id == NRL_TOKEN_NONE) return text_fail(t);
    const nrl_sample_options *o = &t->request->options;
    const tokenizer *tok = t->generator->tok;
    char *piece = t->generator->piece;
    const bool skip = !o->keep_special, at_end = is_end(t, chosen->id);
    const size_t room = tok->info.stream_room;
    nrl_sampled_token token = {.size = sizeof token,
                               .id = chosen->id,
                               .text = t->index,
                               .finish = at_end     ? NRL_FINISH_STOP
                                         : *is_last ? NRL_FINISH_LENGTH
                                                    : NRL_FINISH_NONE,
                               .logp = chosen->logp,
                               .n_top = (size_t)chosen->n_top,
                               .top_ids = chosen->top_ids,
                               .top_logps = chosen->top_logps,
                               .piece = ""};
    size_t n = 0;
    *is_last |= at_end;
    if (!skip || !at_end) n = tok->open.table->decode_next(tok->open.self, &t->stream, chosen->id, skip, piece, room);
    if (*is_last) n += tok->open.table->decode_next(tok->open.self, &t->stream, NRL_TOKEN_NONE, skip, piece + n, room);
    buffer_add(&t->text, piece, n);
    nrl_status st = buffer_check(&t->text);
    if (st == NRL_OK && t->text.text) {
        size_t end = find_stop(o, &t->text, t->shown);
        if (end != SIZE_MAX) {
            t->text.text[t->text.size = end] = 0;
            token.finish = NRL_FINISH_STOP;
            *is_last = true;
        }
        token.piece = t->text.text + t->shown;
        token.piece_size = t->text.size - t->shown - (*is_last ? 0 : held_back(o, &t->text, t->shown));
    }
    if (t->n_tokens) ++*t->n_tokens;
    if (st == NRL_OK && o->token) {
        char *behind = token.piece_size ? t->text.text + t->shown + token.piece_size : NULL,
             next = behind ? *behind : 0;
        if (behind) *behind = 0; /* `token` gets a terminated text */
        if (!behind) token.piece = "";
        st = o->token(o->token_user, &token);
        if (behind) *behind = next;
    }
    t->shown += token.piece_size;
    if (!*is_last && st == NRL_OK) return NRL_OK;
    if (t->result && st == NRL_OK) *t->result = t->text.text ? buffer_take(&t->text) : mem_strdup("");
    text_free(t);
    return st;
}

/* ---- requests ---- */

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

/* A prompt's ids, malloc'd: what the tokenizer adds in front (BOS), never an end token behind. */
static nrl_status encode_prompt(const nrl_generator *g, const chat_template *chat, const nrl_prompt *p, int32_t **ids,
                                int64_t *n)
{
    const tokenizer *tok = g->tok;
    chat_ids list = {0};
    nrl_status st = NRL_OK;
    NRL_ASSERT((p->conversation || p->ids || p->text), ==, true);
    if (p->conversation) {
        st = render_conversation(chat, g->scratch, p->conversation, &list);
    } else if (p->ids) {
        for (size_t i = 0; i < p->n_ids && st == NRL_OK; i++)
            if (p->ids[i] < 0 || p->ids[i] >= logits_vocab(g->work))
                st = nrl_fail(NRL_ERR_CONFIG, "token %zu of the prompt is %d, expected 0 to %d", i + 1, p->ids[i],
                              logits_vocab(g->work) - 1);
    } else if (chat) {
        nrl_message m = {.role = "user", .content = p->text, .content_size = strlen(p->text)};
        st = chat_render(chat, g->scratch, &m, 1, true, &list);
    } else {
        st = tokenizer_encode(tok, g->scratch, p->text, strlen(p->text), NRL_ENCODE_ADD_SPECIAL, &list.tokens);
        if (st == NRL_OK && tok->info.adds_eos && list.tokens.n > 1 &&
            tokenizer_is_eos(tok, list.tokens.ids[list.tokens.n - 1]))
            list.tokens.n--;
    }
    if (st == NRL_OK) {
        const size_t size = p->ids ? p->n_ids : list.tokens.n;
        *n = (int64_t)size;
        *ids = mem_try((size + 1) * sizeof **ids, "the tokens of a prompt");
        if (!*ids) st = NRL_ERR_MEMORY;
        if (*ids && size) memcpy(*ids, p->ids ? p->ids : list.tokens.ids, size * sizeof **ids);
    }
    chat_ids_free(&list);
    return st;
}

bool generator_needs_template(const nrl_sample_options *options)
{
    bool has_member = options->size >= offsetof(nrl_sample_options, conversations) + sizeof options->conversations;
    return options->chat || (has_member && options->conversations);
}

/* A copy of the options with stop texts of its own. */
static nrl_status request_create(nrl_generator *g, const nrl_sample_options *o, bool chat, request **out)
{
    if (o->max_tokens < 1)
        return nrl_fail(NRL_ERR_CONFIG, "max_tokens is %lld, expected 1 or more", (long long)o->max_tokens);
    request *r = *out = mem_alloc(sizeof *r);
    *r = (request){.options = *o, .id = ++g->n_requests, .turn = NRL_TOKEN_NONE};
    if (chat) r->turn = chat_template_end(*g->chat);
    r->stop = mem_alloc((o->n_stop + 1) * sizeof *r->stop);
    for (size_t i = 0; i < o->n_stop; i++)
        r->stop[i] = mem_strdup(o->stop[i]);
    r->options.stop = (const char *const *)r->stop;
    r->n_users = 1;
    return NRL_OK;
}

/* Adds the texts of one prompt; the first has the number `first`. results and n_tokens [options.n] may be NULL. */
static nrl_status add_texts(nrl_generator *g, const nrl_prompt *p, request *r, size_t first, char **results,
                            int64_t *n_tokens, int64_t *n_prompt)
{
    const nrl_sample_options *o = &r->options;
    const chat_template *chat = o->chat || p->conversation ? *g->chat : NULL;
    const size_t copies = o->n > 0 ? (size_t)o->n : 1, room = g->tok->info.stream_room;
    int32_t *ids = NULL;
    if (o->top_logprobs < 0)
        return nrl_fail(NRL_ERR_CONFIG, "top_logprobs %lld: expected 0 or more", (long long)o->top_logprobs);
    NRL_TRY(encode_prompt(g, chat, p, &ids, n_prompt));
    const int64_t vocab = scheduler_vocab(g->scheduler), n_top = o->top_logprobs < vocab ? o->top_logprobs : vocab;
    nrl_status st = NRL_OK;
    for (size_t k = 0; k < copies && st == NRL_OK; k++) {
        generated_text *t = mem_alloc(sizeof *t);
        *t = (generated_text){.next = g->texts,
                              .generator = g,
                              .request = r,
                              .index = first + k,
                              .result = results ? results + k : NULL,
                              .n_tokens = n_tokens ? n_tokens + k : NULL};
        g->texts = t;
        r->n_users++;
        const sequence_options s = {.choose = {.temperature = o->temperature,
                                               .top_p = o->top_p,
                                               .top_k = o->top_k,
                                               .min_p = o->min_p,
                                               .repetition_penalty = o->repetition_penalty,
                                               .seed = o->seed,
                                               .stream = first + k},
                                    .max_tokens = o->max_tokens,
                                    .fits_context = o->fits_context,
                                    .wants_logps = o->logprobs || n_top > 0,
                                    .n_top = (int32_t)n_top,
                                    .token = text_token,
                                    .user = t};
        /* A text goes on behind its prompt, so the prompt's tokens come first; an answer is a text of its own. */
        for (int64_t i = 0; i < *n_prompt && !chat; i++)
            g->tok->open.table->decode_next(g->tok->open.self, &t->stream, ids[i], !o->keep_special, g->piece, room);
        st = scheduler_add(g->scheduler, ids, *n_prompt, &s, &t->sequence);
    }
    free(ids);
    return st;
}

nrl_status nrl_generator_add(nrl_generator *g, const nrl_prompt *prompt, const nrl_sample_options *options,
                             uint64_t *id, int64_t *n_prompt)
{
    nrl_sample_options o = {0};
    nrl_prompt p = {0};
    request *r;
    int64_t n;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    memcpy(&p, prompt, prompt->size < sizeof p ? prompt->size : sizeof p);
    const bool chat = generator_needs_template(&o) || p.conversation;
    if (!p.text + !p.conversation + !p.ids != 2)
        return nrl_fail(NRL_ERR_CONFIG, "a prompt is one of a text, a conversation and ids");
    if (chat && !*g->chat) return nrl_fail(NRL_ERR_CONFIG, "messages need a chat template");
    NRL_TRY(request_create(g, &o, chat, &r));
    *id = r->id;
    nrl_status st = add_texts(g, &p, r, 0, NULL, NULL, n_prompt ? n_prompt : &n);
    if (st != NRL_OK) remove_texts(g, r->id);
    request_release(r);
    return st;
}

void nrl_generator_remove(nrl_generator *g, uint64_t id)
{
    if (id) remove_texts(g, id);
}

nrl_status nrl_generator_step(nrl_generator *g, bool *is_idle)
{
    nrl_status st = scheduler_step(g->scheduler);
    *is_idle = !g->texts;
    return st;
}

void nrl_generator_stats_fill(const nrl_generator *g, nrl_generator_stats *fill)
{
    const scheduler_counts c = scheduler_count(g->scheduler);
    const nrl_generator_stats stats = {.size = fill->size,
                                       .n_waiting = c.n_waiting,
                                       .n_running = c.n_running,
                                       .prompt_tokens_computed = c.n_computed,
                                       .prompt_tokens_reused = c.n_reused};
    memcpy(fill, &stats, fill->size < sizeof stats ? fill->size : sizeof stats);
}

nrl_status generator_sample(nrl_generator *g, const char *const *prompts, size_t n, const nrl_sample_options *options,
                            char **texts, int64_t *n_tokens)
{
    nrl_sample_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    const size_t copies = o.n > 0 ? (size_t)o.n : 1;
    request *r;
    memset(texts, 0, n * copies * sizeof *texts);
    if (n_tokens) memset(n_tokens, 0, n * copies * sizeof *n_tokens);
    NRL_TRY(request_create(g, &o, generator_needs_template(&o), &r));
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        const nrl_prompt p = {.size = sizeof p,
                              .text = o.conversations ? NULL : prompts[i],
                              .conversation = o.conversations ? o.conversations[i] : NULL};
        int64_t length;
        st = add_texts(g, &p, r, i * copies, texts + i * copies, n_tokens ? n_tokens + i * copies : NULL, &length);
        if (st != NRL_OK && n > 1) nrl_add_context("prompt %zu", i + 1);
    }
    while (st == NRL_OK && g->texts)
        st = scheduler_step(g->scheduler);
    if (st != NRL_OK) remove_texts(g, r->id);
    request_release(r);
    for (size_t i = 0; st != NRL_OK && i < n * copies; i++) {
        free(texts[i]);
        texts[i] = NULL;
    }
    return st;
}
