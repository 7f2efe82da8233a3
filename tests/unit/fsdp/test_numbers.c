/*
 * test_numbers.c - the values of WEIGHT in every action and of GRAD_SHARD after every step, element
 * by element, with threads as ranks.
 */
#include "fsdp/fixture.h"

static const char *const modes[] = {"{shard: full}", "{shard: grads}", "{shard: optimizer}"};
enum { N_MODES = sizeof modes / sizeof *modes, MOST = 4 };

/* Every mode. */
static void add_modes(case_list *l, toy_case c)
{
    for (int m = 0; m < N_MODES; m++)
        add(l, modes[m], c);
}

static void weights_and_gradients_of_odd_sizes_are_exact_in_every_mode(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 1});
    run_on(&l, 1, MOST);
}

static void micro_batches_add_up_also_where_a_rank_has_none(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 4});
    add_modes(&l, (toy_case){.n_micro_batches = 3, .empty = true});
    run_on(&l, 1, MOST);
}

static void recompute_actions_and_evaluations_change_nothing(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 2, .recompute = true, .evaluate = true});
    run_on(&l, 1, MOST);
}

static void work_is_the_rounded_master_in_bf16(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 2, .compute = NRL_DTYPE_BF16, .evaluate = true});
    run_on(&l, 1, MOST);
}

static void a_frozen_parameter_is_gathered_and_never_reduced(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 2, .freeze = true});
    add_modes(&l, (toy_case){.n_micro_batches = 2, .freeze = true, .compute = NRL_DTYPE_BF16});
    run_on(&l, 1, MOST);
}

static void a_schedule_that_names_no_final_gradient_is_reduced_at_its_end(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 2, .unmarked = true});
    run_on(&l, 1, MOST);
}

static void a_parameter_without_a_gradient_gets_zero(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.n_micro_batches = 2, .no_backward_last = true});
    run_on(&l, 1, MOST);
}

static void a_reference_holds_its_shard_in_the_compute_dtype(void **state)
{
    case_list l = {.state = state};
    add_modes(&l, (toy_case){.reference = true});
    add_modes(&l, (toy_case){.reference = true, .compute = NRL_DTYPE_BF16});
    run_on(&l, 1, MOST);
}

static void hybrid_shards_inside_and_sums_across(void **state)
{
    static const char *const yaml[] = {"{shard: full, shard_size: 2}",
                                       "{shard: grads, replicas: 2}",
                                       "{shard: optimizer, replicas: 2, shard_size: 2}",
                                       "{hybrid: true}",
                                       "{shard_size: 2, reduce_dtype: bf16}",
                                       "{shard: optimizer, shard_size: 2, reduce_dtype: bf16}",
                                       "{shard_size: 2, reduce_dtype: bf16, units: {every: 100}}"};
    case_list l = {.state = state};
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
        add(&l, yaml[i], (toy_case){.n_micro_batches = 3, .empty = true, .evaluate = true});
        add(&l, yaml[i], (toy_case){.n_micro_batches = 2, .unmarked = true});
        add(&l, yaml[i], (toy_case){.compute = NRL_DTYPE_BF16});
    }
    run_on(&l, 4, 4);
}

static void units_of_any_size_and_any_prefetch_give_the_same(void **state)
{
    static const char *const yaml[] = {"{units: {every: 2}}",
                                       "{units: {every: 3}, prefetch: 2}",
                                       "{units: {every: 100}}",
                                       "{units: {min_params: 60}}",
                                       "{units: {min_params: 1}}",
                                       "{units: {begin: [two, four]}}",
                                       "{units: model, prefetch: 0}",
                                       "{prefetch: 3}",
                                       "{prefetch: 16}",
                                       "{units: {every: 2}, prefetch: 0}",
                                       "{shard: grads, units: {every: 2}}",
                                       "{shard: optimizer, units: {min_params: 60}}"};
    case_list l = {.state = state};
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
        add(&l, yaml[i], (toy_case){.n_micro_batches = 2, .recompute = true, .evaluate = true});
        add(&l, yaml[i], (toy_case){.compute = NRL_DTYPE_BF16, .freeze = true});
    }
    run_on(&l, 2, 3);
}

static void gradients_may_travel_in_16_bits(void **state)
{
    static const char *const yaml[] = {"{reduce_dtype: bf16}",
                                       "{shard: grads, reduce_dtype: bf16}",
                                       "{shard: optimizer, reduce_dtype: bf16}",
                                       "{reduce_dtype: bf16, units: {every: 3}}",
                                       "{reduce_dtype: fp16}",
                                       "{shard: optimizer, reduce_dtype: fp16}"};
    case_list l = {.state = state};
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++)
        add(&l, yaml[i], (toy_case){.n_micro_batches = 2, .empty = true});
    run_on(&l, 1, MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_gradients_of_odd_sizes_are_exact_in_every_mode),
        cmocka_unit_test(micro_batches_add_up_also_where_a_rank_has_none),
        cmocka_unit_test(recompute_actions_and_evaluations_change_nothing),
        cmocka_unit_test(work_is_the_rounded_master_in_bf16),
        cmocka_unit_test(a_frozen_parameter_is_gathered_and_never_reduced),
        cmocka_unit_test(a_schedule_that_names_no_final_gradient_is_reduced_at_its_end),
        cmocka_unit_test(a_parameter_without_a_gradient_gets_zero),
        cmocka_unit_test(a_reference_holds_its_shard_in_the_compute_dtype),
        cmocka_unit_test(hybrid_shards_inside_and_sums_across),
        cmocka_unit_test(units_of_any_size_and_any_prefetch_give_the_same),
        cmocka_unit_test(gradients_may_travel_in_16_bits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
