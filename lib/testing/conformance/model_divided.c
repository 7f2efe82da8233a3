/*
 * model_divided.c - a model on two ranks that share each layer, as the axis `tensor` divides it: two threads with a
 * shard of the parameters each, which answer the tp_regions by sums. Log-probs and gradients are those of one rank. A
 * model that declares token_shards does so once more with a part of the tokens on each rank.
 */
#include "model_suite.h"
#include <nrl/custom_op.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Sums of f32 in another order, through two layers. */
#define RELATIVE 1e-3
#define ABSOLUTE 1e-4

#define RULE_LOSS "two ranks compute what one rank computes"
#define RULE_GRADIENTS "two ranks have the gradients of one rank"
#define RULE_TOKENS "ranks with parts of the tokens compute what one rank computes"
#define RULE_TOKEN_GRADIENTS "ranks with parts of the tokens have the gradients of one rank"

enum { RANKS = 2, WAIT_SECONDS = 20 };

/* Both ranks come here with their numbers. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const float *numbers[RANKS];
    int64_t n[RANKS];
    uint32_t region[RANKS];
    int here;
    int64_t round;
    bool broken; /* a rank has failed, or they call different regions */
} meeting;

typedef struct {
    model_suite s;
    conformance_report report;
    meeting *m;
    int rank;
    bool has_part; /* of the tokens */
    double loss;
    bool is_done;
    pthread_t thread;
} half;

/* Waits until both ranks are here. */
static bool meet(meeting *m)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_SECONDS;
    pthread_mutex_lock(&m->lock);
    int64_t round = m->round;
    if (++m->here == RANKS) {
        m->here = 0;
        m->round++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->round == round && !m->broken)
        if (pthread_cond_timedwait(&m->changed, &m->lock, &end)) m->broken = true;
    bool met = !m->broken;
    pthread_mutex_unlock(&m->lock);
    return met;
}

static void break_off(meeting *m)
{
    pthread_mutex_lock(&m->lock);
    m->broken = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* *all: the numbers of both ranks, one after the other, malloc'd. Both have n, or those of a rank's tokens. */
static nrl_status exchange(half *h, uint32_t region, const nrl_tensor *x, bool uneven, float **all)
{
    meeting *m = h->m;
    m->numbers[h->rank] = nrl_tensor_mat(x).data;
    m->n[h->rank] = nrl_tensor_numel(x);
    m->region[h->rank] = region;
    if (!meet(m)) return nrl_fail(NRL_ERR_PLUGIN, "only one of two ranks comes to a tp_region");
    bool same = m->region[0] == m->region[1] && (uneven || m->n[0] == m->n[1]);
    *all = mem_alloc((size_t)(m->n[0] + m->n[1]) * sizeof **all);
    for (int r = 0; r < RANKS && same; r++)
        memcpy(*all + r * m->n[0], m->numbers[r], (size_t)m->n[r] * sizeof **all);
    if (!meet(m)) same = false;
    return same ? NRL_OK : nrl_fail(NRL_ERR_PLUGIN, "two ranks come to different tp_regions");
}

/* The first rank has the smaller part. */
static void tokens(void *user, int64_t n, int64_t *begin, int64_t *end)
{
    const half *h = user;
    *begin = h->rank ? n / 2 : 0;
    *end = h->rank ? n : n / 2;
}

/* With parts of the tokens: the rows of both ranks, or this rank's rows of x or of the sum. */
static nrl_status answer_tokens(half *h, nrl_ctx *ctx, uint32_t region, bool back, nrl_tensor *x, nrl_tensor **y)
{
    bool goes_in = region == NRL_TP_REGION_COLUMN_IN || region == NRL_TP_REGION_WHOLE_IN, gathers = goes_in != back;
    bool is_whole = region == NRL_TP_REGION_WHOLE_IN || region == NRL_TP_REGION_WHOLE_OUT;
    int64_t n = nrl_batch_n_tokens(nrl_ctx_batch(ctx)), begin, end, cols = nrl_tensor_mat(x).cols;
    float *all;
    tokens(h, n, &begin, &end);
    const int64_t dims[] = {gathers ? n : end - begin, cols};
    NRL_TRY(exchange(h, region, x, gathers, &all));
    for (int64_t i = 0; i < n * cols && !gathers; i++)
        all[i] = is_whole ? ((const float *)nrl_tensor_mat(x).data)[i] : all[i] + all[n * cols + i];
    const float *from = gathers ? all : all + begin * cols;
    nrl_status st = NRL_OK;
    if (*y != x)
        st = tensor_write(ctx, *y, from);
    else
        st = nrl_tensor_from_host(ctx, nrl_tensor_dtype(x), 2, dims, from, y);
    free(all);
    return st;
}

/* ctx_tp_regions */
static nrl_status answer(void *user, nrl_ctx *ctx, uint32_t region, bool back, nrl_tensor *x, nrl_tensor **y)
{
    half *h = user;
    const int64_t n = nrl_tensor_numel(x), both = RANKS * n;
    bool is_copy = region == NRL_TP_REGION_COLUMN_IN || region == NRL_TP_REGION_HEAD_IN;
    float *all;
    if (h->has_part && region != NRL_TP_REGION_HEAD_STATS && region != NRL_TP_REGION_HEAD_IN &&
        region != NRL_TP_REGION_SUM)
        return answer_tokens(h, ctx, region, back, x, y);
    if (region != NRL_TP_REGION_HEAD_STATS && is_copy != back) return NRL_OK; /* copy_to; backward of reduce_from */
    NRL_TRY(exchange(h, region, x, false, &all));
    nrl_status st = NRL_OK;
    if (region == NRL_TP_REGION_HEAD_STATS)
        st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &both, all, y);
    else
        for (int64_t i = 0; i < n; i++)
            ((float *)nrl_tensor_mat(x).data)[i] = all[i] + all[n + i];
    free(all);
    return st;
}

