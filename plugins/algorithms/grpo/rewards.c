/*
 * rewards.c - see rewards.h. Every rank computes the rewards of its own sequences and has the whole reward model, on
 * the backend of the run.
 */
#include "rewards.h"
#include <math.h>
#include <nrl/inference.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const MODEL_NAME = "model";

struct rewards {
    reward_script *script; /* NULL = none */
    const char *path;      /* of the reward model; "" = none */
    nrl_inference *model;
    const nrl_open_tokenizer *policy; /* the tokenizer that the sequences are from; NULL = none */
    bool has_warned;                  /* of a completion without a reward */
    int32_t n;
    bool is_named;
    const char *names[REWARDS_MAX]; /* [n] */
    double weights[REWARDS_MAX];
};

/* ---- life ---- */

static nrl_status read_weights(rewards *r, const nrl_node *weights)
{
    if (weights && nrl_node_kind(weights) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "reward_weights: expected numbers by name, such as {short: 0.5}");
    for (size_t i = 0; i < nrl_node_size(weights); i++) {
        const char *name = nrl_node_key(weights, i);
        int32_t k = 0;
        while (k < r->n && strcmp(r->names[k], name))
            k++;
        if (k == r->n && !r->is_named)
            return nrl_fail(NRL_ERR_CONFIG,
                            "reward_weights: there is no reward '%s', because the file returns one function without a "
                            "name\nhint: return {%s = function(sample) ... end} in the file",
                            name, name);
        if (k == r->n) {
            char all[REWARDS_MAX * (REWARD_NAME + 2)] = "";
            for (k = 0; k < r->n; k++)
                strcat(strcat(all, k ? ", " : ""), r->names[k]);
            return nrl_fail(NRL_ERR_CONFIG, "reward_weights: there is no reward '%s'; expected one of: %s", name, all);
        }
        r->weights[k] = nrl_node_f64(nrl_node_at(weights, i), NAN);
        if (!isfinite(r->weights[k])) return nrl_fail(NRL_ERR_CONFIG, "reward_weights: '%s': expected a number", name);
    }
    return NRL_OK;
}

static nrl_status list_rewards(rewards *r)
{
    r->is_named = *r->path;
    for (int32_t k = 0; r->script && k < reward_n(r->script); k++) {
        const char *name = reward_name(r->script, k);
        if (*r->path && (!*name || !strcmp(name, MODEL_NAME)))
            return nrl_fail(NRL_ERR_CONFIG,
                            "reward: a function %s beside reward_model, whose score has the name 'model'; expected a "
                            "table of functions with other names",
                            *name ? "of the name 'model'" : "without a name");
        r->is_named |= *name != 0;
        r->names[r->n] = name;
        r->weights[r->n++] = 1;
    }
    if (*r->path) {
        r->names[r->n] = MODEL_NAME;
        r->weights[r->n++] = 1;
    }
    return NRL_OK;
}

nrl_status rewards_create(const char *script, const char *model, const nrl_node *weights, rewards **out)
{
    rewards *r = calloc(1, sizeof *r);
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "no memory for rewards");
    r->path = model;
    nrl_status st = *script ? reward_open(script, &r->script) : NRL_OK;
    if (st == NRL_OK) st = list_rewards(r);
    if (st == NRL_OK) st = read_weights(r, weights);
    if (st == NRL_OK)
        *out = r;
    else
        rewards_destroy(r);
    return st;
}

void rewards_destroy(rewards *r)
{
    if (!r) return;
    nrl_inference_close(r->model);
    reward_close(r->script);
    free(r);
}

/* A check reads no weights: it looks whether the directory is there. */
nrl_status rewards_open_model(rewards *r, const nrl_algorithm_run *run)
{
    const nrl_node *backend = nrl_node_find(run->config, "backend"), *name = nrl_node_find(backend, "name");
    const nrl_inference_options options = {
        .size = sizeof options, .backend = nrl_node_string(name ? name : backend, NULL), .scores = true};
    nrl_status st = NRL_OK;
    if (!*r->path) return NRL_OK;
    r->policy = run->tokenizer;
    if (run->only_checks && access(r->path, F_OK))
        st = nrl_fail(NRL_ERR_CONFIG, "%s: No such file or directory", r->path);
    if (!run->only_checks) st = nrl_inference_open_with(r->path, run->environment, &options, &r->model);
    if (st != NRL_OK) nrl_add_context("reward_model");
    return st;
}

int32_t rewards_n_named(const rewards *r)
{
    return r->is_named ? r->n : 0;
}

const char *rewards_name(const rewards *r, int32_t k)
{
    return r->names[k];
}

/* ---- scores of the model ---- */

