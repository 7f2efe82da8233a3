/*
 * parallel_toy.c - a model of four units with difficult cases for strategies: a tied embedding, a
 * parameter of two units, a fused one of three parts, one with a single element, a frozen one, one
 * that no backward reaches, one that no unit uses. And the core's part: binding the slots that the
 * strategy did not bind, and loading values.
 */
#include "parallel.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int64_t rows, cols; /* cols 0: a vector */
    bool frozen;
} toy_shape;

enum { TOK = 0, NORM0, QKV, NORM1, UP, SCALAR, NORM2, FROZEN, EXTRA, ORPHAN, BIAS };

static const toy_shape shapes[TOY_PARAMS] = {
    [TOK] = {"tok", 23, 6, false},      [NORM0] = {"norm0", 6, 0, false},  [QKV] = {"qkv", 14, 6, false},
    [NORM1] = {"norm1", 6, 0, false},   [UP] = {"up", 9, 6, false},        [SCALAR] = {"scalar", 1, 0, false},
    [NORM2] = {"norm2", 6, 0, false},   [FROZEN] = {"frozen", 5, 3, true}, [EXTRA] = {"extra", 7, 0, false},
    [ORPHAN] = {"orphan", 3, 5, false}, [BIAS] = {"bias", 3, 0, false},
};

/* The parameters of each unit, terminated by -1. */
static const int unit_uses[TOY_UNITS][8] = {
    {TOK, -1},
    {NORM0, QKV, BIAS, -1},
    {NORM1, UP, SCALAR, EXTRA, BIAS, FROZEN, -1},
    {NORM2, TOK, -1},
};
static const char *const unit_names[TOY_UNITS] = {"embed", "block0", "block1", "head"};

static const double unit_flops[TOY_UNITS] = {0, 504, 324, 828};

/* ---- the model ---- */

/* For a strategy that divides the experts there is one for each rank. */
static int32_t expert_of(int param, int32_t world)
{
    static const int experts[PARALLEL_RANKS] = {UP, NORM1, NORM2, NORM0};
    for (int32_t k = 0; k < world; k++)
        if (experts[k] == param) return k + 1;
    return 0;
}

static void make_params(toy *t)
{
    static const char *const names[] = {"q", "k", "v"};
    static const int64_t rows[] = {6, 4, 4};
    nrl_part *part = t->parts;
    for (int i = 0; i < TOY_PARAMS; i++) {
        const int64_t dims[] = {shapes[i].rows, shapes[i].cols};
        nrl_param *p = t->list[i] = &t->params[i];
        param_init(p, part, shapes[i].name, shapes[i].cols ? 2 : 1, dims);
        p->trained = !shapes[i].frozen && t->plan.train;
        p->expert = t->g->axis->divides == NRL_DIVIDES_EXPERTS ? expert_of(i, t->world) : 0;
        p->index = i;
        if (i == QKV) {
            p->n_parts = 3;
            for (int k = 0; k < 3; k++)
                part[k] = (nrl_part){.name = names[k], .n_dims = 2, .dims = {rows[k], shapes[i].cols}};
        }
        part += p->n_parts;
    }
}

static bool used_before(int unit, int param)
{
    for (int u = 0; u < unit; u++)
        for (int i = 0; unit_uses[u][i] >= 0; i++)
            if (unit_uses[u][i] == param) return true;
    return false;
}

static void make_units(toy *t)
{
    for (int u = 0; u < TOY_UNITS; u++) {
        int n = 0;
        nrl_param **uses = calloc(8, sizeof *uses); /* freed by toy_close */
        for (; unit_uses[u][n] >= 0; n++) {
            nrl_param *p = uses[n] = &t->params[unit_uses[u][n]];
            if (p->trained && !used_before(u, unit_uses[u][n])) t->final[u][t->n_final[u]++] = p;
        }
        t->units[u] = (nrl_unit_uses){.name = unit_names[u], .n_uses = n, .uses = uses};
    }
}

int32_t parallel_shards(const parallel_group *g, bool *strided)
{
    *strided = false;
    return g->table->shards && !g->staged ? g->table->shards(g->setup->options, strided) : 0;
}