/* ---- shards ---- */

static int dimension_of(const nrl_param *p)
{
    if (p->tp == NRL_TP_ROW) return 1;
    if (p->tp == NRL_TP_KEY_VALUE) return 0;
    return p->tp == NRL_TP_COLUMN || (p->tp == NRL_TP_VOCAB && p->dims[0] % RANKS == 0) ? 0 : -1;
}

static int64_t groups_of(const nrl_part *part, int dim)
{
    return part->groups > 1 && dim == 0 ? part->groups : 1;
}

/* Whether each rank gets the same share of everything that is divided, and something is. */
static bool is_divisible(const model *m)
{
    bool some = false;
    for (int i = 0; i < m->n_params; i++) {
        const nrl_param *p = m->params[i];
        int dim = dimension_of(p);
        for (int k = 0; k < p->n_parts && dim >= 0; k++)
            if (p->parts[k].dims[dim] % (RANKS * groups_of(&p->parts[k], dim))) return false;
        some = some || (dim >= 0 && p->tp != NRL_TP_VOCAB);
    }
    return some && m->info.n_heads % RANKS == 0 && m->info.n_kv_heads % RANKS == 0;
}

/* The positions in the whole parameter of this rank's elements. */
static int64_t elements(const nrl_param *p, int rank, int64_t *global)
{
    int64_t n = 0, row = 0, cols = p->n_dims > 1 ? p->parts[0].dims[1] : 1;
    int dim = dimension_of(p);
    for (int k = 0; k < p->n_parts; k++) {
        const nrl_part *part = &p->parts[k];
        int64_t size = dim == 0 ? part->dims[0] / groups_of(part, 0) : part->dims[0];
        for (int64_t r = 0; r < part->dims[0]; r++, row++)
            for (int64_t c = 0; c < cols; c++) {
                bool mine = dim < 0 || (dim == 0 ? r % size * RANKS / size : c * RANKS / cols) == rank;
                if (mine) global[n++] = row * cols + c;
            }
    }
    return n;
}