/* The ids of a sequence mean the same to both tokenizers, of which only the reward model's may have other files. */
static nrl_status check_ids(const rewards *r, const nrl_rollout *rollout, int64_t i, const nrl_rollout_sequence *q)
{
    const nrl_open_tokenizer *own = nrl_inference_tokenizer(r->model);
    const size_t n = (size_t)(q->n_prompt + q->n_completion);
    char *here = NULL, *there = NULL, place[256];
    if (!own || !r->policy || !strcmp(own->info->hash, r->policy->info->hash)) return NRL_OK;
    nrl_status st = nrl_tokenizer_decode(r->policy, q->ids, n, false, &here, NULL);
    if (st == NRL_OK) st = nrl_tokenizer_decode(own, q->ids, n, false, &there, NULL);
    if (st != NRL_OK || strcmp(here, there)) {
        nrl_rollout_place(rollout, i, place, sizeof place);
        st = nrl_fail(NRL_ERR_CONFIG,
                      "reward_model: %s: its tokenizer decodes a completion of %s to a different text; expected a "
                      "reward model with the tokenizer of the policy",
                      r->path, place);
    }
    nrl_free(here);
    nrl_free(there);
    return st;
}

/* Sequences [first, first + n) */
static nrl_status score_some(const rewards *r, const nrl_rollout *rollout, int64_t first, int64_t n, float *scores)
{
    nrl_rollout_sequence q = {.size = sizeof q};
    int64_t n_ids = 0;
    for (int64_t i = first; i < first + n; i++) {
        nrl_rollout_sequence_fill(rollout, i, &q);
        NRL_TRY(check_ids(r, rollout, i, &q));
        n_ids += q.n_prompt + q.n_completion;
    }
    int32_t *ids = malloc((size_t)(n_ids + 1) * sizeof *ids), *to = ids;
    int64_t *lengths = malloc((size_t)(n + 1) * sizeof *lengths);
    nrl_status st = ids && lengths ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for completions to score");
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        nrl_rollout_sequence_fill(rollout, first + i, &q);
        lengths[i] = q.n_prompt + q.n_completion;
        memcpy(to, q.ids, (size_t)lengths[i] * sizeof *to);
        to += lengths[i];
    }
    if (st == NRL_OK) st = nrl_inference_scores(r->model, ids, lengths, (size_t)n, scores);
    if (st != NRL_OK) nrl_add_context("reward_model: %s", r->path);
    free(ids);
    free(lengths);
    return st;
}

/* What is scored together may change the last bits of a score: reproducible shards are scored apart. */
static nrl_status score_all(const rewards *r, const nrl_rollout *rollout, int64_t n, float *scores)
{
    nrl_rollout_sequence of = {.size = sizeof of}, q = {.size = sizeof q};
    for (int64_t first = 0, end; first < n; first = end) {
        nrl_rollout_sequence_fill(rollout, first, &of);
        for (end = first + 1; end < n; end++) {
            nrl_rollout_sequence_fill(rollout, end, &q);
            if (q.shard != of.shard) break;
        }
        NRL_TRY(score_some(r, rollout, first, end - first, scores + first));
    }
    return NRL_OK;
}

/* ---- all ---- */

nrl_status rewards_compute(rewards *r, const nrl_rollout *rollout, double *values)
{
    nrl_rollout_info info = {.size = sizeof info};
    nrl_rollout_sequence q = {.size = sizeof q};
    int32_t shard = -1;
    nrl_rollout_info_fill(rollout, &info);
    const int64_t n = info.n_sequences, n_values = 1 + rewards_n_named(r);
    float *scores = calloc((size_t)n + 1, sizeof *scores);
    nrl_status st = scores ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for rewards");
    if (st == NRL_OK && r->model && n) st = score_all(r, rollout, n, scores);
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        double each[REWARDS_MAX] = {0}, *to = values + i * n_values;
        nrl_rollout_sequence_fill(rollout, i, &q);
        if (r->script && q.shard != shard) reward_begin(r->script, info.step);
        shard = q.shard;
        if (r->script) st = reward_of(r->script, rollout, i, each);
        if (r->model) each[r->n - 1] = (double)scores[i];
        if (st == NRL_OK && r->model && !isfinite(scores[i]))
            st = nrl_fail(NRL_ERR_CONFIG, "reward_model: %s: a score is %g; expected a finite number", r->path,
                          (double)scores[i]);
        if (st == NRL_OK && r->is_named) memcpy(to + 1, each, (size_t)r->n * sizeof *each);
        int32_t known = 0;
        for (int32_t k = 0; k < r->n; k++) {
            known += !isnan(each[k]);
            to[0] += isnan(each[k]) ? 0 : r->weights[k] * each[k];
        }
        if (known || st != NRL_OK) continue;
        to[0] = (double)NAN;
        if (!r->has_warned) {
            char place[256];
            nrl_rollout_place(rollout, i, place, sizeof place);
            nrl_warn("%s: no function returned a reward for a completion of this row; its advantage is 0", place);
        }
        r->has_warned = true;
    }
    free(scores);
    return st;
}
