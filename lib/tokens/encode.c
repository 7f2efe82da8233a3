/*
 * encode.c - tokenises one sample and marks the trained tokens; drops or truncates samples that are too long, and drops
 * samples that are empty or have no trained token.
 */
#include "tokens/encode.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void data_encoder_free(data_encoder *e)
{
    chat_ids_free(&e->side[0]);
    chat_ids_free(&e->side[1]);
    chat_ids_free(&e->prompt);
    if (e->scratch) tokenizer_scratch_destroy(e->scratch);
    buffer_free(&e->text);
    *e = (data_encoder){0};
}

/* ---- marks ---- */

/* Marks the tokens of the answer, which begins at token `answer`, as trained. */
static nrl_status mark_answer(chat_ids *ids, size_t answer)
{
    NRL_TRY(token_ids_check(&ids->tokens));
    NRL_TRY(chat_ids_reserve_marks(ids));
    size_t n = ids->tokens.n, begin = answer < n ? answer : n;
    if (begin) memset(ids->trained, 0, begin);
    if (begin < n) memset(ids->trained + begin, 1, n - begin);
    return NRL_OK;
}

/* ---- text ---- */

/* Encodes a text with the special tokens that the tokenizer adds, but with BOS only once. */
static nrl_status encode_text(data_encoder *e, const char *text, size_t size, nrl_token_ids *out)
{
    const tokenizer *tok = e->options->tokenizer;
    int32_t bos = tok->info.bos;
    out->n = 0;
    NRL_TRY(tokenizer_encode(tok, e->scratch, text, size, NRL_ENCODE_ADD_SPECIAL, out));
    if (bos != NRL_TOKEN_NONE && out->n > 1 && out->ids[0] == bos && out->ids[1] == bos && tok->info.adds_bos)
        memmove(out->ids, out->ids + 1, --out->n * sizeof *out->ids);
    return NRL_OK;
}

static void end_with_eos(const tokenizer *tok, nrl_token_ids *ids)
{
    int32_t eos = tok->info.eos;
    if (eos == NRL_TOKEN_NONE || (ids->n && ids->ids[ids->n - 1] == eos)) return;
    nrl_token_ids_push(ids, eos, 0);
}

static nrl_status encode_plain(data_encoder *e, const data_sample *s)
{
    chat_ids *out = &e->side[0];
    NRL_TRY(encode_text(e, s->answer[0].text, s->answer[0].size, &out->tokens));
    end_with_eos(e->options->tokenizer, &out->tokens);
    return mark_answer(out, 0);
}

static nrl_status encode_prompted(data_encoder *e, const data_sample *s)
{
    const tokenizer *tok = e->options->tokenizer;
    nrl_token_ids *prompt = &e->prompt.tokens;
    NRL_TRY(encode_text(e, s->prompt.text, s->prompt.size, prompt));
    /* Without an EOS that the tokenizer appends to every text. */
    size_t n_prompt = prompt->n - (tok->info.adds_eos && prompt->n && prompt->ids[prompt->n - 1] == tok->info.eos);
    for (int i = 0; i < s->n_sides; i++) {
        chat_ids *out = &e->side[i];
        if (e->options->generates) {
            out->tokens.n = 0;
            for (size_t t = 0; t < n_prompt; t++)
                nrl_token_ids_push(&out->tokens, prompt->ids[t], 0);
            NRL_TRY(tokenizer_encode(tok, e->scratch, s->answer[i].text, s->answer[i].size, 0, &out->tokens));
        } else {
            e->text.size = 0;
            buffer_add(&e->text, s->prompt.text, s->prompt.size);
            buffer_add(&e->text, s->answer[i].text, s->answer[i].size);
            NRL_TRY(buffer_check(&e->text));
            NRL_TRY(encode_text(e, e->text.text, e->text.size, &out->tokens));
            e->merged |= out->tokens.n < n_prompt ||
                         (n_prompt && memcmp(out->tokens.ids, prompt->ids, n_prompt * sizeof *prompt->ids) != 0);
        }
        end_with_eos(tok, &out->tokens);
        NRL_TRY(mark_answer(out, n_prompt));
    }
    return NRL_OK;
}

/* ---- chat ---- */

/* Counts the messages at the start of a side that are not trained. */
static size_t untrained(const data_encoder *e, const data_sample *s, int side)
{
    const data_messages *chat = &s->chat[side];
    size_t n = s->n_prompt, last = chat->n;
    while (last && strcmp(chat->items[last - 1].role, "assistant") != 0)
        last--;
    return e->options->train_on_last && last && last - 1 > n ? last - 1 : n;
}

