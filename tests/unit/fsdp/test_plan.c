/*
 * test_plan.c - configurations that fsdp refuses, and its layouts, bytes and buffers.
 */
#include "fsdp/fixture.h"

/* ---- options ---- */

static void refuses(void **state, const char *yaml, const char *words)
{
    const nrl_parallel *table;
    const void *options;
    assert_int_equal(fsdp_options_of(*state, yaml, &table, &options), NRL_ERR_CONFIG);
    if (!strstr(nrl_error_text(), words)) fail_msg("'%s' does not say '%s'", nrl_error_text(), words);
}

static void options_that_mean_nothing_are_refused(void **state)
{
    refuses(state, "{shard: half}", "shard");
    refuses(state, "{units: {every: 0}}", "units.every: expected a whole number from 1");
    refuses(state, "{units: {min_params: x}}", "units.min_params: expected a whole number from 1");
    refuses(state, "{units: {every: 1, min_params: 2}}",
            "expected model, {every: n}, {min_params: n} or {begin: [UNIT, ...]}");
    refuses(state, "{units: {most: 2}}", "expected model, {every: n}, {min_params: n}");
    refuses(state, "{units: layers}", "expected model, {every: n}, {min_params: n}");
    refuses(state, "{units: 3}", "expected model, {every: n}, {min_params: n}");
    refuses(state, "{units: {begin: layers.0}}", "units.begin: expected a list of names of units");
    refuses(state, "{units: {begin: []}}", "units.begin: expected a list of names of units");
    refuses(state, "{units: {begin: [embed, 3]}}", "units.begin: expected a list of names of units");
    refuses(state, "{prefetch: -1}", "prefetch");
}

/* ---- ranks ---- */

typedef struct {
    const nrl_parallel *table;
    const void *options;
} attempt;

static nrl_status make(nrl_mesh *mesh, int32_t rank, void *user)
{
    const attempt *a = user;
    void *self = NULL;
    nrl_param p, *list[] = {&p};
    nrl_part part;
    const int64_t dims[] = {8, 8};
    nrl_unit_uses unit = {.name = "only", .n_uses = 1, .uses = list};
    nrl_parallel_plan plan = {.size = sizeof plan,
                              .train = true,
                              .compute = NRL_DTYPE_F32,
                              .block = 1,
                              .n_params = 1,
                              .n_units = 1,
                              .params = list,
                              .units = &unit};
    (void)rank;
    param_init(&p, &part, "weight", 2, dims);
    NRL_TRY(a->table->create(a->options, mesh, &self));
    nrl_status st = a->table->plan(self, &plan);
    a->table->destroy(self);
    return st;
}

static void fails(void **state, const char *yaml, int32_t world, const char *words)
{
    attempt a = {0};
    assert_int_equal(fsdp_options_of(*state, yaml, &a.table, &a.options), NRL_OK);
    assert_int_equal(local_ranks_run(world, make, &a), NRL_ERR_CONFIG);
    if (!strstr(nrl_error_text(), words)) fail_msg("'%s' does not say '%s'", nrl_error_text(), words);
}

static void ranks_that_do_not_divide_are_refused(void **state)
{
    fails(state, "{shard_size: 3}", 4, "3 ranks to a copy do not divide 4 ranks");
    fails(state, "{shard_size: 8}", 4, "8 ranks to a copy do not divide 4 ranks");
    fails(state, "{replicas: 3}", 4, "replicas: 3 copies do not divide 4 ranks");
    fails(state, "{replicas: 2, shard_size: 4}", 4, "shard_size 4 times replicas 2 makes 8 ranks, but there are 4");
    fails(state, "{shard_size: 1}", 4, "shard_size: one rank per copy of the model leaves nothing to shard");
    fails(state, "{units: {begin: [only, other]}}", 2, "units.begin: the model has no unit 'other'");
    fails(state, "{replicas: 4}", 4, "replicas: 4 copies on 4 ranks: one rank");
}

/* ---- a decoder's shape ---- */

enum { LAYERS = 30, TENSORS = 9, DECODER_PARAMS = LAYERS * TENSORS + 2, DECODER_UNITS = LAYERS + 2, RANKS = 4 };

/* SmolLM2-135M: D 576, I 1536, H 9, G 3, V 49152, tied. */
static const int64_t layer_dims[TENSORS][2] = {{576, 0}, {576, 576},  {192, 576},  {192, 576}, {576, 576},
                                               {576, 0}, {1536, 576}, {1536, 576}, {576, 1536}};

typedef struct {
    const nrl_parallel *table;
    const void *options;
    nrl_dtype compute;
    uint32_t block;
    bool divides[RANKS]; /* a block of 256 elements of a parameter */
    nrl_parallel_plan plan[RANKS];
    char text[RANKS][256];
    int64_t local[RANKS];
} decoder;

