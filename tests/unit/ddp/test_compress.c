/*
 * test_compress.c - the effect of codecs on sums: their error, the correction by error feedback,
 * and that a skipped step has no effect.
 */
#include "ddp/support.h"

/* Of rank one in "up", the same direction each step; noise elsewhere. */
static double thin(int64_t step, int32_t rank, int param, int64_t i)
{
    if (param == SPARE) return NAN;
    if (i < 0) return 0;
    if (param == UP) return (1 + rank) * sin((double)(i / 16)) * cos((double)(i % 16));
    return ddp_draw((uint64_t)(step * 7919 + rank * 104729 + param * 31 + i * 17));
}

static double noise(int64_t step, int32_t rank, int param, int64_t i)
{
    if (param == SPARE) return NAN;
    return i < 0 ? 0 : ddp_draw((uint64_t)(step * 7919 + rank * 104729 + param * 31 + i * 17));
}

/* The same each step, so that what stays behind can only come later. */
static double steady(int64_t step, int32_t rank, int param, int64_t i)
{
    (void)step;
    return noise(1, rank, param, i);
}

typedef nrl_status (*on_rank)(ddp_rank *r);

static nrl_status with_rank(nrl_mesh *mesh, int32_t rank, void *user, on_rank body)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = body(&r);
    ddp_rank_close(&r);
    return st;
}
#define BODY(name)                                                                                                     \
    static nrl_status name##_body(nrl_mesh *mesh, int32_t rank, void *user)                                            \
    {                                                                                                                  \
        return with_rank(mesh, rank, user, name);                                                                      \
    }

/* The largest difference from the sum, over the largest sum. */
static nrl_status error_of(ddp_rank *r, int64_t step, int param, ddp_gradient g, double *error)
{
    double got[MOST], worst = 0, largest = 0;
    NRL_TRY(ddp_fetch(r, param, NRL_SLOT_GRAD_SHARD, got));
    for (int64_t i = 0; i < r->list[param]->numel; i++) {
        double want = ddp_sum_of(nrl_mesh_world(r->mesh), step, param, i, g);
        worst = fmax(worst, fabs(got[i] - want));
        largest = fmax(largest, fabs(want));
    }
    *error = largest > 0 ? worst / largest : worst;
    return NRL_OK;
}

/* ---- 16 bits ---- */

/* Two roundings of half a unit in the last of 8 (11) bits, of addends that may be larger than the sum. */
static const double BF16_ERROR = 4.0 / 256, FP16_ERROR = 4.0 / 2048;

static nrl_status rounded(ddp_rank *r)
{
    bool is_bf16 = strstr(r->plan.text, "bf16") != NULL;
    for (int64_t step = 1; step <= 3; step++) {
        NRL_TRY(ddp_step(r, step, noise));
        for (int p = 0; p < N_PARAMS; p++) {
            double error;
            NRL_TRY(error_of(r, step, p, noise, &error));
            EXPECT(error < (is_bf16 ? BF16_ERROR : FP16_ERROR), "'%s' is off by %g", r->list[p]->name, error);
        }
    }
    return NRL_OK;
}
BODY(rounded)

static void sixteen_bits_cost_two_roundings(void **state)
{
    (void)state;
    for (int32_t world = 2; world <= 4; world++) {
        ddp_run("{compress: bf16}", NRL_DTYPE_F32, world, rounded_body);
        ddp_run("{compress: fp16, bucket_cap_mb: 0.001}", NRL_DTYPE_F32, world, rounded_body);
    }
}

/* Every rank adds 1/256 to its own 1: in bf16 sums of sums each would be lost. */
static double small_parts(int64_t step, int32_t rank, int param, int64_t i)
{
    (void)step;
    (void)param;
    (void)i;
    return rank == 0 ? 1 : 1.0 / 512;
}

static nrl_status wide_sums(ddp_rank *r)
{
    double got[MOST];
    NRL_TRY(ddp_step(r, 1, small_parts));
    NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_GRAD_SHARD, got));
    EXPECT(got[3] > 1, "the sum of 1 and seven times 1/512 is %.9g", got[3]);
    return NRL_OK;
}
BODY(wide_sums)

static void bf16_is_summed_in_f32(void **state)
{
    (void)state;
    ddp_run("{compress: bf16}", NRL_DTYPE_F32, 8, wide_sums_body);
}

static double extreme(int64_t step, int32_t rank, int param, int64_t i)
{
    static const double values[] = {0, -0.0, 65504, -65504, 6.1e-5, 5.96e-8, 1e-9, 1.0 / 3, 2049, 1e-5, 0.1};
    (void)step;
    (void)param;
    return i < 0 || rank ? 0 : values[(size_t)i % (sizeof values / sizeof *values)];
}

