/*
 * parallel_walk.c - a step of the toy: actions with made-up gradients, in the order of core/run.
 * Checks WEIGHT at each enter, and gradients after finish.
 */
#include "parallel.h"
#include <string.h>

#define RULE_WORK "WEIGHT is whole and current inside an action"
#define RULE_GRAD "gradients are the sum over ranks"
#define RULE_BITS "gradients have the same bits on any number of ranks"

bool toy_ok(toy *t, nrl_status st, const char *rule)
{
    if (t->over) return false;
    t->over = !report_check(t->report, st == NRL_OK, rule, "rank %d of %d: status %d: %s", t->rank, t->world, (int)st,
                            st == NRL_OK ? "" : nrl_error_text());
    return !t->over;
}

/* ---- gradients ---- */

/* Gradients are those of batches: one for each rank, or for each shard. */
static bool is_empty(const toy *t, int32_t batch, const toy_course *c)
{
    return c->empty_rank && batch == t->world * t->n_shards - 1 && !t->g->staged;
}

static bool gives(const nrl_param *p, int32_t rank)
{
    if (!p->trained || !strcmp(p->name, "extra")) return false;
    return strcmp(p->name, "scalar") || rank == 0;
}

/* The contribution of one action. */
static double piece(const nrl_param *p, int64_t i, const toy_course *c, int32_t batch, int32_t micro_batch,
                    int32_t unit)
{
    uint64_t h = (uint64_t)(p->index * 131 + i * 17 + c->step * 29 + batch * 11 + micro_batch * 5 + unit) * 2654435761u;
    return ((double)(h >> 7 & 7) - 3) * (c->fractions ? 1.0 / (double)(1 + (h >> 10 & 1023)) : 1);
}

static bool unit_has(const toy *t, int u, const nrl_param *p)
{
    for (int32_t k = 0; k < t->units[u].n_uses; k++)
        if (t->units[u].uses[k] == p) return true;
    return false;
}

static double gradient_of(const toy *t, const nrl_param *p, int64_t i, const toy_course *c, int32_t batch)
{
    double sum = 0;
    if (is_empty(t, batch, c) || !gives(p, batch)) return 0;
    for (int u = 0; u < TOY_UNITS; u++)
        for (int32_t m = 0; unit_has(t, u, p) && m < c->n_micro_batches; m++)
            sum += piece(p, i, c, batch, m, u);
    return sum;
}

/* Stages share their batches: those of rank 0. */
static int32_t batches_of(const toy *t)
{
    if (t->g->staged) return 0;
    return t->strided ? t->shard * t->world + t->rank : t->rank * t->n_shards + t->shard;
}

static double expected(const toy *t, const nrl_param *p, int64_t i, const toy_course *c)
{
    double sum = 0;
    if (t->plan.local_steps || t->g->staged) return gradient_of(t, p, i, c, batches_of(t));
    for (int32_t b = 0; b < t->world * t->n_shards; b++)
        sum += gradient_of(t, p, i, c, b);
    return sum;
}

/* That of this rank's batch; of all batches for an expert, whose rank gets the tokens of all. */
static double pieces(const toy *t, const nrl_param *p, int64_t i, const toy_course *c, const nrl_action *v)
{
    double sum = 0;
    if (!p->expert) return piece(p, i, c, batches_of(t), v->micro_batch, v->unit);
    for (int32_t b = 0; b < t->world; b++)
        if (!is_empty(t, b, c) && gives(p, b)) sum += piece(p, i, c, b, v->micro_batch, v->unit);
    return sum;
}

static bool has_gradient(const toy *t, const nrl_param *p, const toy_course *c)
{
    if (p->expert) return p->numel > 0 && gives(p, 0);
    return !is_empty(t, batches_of(t), c) && gives(p, batches_of(t));
}

static nrl_status add_gradient(toy *t, nrl_param *p, const nrl_action *v, const toy_course *c)
{
    nrl_tensor *acc = p->slots[NRL_SLOT_GRAD];
    double old[TOY_LARGEST] = {0};
    float sum[TOY_LARGEST];
    if (!acc || nrl_tensor_numel(acc) != p->numel || nrl_tensor_dtype(acc) != NRL_DTYPE_F32)
        return nrl_fail(NRL_ERR_PLUGIN, "GRAD of '%s' is not bound whole and f32 in the backward of unit '%s'", p->name,
                        t->units[v->unit].name);
    if (!p->grad_is_empty) NRL_TRY(nrl_tensor_fetch(t->compute.ctx, acc, old, p->numel));
    for (int64_t i = 0; i < p->numel; i++)
        sum[i] = (float)(old[i] + pieces(t, p, i, c, v));
    p->grad_is_empty = false;
    return tensor_write(t->compute.ctx, acc, sum);
}