/* Refuses rows whose messages request training, or no training, in a way that the options of this run contradict. */
static nrl_status check_training(const data_encoder *e, const data_sample *s, int side)
{
    bool all = e->options->train_on_all && s->n_sides == 1;
    for (size_t i = 0; i < s->chat[side].n; i++) {
        const nrl_message *m = &s->chat[side].items[i];
        if (all && m->train == NRL_MESSAGE_UNTRAINED)
            return nrl_fail(NRL_ERR_DATA,
                            "messages[%zu]: the message has weight 0 or train false, but data.train_on: all trains "
                            "every token\n"
                            "hint: data.train_on: answer",
                            i);
        if (!all && m->train == NRL_MESSAGE_TRAINED && strcmp(m->role, "assistant") != 0)
            return nrl_fail(NRL_ERR_DATA,
                            "messages[%zu]: the message of '%s' has weight 1 or train true, but only messages of "
                            "'assistant' are trained\n"
                            "hint: data.train_on: all trains every token",
                            i, m->role);
    }
    return NRL_OK;
}

/* Encodes what comes before the last trained turn as a model gets it to continue it, and the turn. */
static nrl_status encode_generation(data_encoder *e, const nrl_conversation *whole, chat_ids *out)
{
    const data_encode_options *o = e->options;
    size_t turn = whole->n;
    while (turn > whole->n_prompt && (strcmp(whole->messages[turn - 1].role, "assistant") != 0 ||
                                      whole->messages[turn - 1].train == NRL_MESSAGE_UNTRAINED))
        turn--;
    /* Without such a turn a conversation that waits for one is a prompt, and its answer is empty. */
    const bool has_turn = turn > whole->n_prompt;
    if (!has_turn && turn < whole->n && !strcmp(whole->messages[whole->n - 1].role, "assistant"))
        return chat_render_conversation(o->template, e->scratch, whole, out); /* nothing in it is trained */
    nrl_conversation c = *whole;
    c.n = has_turn ? turn - 1 : whole->n;
    c.n_prompt = 0;
    c.add_generation_prompt = true;
    NRL_TRY(chat_render_conversation(o->template, e->scratch, &c, out));
    const size_t n_prompt = out->tokens.n;
    if (has_turn) {
        const nrl_message *answer = &whole->messages[turn - 1];
        NRL_TRY(tokenizer_encode(o->tokenizer, e->scratch, answer->content, answer->content_size, 0, &out->tokens));
    }
    if (!e->has_end) e->end = chat_template_end(o->template);
    e->has_end = true;
    if (e->end != NRL_TOKEN_NONE)
        nrl_token_ids_push(&out->tokens, e->end, 0);
    else
        end_with_eos(o->tokenizer, &out->tokens);
    return mark_answer(out, n_prompt);
}

static nrl_status encode_chat(data_encoder *e, const data_sample *s)
{
    const data_encode_options *o = e->options;
    if (!o->template)
        return nrl_fail(NRL_ERR_CONFIG, "%s",
                        o->template_problem ? o->template_problem : "rows of messages require data.template");
    for (int i = 0; i < s->n_sides; i++) {
        chat_ids *out = &e->side[i];
        NRL_TRY(check_training(e, s, i));
        const nrl_conversation c = {.messages = s->chat[i].items,
                                    .n = s->chat[i].n,
                                    .n_prompt = untrained(e, s, i),
                                    .tools = s->tools,
                                    .variables = s->template_kwargs};
        /* chat_render needs to know where tokens begin, which cannot be added to a list later */
        if (!out->tokens.want_starts) nrl_token_ids_free(&out->tokens);
        out->tokens.want_starts = true;
        out->tokens.n = 0;
        NRL_TRY(o->generates ? encode_generation(e, &c, out)
                             : chat_render_conversation(o->template, e->scratch, &c, out));
    }
    return NRL_OK;
}

/* ---- ids ---- */

static nrl_status push_ids(const nrl_node *list, const char *what, chat_ids *out)
{
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *node = nrl_node_at(list, i);
        int64_t id = nrl_node_int(node, -1);
        if (nrl_node_kind(node) != NRL_NODE_INT || id < 0 || id > INT32_MAX)
            return nrl_fail(NRL_ERR_DATA, "%s[%zu]: expected a token id, from 0 to %d", what, i, INT32_MAX);
        nrl_token_ids_push(&out->tokens, (int32_t)id, 0);
    }
    return NRL_OK;
}

static nrl_status encode_ids(data_encoder *e, const data_sample *s)
{
    size_t n_prompt = nrl_node_size(s->prompt_ids);
    for (int i = 0; i < s->n_sides; i++) {
        chat_ids *out = &e->side[i];
        out->tokens.n = 0;
        NRL_TRY(push_ids(s->prompt_ids, "prompt ids", out));
        NRL_TRY(push_ids(s->ids[i], "ids", out));
        NRL_TRY(mark_answer(out, n_prompt));
        if (s->labels) {
            for (size_t t = 0; t < out->tokens.n; t++) {
                int64_t label = nrl_node_int(nrl_node_at(s->labels, t), -1);
                if (label != -100 && label != out->tokens.ids[t])
                    return nrl_fail(NRL_ERR_DATA, "labels[%zu] is neither -100 nor the token at this position (%d)", t,
                                    (int)out->tokens.ids[t]);
                out->trained[t] = label != -100;
                if (label == -100 && t && e->options->train_on_all)
                    return nrl_fail(NRL_ERR_DATA,
                                    "labels[%zu] is -100, but data.train_on: all trains every token\n"
                                    "hint: data.train_on: answer",
                                    t);
            }
        }
    }
    return NRL_OK;
}

