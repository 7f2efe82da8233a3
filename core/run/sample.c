/*
 * sample.c - text around generate.c: encode the prompts, stop at any end token, decode what came.
 */
#include "run/sample.h"
#include "run/internal.h"
#include "run/step/ranks.h"
#include <stdlib.h>
#include <string.h>

/* What ends a text: any end token of the tokenizer, and the end of a turn where a template was used. */
typedef struct {
    const tokenizer *tok;
    int32_t turn; /* NRL_TOKEN_NONE without a template */
    bool chat;
} text_end;

static bool is_end(const void *user, int32_t id)
{
    const text_end *end = user;
    return id == end->turn || tokenizer_is_eos(end->tok, id);
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
        *ids = mem_alloc((list.tokens.n + 1) * sizeof **ids);
        if (list.tokens.n) memcpy(*ids, list.tokens.ids, list.tokens.n * sizeof **ids);
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
static nrl_status decode(const text_end *end, const int32_t *prompt, int64_t n_prompt, const generate_result *g,
                         bool keep_special, char **text)
{
    int64_t n = g->n;
    if (n && !keep_special && is_end(end, g->ids[n - 1])) n--;
    if (end->chat) return tokenizer_decode(end->tok, g->ids, (size_t)n, !keep_special, text, NULL);
    int32_t *all = mem_alloc((size_t)(n_prompt + n + 1) * sizeof *all);
    if (n_prompt) memcpy(all, prompt, (size_t)n_prompt * sizeof *all);
    if (n) memcpy(all + n_prompt, g->ids, (size_t)n * sizeof *all);
    nrl_status st = decode_behind(end->tok, all, n_prompt, n_prompt + n, !keep_special, text);
    free(all);
    return st;
}

nrl_status sample_texts(work *w, const tokenizer *tok, const chat_template *chat, const char *const *prompts, size_t n,
                        const nrl_sample_options *o, char **texts, int64_t *n_tokens)
{
    nrl_status st = NRL_OK;
    tokenizer_scratch *scratch = tokenizer_scratch_create(tok);
    int32_t **ids = mem_alloc(n * sizeof *ids);
    int64_t *lengths = mem_alloc(n * sizeof *lengths);
    generate_result *results = mem_alloc(n * sizeof *results);
    const text_end end = {tok, chat ? chat_template_end(chat) : NRL_TOKEN_NONE, chat != NULL};
    generate_options g = {.max_tokens = o->max_tokens,
                          .temperature = o->temperature,
                          .top_p = o->top_p,
                          .seed = o->seed,
                          .is_end = is_end,
                          .user = &end,
                          .vocab_size = tok->info.vocab_size};
    memset(texts, 0, n * sizeof *texts);
    for (size_t i = 0; i < n && st == NRL_OK; i++)
        st = encode_prompt(tok, chat, scratch, prompts[i], &ids[i], &lengths[i]);
    if (st == NRL_OK) st = generate(w, (const int32_t *const *)ids, lengths, n, &g, results);
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        st = decode(&end, ids[i], lengths[i], &results[i], o->keep_special, &texts[i]);
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
    free(ids);
    free(lengths);
    free(results);
    tokenizer_scratch_destroy(scratch);
    return st;
}

nrl_status nrl_run_sample(nrl_run *r, const char *const *prompts, size_t n, const nrl_sample_options *options,
                          char **texts, int64_t *n_tokens)
{
    nrl_sample_options all = {0};
    const nrl_sample_options *o = &all;
    memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    NRL_TRY(hooks_check_call(&r->hooks, "sample"));
    if (!r->session.tokenizer) return nrl_fail(NRL_ERR_CONFIG, "sampling needs a tokenizer: set model.tokenizer");
    if (o->chat && !r->session.chat)
        return nrl_fail(NRL_ERR_CONFIG, "a chat prompt needs data.template: %s", r->session.chat_problem);
    nrl_status st = ranks_agree(r->session.mesh, "sample", (uint64_t)n);
    if (st != NRL_OK) return run_end_call(r, st);
    st = strategy_average_begin(&r->session.strategy, r->session.ctx);
    if (st == NRL_OK)
        st = sample_texts(&r->session.work, r->session.tokenizer, o->chat ? r->session.chat : NULL, prompts, n, o,
                          texts, n_tokens);
    return run_end_call(r, strategy_average_end(&r->session.strategy, r->session.ctx, st));
}