/* Where a backward is split, every second parameter of the unit gets its gradient later. */
static bool backward(toy *t, const nrl_action *v, const toy_course *c)
{
    const bool split = v->splits || v->pass == NRL_PASS_BACKWARD_WEIGHT;
    nrl_status st = NRL_OK;
    for (int32_t k = 0; k < v->n_uses && st == NRL_OK; k++)
        if (has_gradient(t, v->uses[k], c) && (!split || k % 2 == (v->pass == NRL_PASS_BACKWARD_WEIGHT)))
            st = add_gradient(t, v->uses[k], v, c);
    return toy_ok(t, st, "GRAD is there in a backward action");
}

/* ---- WEIGHT ---- */

static bool check_work(toy *t, const nrl_action *v, const nrl_param *p)
{
    const nrl_tensor *work = p->slots[NRL_SLOT_WEIGHT];
    const nrl_tensor *master = p->slots[NRL_SLOT_MASTER];
    double values[TOY_LARGEST], own[TOY_LARGEST];
    if (p->expert && !p->numel) return true; /* another rank's */
    if (!report_check(
            t->report, work && nrl_tensor_numel(work) == p->numel && (uint32_t)nrl_tensor_dtype(work) == t->dtype,
            RULE_WORK, "unit '%s': '%s' has %lld elements of %s", t->units[v->unit].name, p->name,
            work ? (long long)nrl_tensor_numel(work) : 0LL, work ? nrl_dtype_name(nrl_tensor_dtype(work)) : "nothing"))
        return !(t->over = true);
    if (!toy_ok(t, nrl_tensor_fetch(t->compute.ctx, work, values, p->numel), RULE_WORK)) return false;
    /* A strategy with local steps changes masters when ranks meet. */
    bool moves = t->plan.local_steps && p->trained && master && nrl_tensor_numel(master) == p->numel;
    if (moves && !toy_ok(t, nrl_tensor_fetch(t->compute.ctx, master, own, p->numel), RULE_WORK)) return false;
    for (int64_t i = 0; i < p->numel; i++) {
        double want = moves ? own[i] : (double)toy_value(p, i, p->trained ? t->version : t->loaded);
        double room = moves && t->dtype != NRL_DTYPE_F32 ? 0x1p-8 : 1e-6; /* of a rounding to bf16 */
        report_check(t->report, is_near(values[i], want, room, room), RULE_WORK,
                     "rank %d of %d, %s, unit '%s', pass %u: element %lld of '%s' is %g, expected %g", t->rank,
                     t->world, nrl_dtype_name((nrl_dtype)t->dtype), t->units[v->unit].name, v->pass, (long long)i,
                     p->name, values[i], want);
    }
    return true;
}

/* ---- the walk ---- */

static void push(toy *t, nrl_pass pass, int32_t unit, int32_t micro_batch, bool last)
{
    nrl_action *v = &t->actions[t->n_actions++];
    *v = (nrl_action){.size = sizeof(nrl_action),
                      .pass = pass,
                      .instance = t->plan.instance,
                      .unit = unit,
                      .micro_batch = micro_batch,
                      .n_uses = t->units[unit].n_uses,
                      .shard = t->shard,
                      .uses = t->units[unit].uses};
    if (!last) return;
    v->final = t->final[unit];
    v->n_final = t->n_final[unit];
}

static void schedule(toy *t, const toy_course *c, bool train)
{
    t->n_actions = 0;
    for (int32_t m = 0; m < c->n_micro_batches; m++) {
        for (int32_t u = 0; u < TOY_UNITS; u++)
            push(t, NRL_PASS_FORWARD, u, m, false);
        for (int32_t u = TOY_UNITS - 1; u >= 0 && train; u--) {
            if (c->recompute && u == 1) push(t, NRL_PASS_RECOMPUTE, u, m, false);
            push(t, NRL_PASS_BACKWARD, u, m, m == c->n_micro_batches - 1 && !c->split);
            t->actions[t->n_actions - 1].splits = c->split;
        }
        for (int32_t u = TOY_UNITS - 1; u >= 0 && train && c->split; u--)
            push(t, NRL_PASS_BACKWARD_WEIGHT, u, m, m == c->n_micro_batches - 1);
    }
    for (int32_t i = 0; i < t->n_actions; i++)
        t->actions[i].n_actions = t->n_actions;
}

static bool action(toy *t, int32_t i, const toy_course *c)
{
    const nrl_parallel *s = t->g->table;
    const nrl_action *v = &t->actions[i];
    if (s->enter && !toy_ok(t, s->enter(t->self, t->compute.ctx, &t->wide->action, i), "enter succeeds")) return false;
    for (int32_t k = 0; k < v->n_uses && v->pass != NRL_PASS_BACKWARD_WEIGHT; k++)
        if (!check_work(t, v, v->uses[k])) return false;
    if (v->pass >= NRL_PASS_BACKWARD && !backward(t, v, c)) return false;
    return !s->leave || toy_ok(t, s->leave(t->self, t->compute.ctx, &t->wide->action, i), "leave succeeds");
}

