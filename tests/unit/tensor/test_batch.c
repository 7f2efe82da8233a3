/*
 * test_batch.c - counts, columns and views of a batch, metrics, and the fused AdamW step on a
 * slice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/batch_check.h"
#include "support/context.h"
#include "tensor/param.h"
#include <math.h>
#include <nrl/optimizer.h>

static void ok(nrl_status st)
{
    if (st) fail_msg("%s", nrl_error_text());
}

/* Two pairs: segments of 3, 2, 2 and 3 tokens; the last segment is not trained. */
static nrl_batch *pair_batch(void)
{
    static const int32_t cu[] = {0, 3, 5, 7, 10}, row_token[] = {0, 1, 3, 5, 7, 8}, row_segment[] = {0, 0, 1, 2, 3, 3};
    static const float weight[] = {0, 1, 1, 0.5f, 0, 0};
    nrl_batch *b = batch_new(10, 6, 4);
    b->n_examples = 2;
    memcpy(b->cu_seqlens, cu, sizeof cu);
    memcpy(b->row_token, row_token, sizeof row_token);
    memcpy(b->row_segment, row_segment, sizeof row_segment);
    memcpy(b->row_weight, weight, sizeof weight);
    for (int32_t s = 0; s < 4; s++) {
        b->segment_example[s] = s / 2;
        b->segment_side[s] = s % 2;
    }
    for (int32_t i = 0; i < 10; i++)
        b->tokens[i] = i;
    return b;
}

static void counts_are_those_of_the_header(void **state)
{
    nrl_batch *b = pair_batch();
    (void)state;
    ok(batch_check(b, 10));
    assert_true(nrl_batch_count(b, "answer_tokens") == 2.5);
    assert_true(nrl_batch_count(b, "prompt_tokens") == 3);
    assert_true(nrl_batch_count(b, "sequences") == 3);
    assert_true(nrl_batch_count(b, "pairs") == 2);
    assert_true(nrl_batch_count(b, "examples") == 2);
    assert_true(nrl_batch_count(b, "tokens") == 10);
    assert_true(isnan(nrl_batch_count(b, "answers")));
    b->is_tail = true;
    assert_true(nrl_batch_count(b, "tokens") == 0);
    batch_free(b);
}

static void a_broken_batch_is_refused(void **state)
{
    nrl_batch *b = pair_batch();
    (void)state;
    assert_int_equal(batch_check(b, 9), NRL_ERR_BUG); /* token 9 */
    assert_string_equal(nrl_error_text(), "batch: tokens[9] is 9");
    b->row_token[2] = 5;
    assert_int_equal(batch_check(b, 10), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "batch: row_token[2] is 5");
    b->row_token[2] = 3;
    b->row_segment[1] = 4;
    assert_int_equal(batch_check(b, 10), NRL_ERR_BUG);
    b->row_segment[1] = 0;
    b->segment_example[1] = 2;
    assert_int_equal(batch_check(b, 10), NRL_ERR_BUG);
    b->segment_example[1] = 0;
    b->cu_seqlens[4] = 9;
    assert_int_equal(batch_check(b, 10), NRL_ERR_BUG);
    batch_free(b);
}

static void columns_are_found_by_name_and_cut_for_views(void **state)
{
    nrl_batch *b = pair_batch(), view;
    double values[6];
    nrl_tensor *reference, *own, *column;
    (void)state;
    b->n_extra = 1;
    b->extra[0] = (batch_extra){"score", (float[]){1, 2, 3, 4}, false};
    ctx_scope_begin(the_ctx);
    ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){6}, (float[]){0, 1, 2, 3, 4, 5}, &reference));
    ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){2}, (float[]){8, 9}, &own));
    batch_set_column(b, "ref_logps", reference);
    batch_rows(b, 2, 4, &view);
    batch_set_column(&view, "logps", own);
    assert_int_equal(nrl_batch_n_targets(&view), 2);
    assert_int_equal(nrl_batch_target_segments(&view)[1], 2);
    ok(nrl_batch_column(the_ctx, &view, "ref_logps", &column));
    ok(nrl_tensor_fetch(the_ctx, column, values, 2));
    assert_true(values[0] == 2 && values[1] == 3);
    ok(nrl_batch_column(the_ctx, &view, "logps", &column));
    assert_ptr_equal(column, own);
    ok(nrl_batch_column(the_ctx, &view, "weights", &column));
    ok(nrl_tensor_fetch(the_ctx, column, values, 2));
    assert_true(values[0] == 1 && values[1] == 0.5);
    ok(nrl_batch_column(the_ctx, &view, "score", &column));
    assert_int_equal(nrl_tensor_numel(column), 4);
    assert_int_equal(nrl_batch_column(the_ctx, b, "logps", &column), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "no column 'logps'; expected one of: weights, ref_logps, score"));
    ctx_scope_end(the_ctx);
    batch_free(b);
}