static nrl_status plan_decoder(nrl_mesh *mesh, int32_t rank, void *user)
{
    decoder *d = user;
    nrl_param *params = calloc(DECODER_PARAMS, sizeof *params), **list = calloc(DECODER_PARAMS + 1, sizeof *list);
    nrl_part *parts = calloc(DECODER_PARAMS, sizeof *parts);
    nrl_unit_uses units[DECODER_UNITS] = {{.name = "embed", .n_uses = 1, .uses = list}};
    const int64_t table_dims[] = {49152, 576}, norm_dims[] = {576};
    void *self = NULL;
    param_init(&params[0], &parts[0], "embed", 2, table_dims);
    for (int i = 0; i < LAYERS * TENSORS; i++)
        param_init(&params[1 + i], &parts[1 + i], "w", layer_dims[i % TENSORS][1] ? 2 : 1, layer_dims[i % TENSORS]);
    param_init(&params[DECODER_PARAMS - 1], &parts[DECODER_PARAMS - 1], "norm", 1, norm_dims);
    for (int i = 0; i < DECODER_PARAMS; i++)
        list[i] = &params[i];
    list[DECODER_PARAMS] = &params[0];
    for (int u = 0; u < LAYERS; u++)
        units[1 + u] = (nrl_unit_uses){.name = "layer", .n_uses = TENSORS, .uses = list + 1 + u * TENSORS};
    units[DECODER_UNITS - 1] = (nrl_unit_uses){.name = "norm", .n_uses = 2, .uses = list + DECODER_PARAMS - 1};
    d->plan[rank] = (nrl_parallel_plan){.size = sizeof *d->plan,
                                        .train = true,
                                        .compute = d->compute,
                                        .block = d->block ? d->block : 1,
                                        .n_params = DECODER_PARAMS,
                                        .n_units = DECODER_UNITS,
                                        .params = list,
                                        .units = units};
    nrl_status st = d->table->create(d->options, mesh, &self);
    if (st == NRL_OK) st = d->table->plan(self, &d->plan[rank]);
    for (int i = 0; i < DECODER_PARAMS && st == NRL_OK; i++)
        d->local[rank] += layout_local_numel(mesh, &params[i]);
    for (int i = 0; i < DECODER_PARAMS && st == NRL_OK; i++) {
        layout_shard shard = layout_shard_of(mesh, rank, &parts[i], 0);
        d->divides[rank] |= shard.flat_begin < shard.flat_end && shard.flat_begin % 256 != 0;
    }
    if (st == NRL_OK) snprintf(d->text[rank], sizeof *d->text, "%s", d->plan[rank].text);
    if (self) d->table->destroy(self);
    free(parts);
    free(list);
    free(params);
    return st;
}

static const int64_t table_numel = 49152 * 576, layer_numel = 3540096, all_numel = 134515008;

static void a_decoder_is_divided_evenly_and_buffers_are_its_largest_units(void **state)
{
    decoder d = {.compute = NRL_DTYPE_F32};
    assert_int_equal(fsdp_options_of(*state, "{}", &d.table, &d.options), NRL_OK);
    assert_int_equal(local_ranks_run(RANKS, plan_decoder, &d), NRL_OK);
    int64_t sum = 0;
    for (int r = 0; r < RANKS; r++) {
        sum += d.local[r];
        assert_true(llabs(d.local[r] - all_numel / RANKS) <= 2 * RANKS * 64);
        /* the table and two layers, twice, and a norm's rest */
        int64_t buffers = 2 * 4 * (table_numel + 2 * layer_numel);
        assert_true(d.plan[r].buffer_bytes >= buffers && d.plan[r].buffer_bytes < buffers + buffers / 100);
        assert_true(d.plan[r].gathers_weights && d.plan[r].reduces_grads);
    }
    assert_int_equal(sum, all_numel);
    assert_non_null(strstr(d.text[0], "full shard over 4 ranks, 32 units"));
}

static void two_small_buffers_follow_a_large_one_for_any_number_of_ahead(void **state)
{
    decoder d = {.compute = NRL_DTYPE_BF16};
    assert_int_equal(fsdp_options_of(*state, "{prefetch: 3, reduce_dtype: bf16}", &d.table, &d.options), NRL_OK);
    assert_int_equal(local_ranks_run(RANKS, plan_decoder, &d), NRL_OK);
    int64_t gathered = 2 * (table_numel + 4 * layer_numel), gradients = 4 * (table_numel + layer_numel);
    int64_t wire = 2 * (table_numel + layer_numel), most = gathered + gradients + wire;
    assert_true(d.plan[0].buffer_bytes <= most + most / 100);
}

static void shards_keep_blocks_of_the_optimizer_together(void **state)
{
    decoder d = {.compute = NRL_DTYPE_F32}, blocks = {.compute = NRL_DTYPE_F32, .block = 256};
    assert_int_equal(fsdp_options_of(*state, "{}", &d.table, &d.options), NRL_OK);
    blocks.table = d.table;
    blocks.options = d.options;
    assert_int_equal(local_ranks_run(RANKS, plan_decoder, &d), NRL_OK);
    assert_int_equal(local_ranks_run(RANKS, plan_decoder, &blocks), NRL_OK);
    assert_true(d.divides[1] || d.divides[2] || d.divides[3]);
    assert_false(blocks.divides[1] || blocks.divides[2] || blocks.divides[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(ranks_that_do_not_divide_are_refused),
        cmocka_unit_test(shards_keep_blocks_of_the_optimizer_together),
        cmocka_unit_test(a_decoder_is_divided_evenly_and_buffers_are_its_largest_units),
        cmocka_unit_test(two_small_buffers_follow_a_large_one_for_any_number_of_ahead),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
