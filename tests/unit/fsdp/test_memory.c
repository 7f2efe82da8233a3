/*
 * test_memory.c - the memory of parameters, gradients, states and buffers on each rank, as the
 * allocator counts it, compared with the plan and with a calculation by hand: a decoder with the
 * proportions of SmolLM2-135M at a quarter of its width (30 layers, a tied table with a fifth of
 * all parameters).
 */
#include "base/json.h"
#include "fsdp/fixture.h"
#include "model/model.h"
#include "run/walk/strategy.h"

static const char config_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 144, \"intermediate_size\": 384, \"num_hidden_layers\": 30,"
    " \"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"head_dim\": 16, \"vocab_size\": 12288,"
    " \"hidden_act\": \"silu\", \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": true, \"rope_theta\": 10000.0}";

enum { N_STATES = 2, WORLD = 4 };
static const int64_t embedding = 12288 * 144, layer = 2 * 144 + 2 * 144 * 144 + 2 * 48 * 144 + 3 * 384 * 144;

typedef struct {
    const nrl_parallel *table;
    const void *options;
    const nrl_model *llama;
    nrl_dtype compute;
    bool train, small; /* masters in halves, gradients in bf16 */
    int64_t planned[WORLD], measured[WORLD], n_params;
} holding;

static nrl_status hold(const holding *h, nrl_mesh *mesh, nrl_ctx *ctx, model *m, int64_t *planned, int64_t *measured)
{
    const strategy_choices choices = {.n = 1,
                                      .of = {{.table = h->table, .axis = h->table->axis, .options = h->options}}};
    strategy_setup setup = {.choices = &choices,
                            .mesh = mesh,
                            .m = m,
                            .train = h->train,
                            .quiet = true,
                            .compute = h->compute,
                            .split16 = h->small,
                            .bf16_gradients = h->small,
                            .n_states = N_STATES,
                            .block = 1};
    strategy s = {0};
    storage held = {0};
    ctx_memory used;
    nrl_status st = strategy_open(&setup, &s);
    if (st == NRL_OK) st = strategy_bind(&s, ctx);
    storage_spec spec = strategy_storage(&s, &setup);
    if (st == NRL_OK) st = storage_bind(ctx, m, &spec, &held);
    ctx_memory_use(ctx, &used);
    *measured = (int64_t)used.peak_bytes;
    *planned = held.work_bytes + held.master_bytes + held.gradient_bytes + held.state_bytes + s.plan.buffer_bytes;
    strategy_close(&s, ctx);
    storage_free(ctx, m, &held);
    return st;
}

static nrl_status hold_on_rank(nrl_mesh *mesh, int32_t rank, void *user)
{
    holding *h = user;
    arena memory = {0};
    nrl_node *config;
    model *m;
    device d;
    nrl_ctx *ctx;
    NRL_TRY(json_parse(&memory, "config", config_text, strlen(config_text), &config));
    NRL_TRY(model_create(h->llama, config, &m));
    if (!test_device_open(&d)) return nrl_fail(NRL_ERR_BUG, "no cpu backend");
    NRL_TRY(ctx_create(&d, &ctx));
    nrl_status st = hold(h, mesh, ctx, m, &h->planned[rank], &h->measured[rank]);
    if (rank == 0) h->n_params = model_n_params(m);
    ctx_destroy(ctx);
    device_close(&d);
    model_destroy(m);
    arena_free(&memory);
    return st;
}

/* Bytes of P parameters on each of WORLD ranks, by hand: */
typedef int64_t (*by_hand)(int64_t p);