static bool walk(toy *t, const toy_course *c, bool train)
{
    if (!t->g->staged)
        schedule(t, c, train);
    else if (!toy_schedule_stage(t, c->n_micro_batches, train))
        return false;
    memset(t->wide, 0xff, sizeof t->wide);
    for (int32_t i = 0; i < t->n_actions; i++) {
        t->wide[i].action = t->actions[i];
        t->wide[i].action.size = sizeof *t->wide;
    }
    for (int32_t i = 0; i < t->n_actions; i++)
        if (!action(t, i, c)) return false;
    return true;
}

/* Fills gradients that nothing reached with zeros, as core/run/step/step.c does before `finish`. */
static nrl_status fill_fresh(toy *t)
{
    for (int i = 0; i < TOY_PARAMS; i++) {
        nrl_param *p = &t->params[i];
        nrl_tensor *acc = p->slots[NRL_SLOT_GRAD];
        if (!p->grad_is_empty || !acc) continue;
        NRL_TRY(nrl_tensor_fill(t->compute.ctx, acc, 0));
        p->grad_is_empty = false;
    }
    return NRL_OK;
}

static bool check_gradient(toy *t, const nrl_param *p, const toy_course *c)
{
    int64_t global[TOY_LARGEST], n = toy_local(t, t->rank, p, global);
    const nrl_tensor *grad = p->slots[NRL_SLOT_GRAD_SHARD];
    double values[TOY_LARGEST];
    const char *rule = c->empty_rank ? "an empty micro-batch adds nothing"
                       : !strcmp(p->name, "extra") || !strcmp(p->name, "orphan")
                           ? "a parameter that nothing reached has gradient zero"
                           : RULE_GRAD;
    if (!n) return true;
    if (!report_check(t->report, grad && nrl_tensor_numel(grad) == n, "GRAD_SHARD is bound as the layout says",
                      "'%s' has %lld elements, expected %lld", p->name, grad ? (long long)nrl_tensor_numel(grad) : 0LL,
                      (long long)n))
        return !(t->over = true);
    if (!toy_ok(t, nrl_tensor_fetch(t->compute.ctx, grad, values, n), rule)) return false;
    for (int64_t i = 0; i < n; i++) {
        double want = expected(t, p, global[i], c);
        report_check(t->report, is_near(values[i], want, 1e-6, 1e-6), rule,
                     "%d ranks, step %lld, %d micro-batches: element %lld of '%s' is %g, expected %g", t->world,
                     (long long)c->step, c->n_micro_batches, (long long)global[i], p->name, values[i], want);
    }
    return true;
}

/* Compares with the bits of one rank, which ran first. */
static bool check_bits(toy *t, const nrl_param *p)
{
    static float first[TOY_PARAMS][TOY_LARGEST];
    int64_t global[TOY_LARGEST], n = toy_local(t, t->rank, p, global);
    const nrl_tensor *grad = p->slots[NRL_SLOT_GRAD_SHARD];
    double values[TOY_LARGEST];
    if (!n) return true;
    if (!toy_ok(t, nrl_tensor_fetch(t->compute.ctx, grad, values, n), RULE_BITS)) return false;
    for (int64_t i = 0; i < n; i++) {
        float *want = &first[p->index][global[i]], found = (float)values[i];
        if (t->world == 1) *want = found;
        report_check(t->report, !memcmp(&found, want, sizeof found), RULE_BITS,
                     "%d ranks, %d shards of the batch: element %lld of '%s' is %.9g, and %.9g on one rank", t->world,
                     t->world * t->n_shards, (long long)global[i], p->name, (double)found, (double)*want);
    }
    return true;
}

bool toy_step(toy *t, const toy_course *c)
{
    const nrl_parallel *s = t->g->table;
    for (int i = 0; i < TOY_PARAMS; i++)
        nrl_param_set_grad_is_empty(&t->params[i], t->params[i].trained);
    for (t->shard = 0; t->shard < t->n_shards; t->shard++)
        if (!walk(t, c, true)) return false;
    t->shard = 0;
    if (!toy_ok(t, fill_fresh(t), RULE_GRAD)) return false;
    if (s->finish && !toy_ok(t, s->finish(t->self, t->compute.ctx), "finish succeeds")) return false;
    for (int i = 0; i < TOY_PARAMS; i++)
        if (t->params[i].trained &&
            !(c->fractions ? check_bits(t, &t->params[i]) : check_gradient(t, &t->params[i], c)))
            return false;
    return true;
}

bool toy_forward(toy *t)
{
    return walk(t, &(toy_course){.n_micro_batches = 1}, false);
}