static nrl_status halves(ddp_rank *r)
{
    double got[MOST];
    NRL_TRY(ddp_step(r, 1, extreme));
    NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_GRAD_SHARD, got));
    for (int64_t i = 0; i < 11; i++) {
        double want = extreme(1, 0, UP, i);
        double room = fmax(fabs(want) / 2048, 3e-8);
        EXPECT(fabs(got[i] - want) <= room, "%g came as %g", want, got[i]);
    }
    return NRL_OK;
}
BODY(halves)

static void fp16_knows_its_smallest_and_largest_numbers(void **state)
{
    (void)state;
    ddp_run("{compress: fp16}", NRL_DTYPE_F32, 2, halves_body);
}

/* ---- PowerSGD ---- */

/* f32 products of 24 x 16 elements. */
static const double RANK_ONE_ERROR = 1e-5;

static nrl_status low_rank(ddp_rank *r)
{
    for (int64_t step = 1; step <= 4; step++) {
        double up, down, bias;
        NRL_TRY(ddp_step(r, step, thin));
        NRL_TRY(error_of(r, step, UP, thin, &up));
        NRL_TRY(error_of(r, step, DOWN, thin, &down));
        NRL_TRY(error_of(r, step, BIAS, thin, &bias));
        EXPECT(up < RANK_ONE_ERROR, "step %lld: a matrix of rank one is off by %g", (long long)step, up);
        EXPECT(bias < 1e-6, "a vector is off by %g", bias);
        EXPECT(step == 1 ? down < 1e-6 : down > 0.1, "step %lld: noise of full rank is off by %g", (long long)step,
               down);
    }
    return NRL_OK;
}
BODY(low_rank)

static void powersgd_is_exact_for_what_has_its_rank(void **state)
{
    (void)state;
    ddp_run("{compress: powersgd, powersgd_rank: 2, start_step: 1}", NRL_DTYPE_F32, 2, low_rank_body);
    ddp_run("{compress: powersgd, powersgd_rank: 1, start_step: 1, bucket_cap_mb: 0.001, "
            "powersgd_warm_start: false, error_feedback: false}",
            NRL_DTYPE_F32, 3, low_rank_body);
}

/* ---- error feedback ---- */

/* Mean of what came out over many steps against the constant that went in. */
static nrl_status mean_error(ddp_rank *r, int64_t n_steps, double *error)
{
    double mean[MOST] = {0}, got[MOST], worst = 0, largest = 0;
    for (int64_t step = 1; step <= n_steps; step++) {
        NRL_TRY(ddp_step(r, step, steady));
        NRL_TRY(ddp_fetch(r, DOWN, NRL_SLOT_GRAD_SHARD, got));
        for (int64_t i = 0; i < r->list[DOWN]->numel; i++)
            mean[i] += got[i] / (double)n_steps;
    }
    for (int64_t i = 0; i < r->list[DOWN]->numel; i++) {
        double want = ddp_sum_of(nrl_mesh_world(r->mesh), 1, DOWN, i, steady);
        worst = fmax(worst, fabs(mean[i] - want));
        largest = fmax(largest, fabs(want));
    }
    *error = worst / largest;
    return NRL_OK;
}

static nrl_status comes_back(ddp_rank *r)
{
    double error;
    NRL_TRY(mean_error(r, 200, &error));
    EXPECT(error < 0.25, "the mean of 200 steps is off by %g", error);
    return NRL_OK;
}
BODY(comes_back)

static nrl_status stays_away(ddp_rank *r)
{
    double error;
    NRL_TRY(mean_error(r, 200, &error));
    EXPECT(error > 0.3, "without residuals the mean of 200 steps is off by %g only", error);
    return NRL_OK;
}
BODY(stays_away)

static void error_feedback_brings_back_what_was_left_out(void **state)
{
    (void)state;
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 0.05}", NRL_DTYPE_F32, 2, comes_back_body);
    ddp_run("{compress: threshold, start_step: 0, threshold_value: 1.5}", NRL_DTYPE_F32, 3, comes_back_body);
    ddp_run("{compress: powersgd, powersgd_rank: 1, start_step: 0}", NRL_DTYPE_F32, 2, comes_back_body);
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 0.05, error_feedback: false}", NRL_DTYPE_F32, 2,
            stays_away_body);
    ddp_run("{compress: powersgd, powersgd_rank: 1, start_step: 0, error_feedback: false}", NRL_DTYPE_F32, 2,
            stays_away_body);
}

/* ---- sparse ---- */

static nrl_status counted(ddp_rank *r)
{
    int64_t n = 0;
    NRL_TRY(ddp_step(r, 1, noise));
    for (int p = 0; p < N_PARAMS; p++) {
        double got[MOST];
        NRL_TRY(ddp_fetch(r, p, NRL_SLOT_GRAD_SHARD, got));
        for (int64_t i = 0; i < r->list[p]->numel; i++)
            n += fabs(got[i]) > 0;
    }
    /* two buckets, one of 384 + 16 + 640 + 32 elements; both ranks send 2 % of it */
    EXPECT(n > 22 && n <= 44, "%lld elements are not zero", (long long)n);
    return NRL_OK;
}
BODY(counted)

