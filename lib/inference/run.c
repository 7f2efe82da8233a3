/*
 * run.c - samples, logits and log-probs with the current weights of an open run. All ranks call each of these
 * with the same arguments.
 */
#include "inference/generator.h"
#include "inference/logits.h"
#include "run/internal.h"
#include "run/step/ranks.h"
#include <nrl/inference.h>

static nrl_status check_logits(const session *se, const char *call)
{
    if (!se->model->drops_head) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot %s: the model has a score head instead of an output layer, so it has no logits", call);
}

nrl_status nrl_run_sample(nrl_run *r, const char *const *prompts, size_t n, const nrl_sample_options *options,
                          char **texts, int64_t *n_tokens)
{
    session *se = &r->session;
    NRL_TRY(hooks_check_call(&r->hooks, "sample"));
    NRL_TRY(check_logits(se, "sample"));
    if (!se->tokenizer) return nrl_fail(NRL_ERR_CONFIG, "sampling requires a tokenizer: set model.tokenizer");
    bool chat = generator_needs_template(options);
    if (chat && !se->chat)
        return nrl_fail(NRL_ERR_CONFIG, "a chat prompt requires data.template: %s", se->chat_problem);
    nrl_status st = ranks_agree(se->mesh, &se->shards, "sample", (uint64_t)n);
    if (st != NRL_OK) return run_end_call(r, st);
    nrl_generator *g = NULL; /* of this call, because weights change */
    const nrl_generator_options all = {.size = sizeof all};
    st = strategy_begin(&se->strategy, STRATEGY_AVERAGE, se->ctx);
    if (st == NRL_OK) st = strategy_begin(&se->strategy, STRATEGY_HOLD, se->ctx);
    if (st == NRL_OK) st = generator_create(&se->work, se->tokenizer, &se->chat, &all, &g);
    if (st == NRL_OK) st = generator_sample(g, prompts, n, options, texts, n_tokens);
    nrl_generator_close(g);
    st = strategy_end(&se->strategy, STRATEGY_HOLD, se->ctx, st);
    return run_end_call(r, strategy_end(&se->strategy, STRATEGY_AVERAGE, se->ctx, st));
}

static nrl_status inference_logits(nrl_run *r, const char *call, const int32_t *ids, const int64_t *lengths, size_t n,
                                   float *logits, float *logps)
{
    session *se = &r->session;
    NRL_TRY(hooks_check_call(&r->hooks, call));
    NRL_TRY(check_logits(se, call));
    nrl_status st = ranks_agree(se->mesh, &se->shards, call, (uint64_t)n);
    if (st != NRL_OK) return run_end_call(r, st);
    st = strategy_begin(&se->strategy, STRATEGY_AVERAGE, se->ctx);
    if (st == NRL_OK) st = logits_compute(&se->work, ids, lengths, n, logits, logps);
    return run_end_call(r, strategy_end(&se->strategy, STRATEGY_AVERAGE, se->ctx, st));
}

nrl_status nrl_run_logits(nrl_run *r, const int32_t *ids, const int64_t *lengths, size_t n, float *logits)
{
    return inference_logits(r, "compute logits", ids, lengths, n, logits, NULL);
}

nrl_status nrl_run_logps(nrl_run *r, const int32_t *ids, const int64_t *lengths, size_t n, float *logps)
{
    return inference_logits(r, "compute log-probs", ids, lengths, n, NULL, logps);
}

int32_t nrl_run_vocab_size(const nrl_run *r)
{
    return r->session.model->drops_head ? 0 : logits_vocab(&r->session.work);
}

const nrl_open_tokenizer *nrl_run_tokenizer(const nrl_run *r)
{
    return r->session.tokenizer ? &r->session.tokenizer->open : NULL;
}