bool toy_open(toy *t, const toy_kind *kind)
{
    const nrl_parallel *s = t->g->table;
    const int32_t shards = parallel_shards(t->g, &t->strided);
    t->n_shards = shards > 0 ? shards / t->world : 1;
    t->plan = (nrl_parallel_plan){.size = sizeof t->plan,
                                  .instance = kind->train ? 0 : 1,
                                  .train = kind->train,
                                  .quiet = true,
                                  .compute = kind->work,
                                  .n_states = kind->train ? 1 : 0,
                                  .block = 1,
                                  .n_params = TOY_PARAMS,
                                  .n_units = TOY_UNITS,
                                  .params = t->list,
                                  .units = t->units};
    t->dtype = kind->work;
    make_params(t);
    make_units(t);
    t->plan.unit_flops = unit_flops;
    if (!compute_open(&t->compute, t->g->setup, t->report)) return !(t->over = true);
    if (!toy_ok(t, s->create(t->g->setup->options, t->mesh, &t->self), "an instance is created")) return false;
    nrl_status st = s->plan(t->self, &t->plan);
    for (int i = 0; i < TOY_PARAMS && t->g->axis->divides == NRL_DIVIDES_EXPERTS; i++)
        layout_settle(t->mesh, &t->params[i]);
    return toy_ok(t, st, "a plan is made");
}

/* ---- slots that the core binds ---- */

int64_t toy_local(const toy *t, int32_t rank, const nrl_param *p, int64_t *global)
{
    int64_t n = 0, before = 0;
    for (int k = 0; k < p->n_parts; k++) {
        layout_shard piece = layout_shard_of(t->mesh, rank, &p->parts[k], 0);
        int64_t at = 0, begin, length, numel = 1;
        while (piece_next(&piece, &at, &begin, &length))
            for (int64_t i = 0; i < length && n < TOY_LARGEST; i++)
                global[n++] = before + begin + i;
        for (int d = 0; d < piece.n_dims; d++)
            numel *= piece.dims[d];
        before += numel;
    }
    return n;
}

static nrl_status bind_empty(toy *t, nrl_param *p, nrl_slot slot, nrl_dtype dtype, int64_t n)
{
    nrl_tensor *made;
    if (nrl_param_tensor(p, slot) || !n) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(t->compute.ctx, dtype, n, false, &made));
    t->made[t->n_made++] = made;
    nrl_param_bind(p, slot, made);
    return NRL_OK;
}

static void bind_alias(nrl_param *p, nrl_slot slot, nrl_slot of)
{
    if (!nrl_param_tensor(p, slot)) nrl_param_bind(p, slot, nrl_param_tensor(p, of));
}

static nrl_status bind_trained(toy *t, nrl_param *p)
{
    int64_t local = layout_local_numel(t->mesh, p);
    bool whole = p->expert ? local == p->numel : layout_is_whole(t->mesh, p);
    if (!t->plan.reduces_grads) NRL_TRY(bind_empty(t, p, NRL_SLOT_GRAD, NRL_DTYPE_F32, p->numel));
    if (whole) bind_alias(p, NRL_SLOT_GRAD_SHARD, NRL_SLOT_GRAD);
    if (whole && t->dtype == NRL_DTYPE_F32) bind_alias(p, NRL_SLOT_MASTER, NRL_SLOT_WEIGHT);
    NRL_TRY(bind_empty(t, p, NRL_SLOT_GRAD_SHARD, NRL_DTYPE_F32, local));
    NRL_TRY(bind_empty(t, p, NRL_SLOT_MASTER, NRL_DTYPE_F32, local));
    return bind_empty(t, p, NRL_SLOT_STATE0, NRL_DTYPE_F32, local);
}

static nrl_status bind_rest(toy *t)
{
    for (int i = 0; i < TOY_PARAMS; i++) {
        nrl_param *p = &t->params[i];
        if (!toy_is_held(t, p)) continue;
        if (!t->plan.gathers_weights) NRL_TRY(bind_empty(t, p, NRL_SLOT_WEIGHT, (nrl_dtype)t->dtype, p->numel));
        if (p->trained) NRL_TRY(bind_trained(t, p));
        nrl_param_set_grad_is_empty(p, p->trained);
    }
    return NRL_OK;
}

static size_t live_bytes(const toy *t)
{
    ctx_memory m;
    ctx_memory_use(t->compute.ctx, &m);
    return m.live_bytes;
}

bool toy_bind(toy *t)
{
    const nrl_parallel *s = t->g->table;
    t->live_bytes = live_bytes(t);
    t->bound = true;
    if (s->bind && !toy_ok(t, s->bind(t->self, t->compute.ctx), "bind succeeds")) return false;
    return toy_ok(t, bind_rest(t), "the core can bind the remaining slots after bind");
}

/* ---- unbind ---- */

static bool is_own(const toy *t, const nrl_tensor *x)
{
    for (int i = 0; i < t->n_made; i++)
        if (t->made[i] == x) return true;
    return false;
}

