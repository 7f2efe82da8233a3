/*
 * fake_run.h - nrl/run.h in a few lines, for tests of the script host: the program's own
 * definitions come before those of the library. A fake run takes as many steps as train.steps says;
 * the loss of step i is 1/i. What a test wants to see is in `fake`.
 */
#ifndef FAKE_RUN_H
#define FAKE_RUN_H
#include "base/json.h"
#include "config/tree.h"
#include "script.h"
#include <math.h>
#include <nrl/inference.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int opened, closed, abandoned, saves, finishes;
    double lr;
    char *config, *state, *places, *prompts, *exported, *stop_reason;
    const char *start_state; /* what a resumed run brings */
    nrl_status open_fails, step_fails;
    nrl_sample_options sample;
} fake;

struct nrl_run {
    int64_t step, total;
    nrl_environment env;
    const nrl_node *config;
    bool stopped;
};

static void fake_set(char **to, const char *text)
{
    free(*to);
    *to = text ? mem_strdup(text) : NULL;
}

static void fake_reset(void)
{
    char **texts[] = {&fake.config, &fake.state, &fake.places, &fake.prompts, &fake.exported, &fake.stop_reason};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fake_set(texts[i], NULL);
    memset(&fake, 0, sizeof fake);
}

/* "key=place " of every scalar in the tree. */
static void fake_note_places(const nrl_node *n, char **places)
{
    if (nrl_node_size(n) && nrl_node_kind(n) != NRL_NODE_STRING) {
        for (size_t i = 0; i < nrl_node_size(n); i++)
            fake_note_places(nrl_node_at(n, i), places);
        return;
    }
    char *more = mem_printf("%s%s=%s ", *places ? *places : "", n->key ? n->key : "-", nrl_node_place(n));
    free(*places);
    *places = more;
}

nrl_status nrl_run_open(nrl_config *given, const nrl_environment *env, nrl_run **out)
{
    const nrl_node *config = nrl_config_root(given);
    fake_set(&fake.config, NULL);
    fake_set(&fake.places, NULL);
    fake.config = json_write(config, 0);
    fake_note_places(config, &fake.places);
    nrl_status st = problems_report(&given->problems);
    if (st != NRL_OK) return st;
    if (fake.open_fails) return nrl_fail(fake.open_fails, "it cannot be opened");
    if (!env->script || strlen(env->script_hash) != 32) return nrl_fail(NRL_ERR_BUG, "no script");
    nrl_run *r = mem_alloc(sizeof *r);
    r->env = *env;
    r->config = config;
    r->total = nrl_node_int(nrl_node_find(nrl_node_find(config, "train"), "steps"), 3);
    fake.opened++;
    *out = r;
    return NRL_OK;
}

void nrl_run_abandon(nrl_run *r, nrl_status st, const char *why)
{
    (void)r;
    (void)why;
    fake.abandoned += st != NRL_OK;
}

void nrl_run_close(nrl_run *r)
{
    if (r) fake.closed++;
    free(r);
}

nrl_status nrl_run_step(nrl_run *r, nrl_run_event *e, bool *done)
{
    static nrl_value values[2];
    *done = r->stopped || r->step >= r->total;
    if (*done) return NRL_OK;
    if (fake.step_fails) return nrl_fail(fake.step_fails, "step %d broke", (int)r->step + 1);
    double loss = 1.0 / (double)++r->step;
    values[0] = (nrl_value){"loss", "nats", loss};
    values[1] = (nrl_value){"rewards/chosen", "1", 0.5};
    *e = (nrl_run_event){
        .kind = NRL_EVENT_STEP, .step = r->step, .loss = loss, .lr = 1e-3, .values = values, .n_values = 2};
    return r->env.event(r->env.event_user, r, e);
}

nrl_status nrl_run_train(nrl_run *r)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    while (!done)
        NRL_TRY(nrl_run_step(r, &e, &done));
    return nrl_run_finish(r);
}

nrl_status nrl_run_finish(nrl_run *r)
{
    const char *path;
    if (fake.finishes++) return NRL_OK;
    return nrl_run_save(r, &path);
}

void nrl_run_stop(nrl_run *r, const char *reason)
{
    fake_set(&fake.stop_reason, reason);
    r->stopped = true;
}

void nrl_run_set_lr(nrl_run *r, double lr)
{
    (void)r;
    fake.lr = lr;
}

int64_t nrl_run_steps_done(const nrl_run *r)
{
    return r->step;
}

int64_t nrl_run_total_steps(const nrl_run *r)
{
    return r->total;
}

nrl_status nrl_run_evaluate(nrl_run *r, const char *file, const nrl_value **values, size_t *n_values)
{
    (void)file;
    static const nrl_value found[] = {{"eval_loss", "nats", 0.25}, {"eval_tokens", "", 12}};
    *values = found;
    *n_values = 2;
    return r->env.event(r->env.event_user, r,
                        &(nrl_run_event){.kind = NRL_EVENT_EVAL, .step = r->step, .values = found, .n_values = 2});
}

nrl_status nrl_run_save(nrl_run *r, const char **path)
{
    fake.saves++;
    *path = "out/checkpoints/step-1";
    return r->env.event(r->env.event_user, r, &(nrl_run_event){.kind = NRL_EVENT_SAVE, .step = r->step, .path = *path});
}

nrl_status nrl_run_export(nrl_run *r, const char *dir)
{
    (void)r;
    fake_set(&fake.exported, dir);
    return NRL_OK;
}

nrl_status nrl_run_sample(nrl_run *r, const char *const *prompts, size_t n, const nrl_sample_options *o, char **texts,
                          int64_t *n_tokens)
{
    (void)r;
    (void)n_tokens;
    fake.sample = *o;
    for (size_t i = 0; i < n; i++)
        texts[i] = mem_printf("%s!", prompts[i]);
    return NRL_OK;
}

const char *nrl_run_state(const nrl_run *r)
{
    (void)r;
    return fake.start_state;
}

void nrl_run_set_state(nrl_run *r, const char *json)
{
    (void)r;
    fake_set(&fake.state, json);
}

const nrl_node *nrl_run_config(const nrl_run *r)
{
    return r->config;
}

const char *nrl_run_out(const nrl_run *r)
{
    (void)r;
    return "runs/fake";
}

#endif