/* Parameters with this rank's dimensions; values are those of `whole`. */
static nrl_status divide(half *h, const model_suite *whole)
{
    for (int i = 0; i < h->s.m->n_params; i++) {
        nrl_param *p = h->s.m->params[i];
        int dim = dimension_of(p);
        if (dim < 0) continue;
        p->first[dim] = h->rank * (p->parts[0].dims[dim] / RANKS);
        p->dims[dim] /= RANKS;
        p->numel /= RANKS;
    }
    NRL_TRY(model_suite_bind(&h->s));
    for (int i = 0; i < h->s.m->n_params; i++) {
        const nrl_param *p = h->s.m->params[i], *all = whole->m->params[i];
        const float *values = nrl_tensor_mat(whole->work[i]).data;
        int64_t *global = mem_alloc((size_t)all->numel * sizeof *global), n = elements(p, h->rank, global);
        float *own = mem_alloc((size_t)n * sizeof *own);
        for (int64_t k = 0; k < n; k++)
            own[k] = values[global[k]];
        nrl_status st = n == p->numel ? tensor_write(h->s.compute.ctx, h->s.work[i], own)
                                      : nrl_fail(NRL_ERR_BUG, "'%s' has %lld elements of %lld", p->name, (long long)n,
                                                 (long long)p->numel);
        free(own);
        free(global);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static void *run_half(void *user)
{
    half *h = user;
    nrl_batch *b = model_suite_batch(&h->s, 0);
    int64_t begin, end;
    tokens(h, nrl_batch_n_tokens(b), &begin, &end);
    h->s.carry_rows = h->has_part ? end - begin : 0;
    const ctx_tp_regions regions = {.answer = answer, .tokens = h->has_part ? tokens : NULL, .user = h};
    ctx_settings_of(h->s.compute.ctx)->tp_regions = regions;
    h->is_done =
        report_ok(&h->report, model_suite_loss(&h->s, b, true, &h->loss), h->has_part ? RULE_TOKENS : RULE_LOSS);
    ctx_settings_of(h->s.compute.ctx)->tp_regions = (ctx_tp_regions){0};
    if (!h->is_done) break_off(h->m);
    batch_free(b);
    return NULL;
}

/* Replicated parameters have the whole gradient on each rank; those of NRL_TP_PARTIAL a part of the sum, and with parts
 * of the tokens those of NRL_TP_NONE too. */
static void compare_gradient(const model_suite *whole, const half *halves, int i)
{
    const nrl_param *p = whole->m->params[i];
    const float *want = nrl_tensor_mat(whole->grad[i]).data, *got[RANKS];
    int64_t *global = mem_alloc((size_t)p->numel * sizeof *global);
    double length = 0;
    bool good = !nrl_param_grad_is_empty(p);
    bool is_part = p->tp == NRL_TP_PARTIAL || (p->tp == NRL_TP_NONE && halves->has_part);
    for (int64_t k = 0; k < p->numel && good; k++)
        length += (double)want[k] * (double)want[k];
    length = sqrt(length / (double)p->numel);
    for (int r = 0; r < RANKS; r++) {
        good = good && !nrl_param_grad_is_empty(halves[r].s.m->params[i]);
        got[r] = nrl_tensor_mat(halves[r].s.grad[i]).data;
    }
    for (int r = 0; r < RANKS && good; r++) {
        const nrl_param *own = halves[r].s.m->params[i];
        int64_t n = elements(own, r, global);
        for (int64_t k = 0; k < n && good; k++) {
            double x = is_part ? (double)got[0][k] + (double)got[1][k] : (double)got[r][k];
            good =
                report_check(whole->report, is_near(x, (double)want[global[k]], RELATIVE, RELATIVE * length + ABSOLUTE),
                             halves->has_part ? RULE_TOKEN_GRADIENTS : RULE_GRADIENTS,
                             "element %lld of '%s' is %.6g on rank %d, expected %.6g", (long long)global[k], p->name, x,
                             r, (double)want[global[k]]);
        }
    }
    free(global);
}

static bool open_half(half *h, model_suite *whole)
{
    if (!compute_open(&h->s.compute, whole->setup, &h->report)) return false;
    return report_ok(&h->report, model_create(whole->table, whole->config, &h->s.m), RULE_LOSS) &&
           report_ok(&h->report, divide(h, whole), RULE_LOSS);
}

static void compare_halves(model_suite *s, bool has_part)
{
    const char *rule = has_part ? RULE_TOKENS : RULE_LOSS;
    half halves[RANKS] = {0};
    meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    double loss;
    nrl_batch *b = model_suite_batch(s, 0);
    bool good = report_ok(s->report, model_suite_loss(s, b, true, &loss), rule);
    batch_free(b);
    for (int r = 0; r < RANKS; r++) {
        halves[r].s = (model_suite){.table = s->table, .config = s->config, .report = &halves[r].report};
        halves[r].m = &m;
        halves[r].rank = r;
        halves[r].has_part = has_part;
        good = good && open_half(&halves[r], s);
    }
    for (int r = 0; r < RANKS && good; r++)
        NRL_ASSERT(pthread_create(&halves[r].thread, NULL, run_half, &halves[r]), ==, 0);
    for (int r = 0; r < RANKS && good; r++)
        pthread_join(halves[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        report_merge(s->report, &halves[r].report);
        good = good && halves[r].is_done &&
               report_check(s->report, is_near(halves[r].loss, loss, RELATIVE, ABSOLUTE), rule,
                            "the loss is %.7g on rank %d, expected %.7g", halves[r].loss, r, loss);
    }
    for (int i = 0; i < s->m->n_params && good; i++)
        compare_gradient(s, halves, i);
    for (int r = 0; r < RANKS; r++) {
        if (halves[r].s.compute.ctx) model_suite_free(&halves[r].s);
        model_destroy(halves[r].s.m);
        if (halves[r].s.compute.ctx) compute_close(&halves[r].s.compute);
    }
}

void model_suite_divided(model_suite *s)
{
    if (!is_divisible(s->m) || !nrl_ctx_host_memory(s->compute.ctx)) {
        report_skip(s->report, RULE_LOSS,
                    "two ranks cannot divide it: no parameter declares how (nrl_tp), heads or sizes are odd, or the "
                    "backend has memory of its own");
        return;
    }
    compare_halves(s, false);
    if (s->m->info.token_shards) compare_halves(s, true);
}
