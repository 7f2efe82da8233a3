/*
 * model.c - rules for every model: it declares everything that it uses, its forward depends only on
 * its parameters and the batch, and a token sees only itself and earlier tokens of its own segment.
 */
#include "base/node.h"
#include "lives.h"
#include "model_suite.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* States of a token that is computed together with other tokens. */
#define STATE_ERROR 1e-4

/* ---- what a token may see ---- */

/* Compares rows [begin, end) of a with rows of b that start at `other`. */
static void expect_rows(model_suite *s, const char *rule, const model_states *a, int64_t begin, int64_t end,
                        const model_states *b, int64_t other)
{
    if (!a->good || !b->good) return;
    for (int64_t i = begin * a->width; i < end * a->width; i++) {
        double x = (double)a->states[i], y = (double)b->states[i + (other - begin) * a->width];
        if (!report_check(s->report, is_near(x, y, STATE_ERROR, STATE_ERROR), rule, "token %lld: %.7g, was %.7g",
                          (long long)(i / a->width), x, y))
            return;
    }
}

static model_states *with_token_changed(model_suite *s, int64_t at)
{
    nrl_batch *b = model_suite_batch(s, 0);
    b->tokens[at] = (int32_t)((b->tokens[at] + 1) % s->m->head.weight->dims[0]);
    model_states *o = model_suite_states(s, b, false, "forward succeeds");
    batch_free(b);
    return o;
}

static void check_sight(model_suite *s, const model_states *base)
{
    int64_t n = model_lengths[0] + model_lengths[1];
    nrl_batch *b = model_suite_batch(s, 1);
    model_states *turned = model_suite_states(s, b, false, "forward succeeds");
    model_states *last = with_token_changed(s, model_lengths[0] - 1), *first = with_token_changed(s, 0);
    expect_rows(s, "a segment does not depend on its position", turned, model_lengths[1], n, base, 0);
    expect_rows(s, "a segment does not depend on its position", turned, 0, model_lengths[1], base, model_lengths[0]);
    expect_rows(s, "no token sees a later one", last, 0, model_lengths[0] - 1, base, 0);
    expect_rows(s, "segments do not see each other", last, model_lengths[0], n, base, model_lengths[0]);
    expect_rows(s, "segments do not see each other", first, model_lengths[0], n, base, model_lengths[0]);
    bool reached = first->good && memcmp(first->states + (model_lengths[0] - 1) * first->width,
                                         base->states + (model_lengths[0] - 1) * base->width,
                                         (size_t)base->width * sizeof *base->states);
    report_check(s->report, reached || !first->good, "a token sees earlier ones",
                 "the last of a segment does not change with the first");
    batch_free(b);
    free(turned);
    free(last);
    free(first);
}

/* ---- instances ---- */

static void check_declarations(model_suite *s, const model *other)
{
    bool same = other->n_params == s->m->n_params && other->n_units == s->m->n_units;
    for (int i = 0; same && i < other->n_params; i++) {
        const nrl_param *a = s->m->params[i], *b = other->params[i];
        same = !strcmp(a->name, b->name) && a->n_dims == b->n_dims &&
               !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims);
    }
    report_check(s->report, same, "equal configs give equal layouts", "parameters differ");
}

static void check_instances(model_suite *s, nrl_batch *b, const model_states *base)
{
    model *other;
    if (!report_ok(s->report, model_create(s->table, s->config, &other), "instances live side by side")) return;
    check_declarations(s, other);
    model_states *beside = model_suite_states(s, b, false, "instances live side by side");
    model_destroy(other);
    model_states *after = model_suite_states(s, b, false, "instances live side by side");
    bool same = beside->good && after->good && !memcmp(beside->states, base->states, sizeof base->states) &&
                !memcmp(after->states, base->states, sizeof base->states);
    report_check(s->report, same, "equal calls give bit-identical results", "states differ");
    free(beside);
    free(after);
}

static void check_refusal(model_suite *s)
{
    nrl_node *empty = node_new(&s->memory, NRL_NODE_MAP);
    void *self = NULL;
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->create(empty, &self);
    report_check(s->report, st != NRL_OK && *nrl_error_text(), "a config without sizes is refused with an error text",
                 "status %d, '%s'", (int)st, nrl_error_text());
    if (st == NRL_OK && s->table->destroy) s->table->destroy(self);
}

static void run_rules(model_suite *s)
{
    nrl_batch *b = model_suite_batch(s, 0);
    if (!report_begin(s->report, "forward succeeds")) return;
    model_states *base = model_suite_states(s, b, false, "forward succeeds");
    report_end(s->report, CASE_NEW);
    if (base->good) {
        REPORT_CASE(s->report, "a unit uses only what it declares")
        free(model_suite_states(s, b, true, "a unit uses only what it declares"));
        REPORT_CASE(s->report, "instances live side by side") check_instances(s, b, base);
        REPORT_CASE(s->report, "no token sees a later one") check_sight(s, base);
        REPORT_CASE(s->report, "gradients agree with finite differences") model_suite_gradients(s);
        REPORT_CASE(s->report, "two ranks compute what one rank computes") model_suite_divided(s);
    }
    REPORT_CASE(s->report, "a config without sizes is refused with an error text") check_refusal(s);
    free(base);
    batch_free(b);
}

static bool create_once(void *user)
{
    model_suite *s = user;
    void *self;
    if (s->table->create(s->config, &self) != NRL_OK) return false;
    s->table->destroy(self);
    return true;
}

static bool check_table(model_suite *s)
{
    const nrl_model *t = s->table;
    return report_check(s->report, t->model_types && t->model_types[0], "a model names the types it serves",
                        "model_types is empty");
}

void conformance_model(const nrl_model *table, const conformance_setup *setup, conformance_report *report)
{
    model_suite s = {.table = table, .config = setup->model_config, .report = report, .setup = setup};
    if (!check_table(&s) || !compute_open(&s.compute, setup, report)) return;
    nrl_status st = model_suite_config(&s);
    if (st == NRL_OK) st = model_create(table, s.config, &s.m);
    if (report_ok(report, st, "an instance is created and declares its layout") &&
        report_check(report, s.m->n_params <= MODEL_MAX_PARAMS, "the config is small", "%d parameters",
                     s.m->n_params)) {
        if (report_ok(report, model_suite_bind(&s), "parameters have room")) run_rules(&s);
        REPORT_CASE(report, "instances come and go") lives_check(report, create_once, &s);
        model_suite_free(&s);
    }
    model_destroy(s.m);
    compute_close(&s.compute);
    arena_free(&s.memory);
}