/* master, gradient and two states divided; f32 buffers of the table and two layers, twice */
static int64_t full_f32(int64_t p)
{
    return 16 * p / WORLD + 2 * 4 * (embedding + 2 * layer);
}
static int64_t full_bf16(int64_t p)
{
    return 16 * p / WORLD + (2 + 4) * (embedding + 2 * layer);
}
/* whole bf16 weights beside divided masters, gradients and states; gradients of table and two layers */
static int64_t grads_bf16(int64_t p)
{
    return 2 * p + 16 * p / WORLD + 4 * (embedding + 2 * layer);
}
/* whole f32 weights, of which the masters are a part; whole gradients, of which the reduced are */
static int64_t optimizer_f32(int64_t p)
{
    return 4 * p + 4 * p + 8 * p / WORLD;
}
/* both halves of a master, a bf16 gradient and two states divided */
static int64_t full_small(int64_t p)
{
    return (4 + 2 + 8) * p / WORLD + (2 + 4) * (embedding + 2 * layer);
}
/* whole bf16 weights, lower halves divided */
static int64_t grads_small(int64_t p)
{
    return 2 * p + (2 + 2 + 8) * p / WORLD + 4 * (embedding + 2 * layer);
}
/* two copies: half of everything */
static int64_t hybrid_f32(int64_t p)
{
    return 16 * p / 2 + 2 * 4 * (embedding + 2 * layer);
}
/* a share in bf16, and what is gathered of it */
static int64_t reference_bf16(int64_t p)
{
    return 2 * p / WORLD + 2 * (embedding + 2 * layer);
}

static int64_t off(int64_t a, int64_t b)
{
    return llabs(a - b) * 100 / b; /* per cent */
}

static void holds_as(void **state, const char *yaml, holding h, by_hand expected)
{
    enum { ALLOCATIONS = 64, ALIGNMENT = 64, PER_CENT = 3 };
    const plugin *llama;
    assert_int_equal(fsdp_options_of(*state, yaml, &h.table, &h.options), NRL_OK);
    assert_int_equal(plugin_open(((fixture *)*state)->host, NRL_KIND_MODEL, "llama", &llama), NRL_OK);
    h.llama = (const void *)llama->table;
    if (local_ranks_run(WORLD, hold_on_rank, &h) != NRL_OK) fail_msg("%s: %s", yaml, nrl_error_text());
    for (int r = 0; r < WORLD; r++) {
        /* states begin at multiples of 64 bytes, parameter by parameter */
        int64_t gaps = N_STATES * 272 * ALIGNMENT + ALLOCATIONS * ALIGNMENT;
        if (h.measured[r] < h.planned[r] || h.measured[r] > h.planned[r] + gaps ||
            off(h.measured[r], expected(h.n_params)) > PER_CENT)
            fail_msg("%s: rank %d holds %lld bytes, the plan says %lld, by hand %lld", yaml, r,
                     (long long)h.measured[r], (long long)h.planned[r], (long long)expected(h.n_params));
    }
}

static void holds(void **state, const char *yaml, nrl_dtype compute, bool train, by_hand expected)
{
    holds_as(state, yaml, (holding){.compute = compute, .train = train}, expected);
}

static void full_sharding_holds_its_part_and_a_few_units(void **state)
{
    holds(state, "{}", NRL_DTYPE_F32, true, full_f32);
    holds(state, "{}", NRL_DTYPE_BF16, true, full_bf16);
}

static void other_stages_hold_what_they_say(void **state)
{
    holds(state, "{shard: grads}", NRL_DTYPE_BF16, true, grads_bf16);
    holds(state, "{shard: optimizer}", NRL_DTYPE_F32, true, optimizer_f32);
    holds(state, "{replicas: 2}", NRL_DTYPE_F32, true, hybrid_f32);
}

static void halves_and_bf16_gradients_take_less(void **state)
{
    const holding small = {.compute = NRL_DTYPE_BF16, .train = true, .small = true};
    holds_as(state, "{}", small, full_small);
    holds_as(state, "{shard: grads}", small, grads_small);
}

static void a_reference_holds_a_share_and_a_few_units(void **state)
{
    holds(state, "{}", NRL_DTYPE_BF16, false, reference_bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_sharding_holds_its_part_and_a_few_units),
        cmocka_unit_test(other_stages_hold_what_they_say),
        cmocka_unit_test(halves_and_bf16_gradients_take_less),
        cmocka_unit_test(a_reference_holds_a_share_and_a_few_units),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
