/*
 * test_gradients.c - the gradient of every operation compared with central differences, at odd
 * shapes; live memory returns to its value before each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/context.h"
#include "support/op_cases.h"
#include "tensor/ops/rope.h"

static void check(const gradient_case *c)
{
    ctx_memory before, after;
    double worst = 0;
    rope_forget(the_ctx); /* a device keeps its angles */
    ctx_memory_use(the_ctx, &before);
    nrl_status st = gradient_check(the_ctx, c, &worst);
    if (st) fail_msg("%s", nrl_error_text());
    rope_forget(the_ctx);
    ctx_memory_use(the_ctx, &after);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

/* Every case of a group; a group without cases is a spelling mistake. */
static void check_group(const char *group)
{
    int n = 0;
    for (int i = 0; i < N_OP_CASES; i++) {
        size_t length = strlen(group);
        if (strncmp(op_cases[i].name, group, length) || op_cases[i].name[length] != ':') continue;
        check(&op_cases[i]);
        n++;
    }
    assert_true(n > 0);
}

#define GROUP_TEST(sentence, ...)                                                                                      \
    static void sentence(void **state)                                                                                 \
    {                                                                                                                  \
        static const char *const groups[] = {__VA_ARGS__};                                                             \
        (void)state;                                                                                                   \
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)                                                    \
            check_group(groups[i]);                                                                                    \
    }

GROUP_TEST(products_have_the_right_gradients, "linear", "matmul")
GROUP_TEST(tensors_and_parameters_used_twice_add_up, "shared", "same")
GROUP_TEST(embedding_adds_rows_of_equal_tokens, "embedding")
GROUP_TEST(rope_has_the_right_gradients, "rope")
GROUP_TEST(attention_has_the_right_gradients, "attention")
GROUP_TEST(norms_have_the_right_gradients, "norm")
GROUP_TEST(gated_activations_have_the_right_gradients, "glu")
GROUP_TEST(unary_operations_have_the_right_gradients, "unary")
GROUP_TEST(binary_operations_broadcast_either_operand, "binary")
GROUP_TEST(where_cast_and_dropout_have_the_right_gradients, "where", "cast", "dropout")
GROUP_TEST(reductions_have_the_right_gradients, "reduce")
GROUP_TEST(moving_rows_and_columns_moves_gradients_back, "rows", "vectors")
GROUP_TEST(head_columns_have_the_right_gradients, "head")

static void the_heads_gradients_hold_in_chunks(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows < 7; rows += 2) {
        ctx_settings_of(the_ctx)->head_chunk_rows = rows;
        check_group("head");
    }
    ctx_settings_of(the_ctx)->head_chunk_rows = 0;
}

static void the_heads_gradients_hold_with_kept_logits(void **state)
{
    (void)state;
    ctx_settings_of(the_ctx)->head_chunk_rows = 3;
    ctx_settings_of(the_ctx)->head_keep_bytes = 1 << 20;
    check_group("head");
    ctx_settings_of(the_ctx)->head_keep_bytes = 0;
    ctx_settings_of(the_ctx)->head_chunk_rows = 0;
}

/* The check itself must notice: a result that is cut off the tape has no gradient. */
static nrl_status build_detached(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor *cut;
    (void)c;
    (void)p;
    NRL_TRY(nrl_op_detach(own, x[0], &cut));
    return nrl_op_binary(own, NRL_BINARY_MUL, x[0], cut, y);
}

static void a_wrong_gradient_is_noticed(void **state)
{
    double worst = 0;
    gradient_case c = {"detached", 1, 0, {SHAPE(3, 5)}, .build = build_detached};
    (void)state;
    assert_int_equal(gradient_check(the_ctx, &c, &worst), NRL_ERR_BUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_right_gradients),
        cmocka_unit_test(tensors_and_parameters_used_twice_add_up),
        cmocka_unit_test(embedding_adds_rows_of_equal_tokens),
        cmocka_unit_test(rope_has_the_right_gradients),
        cmocka_unit_test(attention_has_the_right_gradients),
        cmocka_unit_test(norms_have_the_right_gradients),
        cmocka_unit_test(gated_activations_have_the_right_gradients),
        cmocka_unit_test(unary_operations_have_the_right_gradients),
        cmocka_unit_test(binary_operations_broadcast_either_operand),
        cmocka_unit_test(where_cast_and_dropout_have_the_right_gradients),
        cmocka_unit_test(reductions_have_the_right_gradients),
        cmocka_unit_test(moving_rows_and_columns_moves_gradients_back),
        cmocka_unit_test(head_columns_have_the_right_gradients),
        cmocka_unit_test(the_heads_gradients_hold_in_chunks),
        cmocka_unit_test(the_heads_gradients_hold_with_kept_logits),
        cmocka_unit_test(a_wrong_gradient_is_noticed),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