static void topk_sends_as_many_as_its_ratio_says(void **state)
{
    (void)state;
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 0.02}", NRL_DTYPE_F32, 2, counted_body);
}

static nrl_status everything(ddp_rank *r)
{
    for (int64_t step = 1; step <= 3; step++) {
        NRL_TRY(ddp_step(r, step, noise));
        for (int p = 0; p < N_PARAMS; p++) {
            double error;
            NRL_TRY(error_of(r, step, p, noise, &error));
            EXPECT(error < 1e-6, "'%s' is off by %g", r->list[p]->name, error);
        }
    }
    return NRL_OK;
}
BODY(everything)

/* Ties: every element has the same size. */
static double flat(int64_t step, int32_t rank, int param, int64_t i)
{
    (void)step;
    (void)rank;
    (void)param;
    return i & 1 ? 1 : -1;
}

static nrl_status tied_sizes(ddp_rank *r)
{
    double got[MOST];
    int64_t n = 0;
    NRL_TRY(ddp_step(r, 1, flat));
    NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_GRAD_SHARD, got));
    for (int64_t i = 0; i < r->list[UP]->numel; i++)
        n += fabs(got[i]) > 0;
    EXPECT(n == 107, "%lld elements went out, expected the first 107 of 1072", (long long)n);
    return NRL_OK;
}
BODY(tied_sizes)

static void sparse_sends_all_where_it_may_and_the_first_of_equals(void **state)
{
    (void)state;
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 1}", NRL_DTYPE_F32, 3, everything_body);
    ddp_run("{compress: threshold, start_step: 0, threshold_value: 1e-30, bucket_cap_mb: 0.001}", NRL_DTYPE_F32, 4,
            everything_body);
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 0.0998}", NRL_DTYPE_F32, 2, tied_sizes_body);
}

/* ---- a step that is omitted ---- */

/* Step 3 breaks in one element of one rank; steps 4.. are 3.. of an undisturbed run. */
static double broken(int64_t step, int32_t rank, int param, int64_t i)
{
    if (step == 3 && rank == 1 && param == DOWN && i == 77) return NAN;
    return noise(step > 3 ? step - 1 : step, rank, param, i);
}

static nrl_status record_run(ddp_rank *r, int64_t n_steps, int64_t skip, ddp_gradient g, double *last)
{
    for (int64_t step = 1; step <= n_steps; step++) {
        NRL_TRY(ddp_step(r, step, g));
        if (step != skip) continue;
        NRL_TRY(ddp_fetch(r, DOWN, NRL_SLOT_GRAD_SHARD, last));
        double sum = 0;
        for (int64_t i = 0; i < r->list[DOWN]->numel; i++)
            sum += last[i];
        EXPECT(isnan(sum), "a gradient that is not finite was lost");
    }
    return ddp_fetch(r, DOWN, NRL_SLOT_GRAD_SHARD, last);
}

static nrl_status undisturbed(nrl_mesh *mesh, int32_t rank, void *user)
{
    double with[MOST], without[MOST];
    ddp_rank a, b;
    NRL_TRY(ddp_rank_open(&a, user, mesh, rank));
    NRL_TRY(record_run(&a, 6, 3, broken, with));
    ddp_rank_close(&a);
    NRL_TRY(ddp_rank_open(&b, user, mesh, rank));
    NRL_TRY(record_run(&b, 5, -1, noise, without));
    ddp_rank_close(&b);
    for (int64_t i = 0; i < 640; i++)
        EXPECT(fabs(with[i] - without[i]) < 1e-5, "element %lld is %g, expected %g", (long long)i, with[i], without[i]);
    return NRL_OK;
}

static void a_step_that_is_not_finite_leaves_no_residual(void **state)
{
    (void)state;
    ddp_run("{compress: topk, start_step: 0, topk_ratio: 0.05}", NRL_DTYPE_F32, 2, undisturbed);
    ddp_run("{compress: threshold, start_step: 0, threshold_value: 0.5}", NRL_DTYPE_F32, 2, undisturbed);
    ddp_run("{compress: powersgd, powersgd_rank: 2, start_step: 0}", NRL_DTYPE_F32, 2, undisturbed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_cost_two_roundings),
        cmocka_unit_test(bf16_is_summed_in_f32),
        cmocka_unit_test(fp16_knows_its_smallest_and_largest_numbers),
        cmocka_unit_test(powersgd_is_exact_for_what_has_its_rank),
        cmocka_unit_test(error_feedback_brings_back_what_was_left_out),
        cmocka_unit_test(topk_sends_as_many_as_its_ratio_says),
        cmocka_unit_test(sparse_sends_all_where_it_may_and_the_first_of_equals),
        cmocka_unit_test(a_step_that_is_not_finite_leaves_no_residual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