static void metrics_are_taken_once_in_order(void **state)
{
    const ctx_metric *list;
    int64_t n;
    (void)state;
    for (int round = 0; round < 2; round++) {
        ctx_scope_begin(the_ctx);
        for (uint32_t i = 0; i < 40; i++) {
            nrl_tensor *t;
            ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){1}, &(float){(float)i / 2}, &t));
            ok(nrl_metric_add(the_ctx, i % 3, t, i));
        }
        ctx_scope_end(the_ctx); /* the values outlive their scope */
        ok(ctx_take_metrics(the_ctx, &list, &n));
        assert_int_equal(n, 40);
        assert_true(list[7].index == 1 && list[7].value == 3.5 && list[7].weight == 7);
    }
    ok(ctx_take_metrics(the_ctx, &list, &n));
    assert_int_equal(n, 0);
    ctx_memory m;
    ctx_memory_use(the_ctx, &m);
    assert_int_equal(m.live_bytes, 0);
}

/* ---- optimizer ---- */

enum { N = 1003 };

static void adamw_follows_its_formula_and_rounds_the_work_copy(void **state)
{
    nrl_tensor *t[5];
    nrl_param p;
    nrl_part part;
    double w[N], m[N] = {0}, v[N] = {0}, got[N], rounded[N];
    float grad[N], start[N];
    uint64_t random = 3;
    nrl_adamw adamw = {sizeof adamw, 0.9, 0.95, 1e-8, 0.1};
    (void)state;
    param_init(&p, &part, "w", 1, (int64_t[]){N});
    for (int k = 0; k < 5; k++)
        ok(tensor_persistent(the_ctx, k == 4 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32, 1, (int64_t[]){N}, true, &t[k]));
    for (int i = 0; i < N; i++)
        w[i] = start[i] = (float)test_uniform(&random);
    ok(tensor_write(the_ctx, t[0], start));
    nrl_slice slice = {
        .param = &p, .n = N, .master = t[0], .grad = t[1], .states = {t[2], t[3]}, .work = t[4], .decay = true};
    for (int step = 1; step <= 3; step++) {
        nrl_step_params block = {sizeof block, step, 1e-3, 0.5, sizeof(nrl_slice), 0, 0};
        for (int i = 0; i < N; i++) {
            grad[i] = (float)test_uniform(&random);
            double g = 0.5 * (double)grad[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            w[i] -= 1e-3 * 0.1 * w[i];
            w[i] -= 1e-3 * (m[i] / (1 - pow(0.9, step))) / (sqrt(v[i] / (1 - pow(0.95, step))) + 1e-8);
        }
        ok(tensor_write(the_ctx, t[1], grad));
        ok(nrl_slice_adamw(the_ctx, &slice, &adamw, &block));
    }
    ok(nrl_tensor_fetch(the_ctx, t[0], got, N));
    ok(nrl_tensor_fetch(the_ctx, t[4], rounded, N));
    for (int i = 0; i < N; i++) {
        assert_true(fabs(got[i] - w[i]) < 1e-6);
        assert_true(fabs(rounded[i] - got[i]) <= fabs(got[i]) * 0x1p-8);
    }
    slice.n = N + 1;
    assert_int_equal(nrl_slice_adamw(the_ctx, &slice, &adamw,
                                     &(nrl_step_params){sizeof(nrl_step_params), 1, 1, 1, sizeof(nrl_slice), 0, 0}),
                     NRL_ERR_BUG);
    for (int k = 0; k < 5; k++)
        tensor_release(the_ctx, t[k]);
}

static void parameters_bind_slots_and_count_versions(void **state)
{
    nrl_param p, q;
    nrl_part part, other;
    nrl_tensor *t;
    (void)state;
    param_init(&p, &part, "a.weight", 2, (int64_t[]){3, 4});
    param_init(&q, &other, "b.weight", 1, (int64_t[]){3});
    assert_int_not_equal(p.key, q.key);
    assert_int_equal(nrl_param_numel(&p), 12);
    assert_int_equal(nrl_param_dim(&p, -1), 4);
    assert_string_equal(nrl_param_part(&p, 0)->name, "a.weight");
    assert_null(nrl_param_part(&p, 1));
    assert_true(nrl_param_trained(&p) && nrl_param_grad_is_empty(&p) && !nrl_param_tensor(&p, NRL_SLOT_WEIGHT));
    uint64_t version = nrl_param_version(&p);
    ok(tensor_persistent(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){12}, true, &t));
    nrl_param_bind(&p, NRL_SLOT_WEIGHT, t);
    assert_int_equal(nrl_param_version(&p), version + 1);
    assert_ptr_equal(nrl_param_tensor(&p, NRL_SLOT_WEIGHT), t);
    nrl_param_touch(&p);
    assert_int_equal(nrl_param_version(&p), version + 2);
    tensor_release(the_ctx, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_the_header),
        cmocka_unit_test(a_broken_batch_is_refused),
        cmocka_unit_test(columns_are_found_by_name_and_cut_for_views),
        cmocka_unit_test(metrics_are_taken_once_in_order),
        cmocka_unit_test(adamw_follows_its_formula_and_rounds_the_work_copy),
        cmocka_unit_test(parameters_bind_slots_and_count_versions),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