/* ---- what becomes of it ---- */

static nrl_status check_vocabulary(const data_encoder *e, const nrl_token_ids *ids)
{
    int64_t limit = e->options->vocab_size;
    const tokenizer *tok = e->options->tokenizer;
    for (size_t i = 0; limit && i < ids->n; i++) {
        if (ids->ids[i] < limit) continue;
        uint32_t flags;
        const char *text = tok ? tokenizer_token_text(tok, ids->ids[i], &flags) : NULL;
        return nrl_fail(NRL_ERR_DATA, "token %zu has id %d (%s), outside the model's vocabulary of %" PRId64, i,
                        (int)ids->ids[i], text ? text : "no text", limit);
    }
    return NRL_OK;
}

/* Pairs stay complete: both sides are dropped, or both are truncated. */
static nrl_status apply_limit(data_encoder *e, int n_sides, data_outcome *outcome)
{
    const int64_t limit = e->options->max_length;
    size_t longest = e->side[0].tokens.n;
    if (n_sides == 2 && e->side[1].tokens.n > longest) longest = e->side[1].tokens.n;
    if (!limit || (int64_t)longest <= limit) return NRL_OK;
    if (e->options->overlong == DATA_OVERLONG_ERROR)
        return nrl_fail(NRL_ERR_DATA,
                        "%zu tokens, but data.max_length is %" PRId64
                        "\nhint: raise it, or set data.overlong to drop, truncate or split",
                        longest, limit);
    if (e->options->overlong == DATA_OVERLONG_DROP) *outcome = DATA_TOO_LONG;
    if (e->options->overlong == DATA_OVERLONG_SPLIT) {
        e->piece = (size_t)limit;
        return NRL_OK;
    }
    for (int i = 0; i < n_sides; i++)
        if ((int64_t)e->side[i].tokens.n > limit) e->side[i].tokens.n = (size_t)limit;
    e->truncated = true;
    return NRL_OK;
}

static nrl_status encode_shape(data_encoder *e, const data_sample *s)
{
    if (s->shape == DATA_SHAPE_IDS) return encode_ids(e, s);
    if (!e->options->tokenizer)
        return nrl_fail(NRL_ERR_CONFIG, "rows of text require a tokenizer, but the model has none\n"
                                        "hint: set model.tokenizer, or use rows of input_ids");
    if (!e->scratch) e->scratch = tokenizer_scratch_create(e->options->tokenizer);
    if (s->shape == DATA_SHAPE_CHAT) return encode_chat(e, s);
    e->endless = e->options->tokenizer->info.eos == NRL_TOKEN_NONE;
    return s->shape == DATA_SHAPE_TEXT ? encode_plain(e, s) : encode_prompted(e, s);
}

nrl_status data_encode(data_encoder *e, const data_sample *s, data_outcome *outcome)
{
    e->text.what = "a prompt with its answer";
    e->truncated = false;
    e->piece = 0;
    e->endless = e->merged = false;
    e->identical = data_sample_is_identical(s);
    const bool is_prompt = e->options->generates && (s->shape == DATA_SHAPE_PROMPTED || s->shape == DATA_SHAPE_CHAT);
    *outcome = data_sample_is_empty(s) && !is_prompt ? DATA_EMPTY : DATA_KEPT;
    if (*outcome != DATA_KEPT) return NRL_OK;
    NRL_TRY(encode_shape(e, s));
    for (int i = 0; i < s->n_sides; i++) {
        NRL_TRY(check_vocabulary(e, &e->side[i].tokens));
        chat_ids *ids = &e->side[i];
        if (!ids->tokens.n) continue;
        /* Marks prompts as trained if the user requests it, but never those of pairs, whose prompts cancel out. */
        if (e->options->train_on_all && s->n_sides == 1) memset(ids->trained, 1, ids->tokens.n);
        ids->trained[0] = 0;
    }
    NRL_TRY(apply_limit(e, s->n_sides, outcome));
    for (int i = 0; i < s->n_sides; i++) {
        e->n_trained[i] = 0;
        for (size_t t = 0; t < e->side[i].tokens.n; t++)
            e->n_trained[i] += e->side[i].trained[t];
        if (!e->n_trained[i] && *outcome == DATA_KEPT) *outcome = DATA_UNTRAINABLE;
    }
    return NRL_OK;
}