static void unbind_all(toy *t)
{
    for (int i = 0; i < TOY_PARAMS; i++)
        for (int slot = NRL_SLOT_WEIGHT; slot < NRL_SLOT_COUNT; slot++) {
            const nrl_tensor *x = t->params[i].slots[slot];
            report_check(t->report, !x || is_own(t, x), "unbind gives every slot back", "slot %d of '%s' is bound",
                         slot, t->params[i].name);
            nrl_param_bind(&t->params[i], (nrl_slot)slot, NULL);
        }
    for (int i = 0; i < t->n_made; i++)
        nrl_tensor_free(t->compute.ctx, t->made[i]);
    t->n_made = 0;
}

/* The toy clears the slots that it made aliases of a strategy's tensor. */
static void drop_aliases(toy *t)
{
    for (int i = 0; i < TOY_PARAMS; i++) {
        nrl_param *p = &t->params[i];
        if (p->slots[NRL_SLOT_GRAD_SHARD] == p->slots[NRL_SLOT_GRAD]) nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, NULL);
        if (p->slots[NRL_SLOT_MASTER] == p->slots[NRL_SLOT_WEIGHT]) nrl_param_bind(p, NRL_SLOT_MASTER, NULL);
    }
}

void toy_close(toy *t)
{
    const nrl_parallel *s = t->g->table;
    if (t->bound) {
        drop_aliases(t);
        if (s->unbind) s->unbind(t->self, t->compute.ctx);
        unbind_all(t);
        report_check(t->report, live_bytes(t) == t->live_bytes, "unbind frees everything allocated since bind",
                     "%lld bytes are not freed", (long long)live_bytes(t) - (long long)t->live_bytes);
    }
    if (t->self) s->destroy(t->self);
    if (t->compute.ctx) compute_close(&t->compute);
    for (int u = 0; u < TOY_UNITS; u++)
        free((void *)(uintptr_t)t->units[u].uses);
}

/* ---- values ---- */

float toy_value(const nrl_param *p, int64_t i, int64_t version)
{
    uint64_t h = (uint64_t)(p->index * 1009 + i * 31 + version * 7) * 2654435761u;
    return (float)((int64_t)(h >> 8 & 31) - 16) / 16;
}

static nrl_status write_values(toy *t, nrl_param *p, nrl_tensor *to, int64_t version)
{
    int64_t global[TOY_LARGEST], n = nrl_tensor_numel(to);
    float values[TOY_LARGEST];
    nrl_tensor *made;
    if (n == p->numel)
        for (int64_t i = 0; i < n; i++)
            global[i] = i;
    else if (toy_local(t, t->rank, p, global) != n)
        return nrl_fail(NRL_ERR_BUG, "'%s' is bound to %lld elements, its layout says %lld", p->name, (long long)n,
                        (long long)layout_local_numel(t->mesh, p));
    for (int64_t i = 0; i < n; i++)
        values[i] = toy_value(p, global[i], version);
    NRL_TRY(nrl_tensor_from_host(t->compute.ctx, NRL_DTYPE_F32, 1, &n, values, &made));
    return nrl_tensor_copy(t->compute.ctx, made, to);
}

static nrl_status load_param(toy *t, nrl_param *p, bool update)
{
    nrl_tensor *master = p->slots[NRL_SLOT_MASTER], *work = p->slots[NRL_SLOT_WEIGHT];
    nrl_tensor *exact = master ? master : work;
    if (!exact || (update && !p->trained)) return NRL_OK;
    NRL_TRY(write_values(t, p, exact, t->version));
    /* Optimizers round an unsharded MASTER to a WEIGHT of another dtype; so does loading if no
     * strategy of the data axis does it. */
    bool rounds =
        (update || t->g->staged) && work && work != exact && nrl_tensor_numel(work) == nrl_tensor_numel(exact);
    return rounds ? nrl_master_round(t->compute.ctx, exact, work) : NRL_OK;
}

bool toy_load(toy *t, int64_t version, int64_t step)
{
    nrl_status st = NRL_OK;
    t->version = version;
    if (step == 0) t->loaded = version;
    ctx_scope_begin(t->compute.ctx);
    for (int i = 0; i < TOY_PARAMS && st == NRL_OK; i++) {
        st = load_param(t, &t->params[i], step > 0);
        nrl_param_touch(&t->params[i]);
    }
    ctx_scope_end(t->compute.ctx);
    if (!toy_ok(t, st, "slots are as large as the layout says")) return false;
    const nrl_parallel *s = t->g->table;
    return !s->updated || toy_ok(t, s->updated(t->self, t->compute.ctx, step), "updated succeeds");
}
