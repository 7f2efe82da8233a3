/*
 * test_adapter.c - attaching adapters to models of two plugins: which weights may have one, what is
 * frozen, names and initial values like those of peft; valid and invalid peft directories; and the
 * adapter's description of them.
 */
#include "model/packed.h"
#include "support.h"
#include "support/context.h"
#include <math.h>

static plugin_host *host;

static int open_host(void **state)
{
    (void)state;
    host = support_host();
    return 0;
}

static int close_host(void **state)
{
    (void)state;
    plugin_host_destroy(host);
    return 0;
}

static model *golden(arena *a, const char *name)
{
    const nrl_node *config;
    model *m;
    ASSERT_OK(test_weights_config(support_golden(a, name), a, &config));
    ASSERT_OK(support_model(host, config, &m));
    return m;
}

static int n_fitting(const model *m)
{
    int n = 0;
    for (int32_t i = 0; i < m->n_own; i++)
        n += adapter_fits(m, m->params[i]);
    return n;
}

static void linear_weights_fit_and_no_other(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int modules; /* of two layers */
    } models[] = {{"llama", 14}, {"qwen2", 14}, {"qwen3", 14}, {"gpt2", 8}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        arena a = {0};
        model *m = golden(&a, models[i].name);
        assert_int_equal(n_fitting(m), models[i].modules);
        assert_false(adapter_fits(m, m->head.weight));
        assert_false(adapter_fits(m, m->units[0].uses[0]));
        model_destroy(m);
        arena_free(&a);
    }
}

static void routers_are_not_quantized_and_only_those_that_were_linear_in_transformers_fit(void **state)
{
    (void)state;
    static const struct {
        const char *name, *router;
        bool fits;
    } models[] = {{"qwen3_moe", "model.layers.1.mlp.gate.weight", true},
                  {"mixtral", "model.layers.1.block_sparse_moe.gate.weight", true},
                  {"olmoe", "model.layers.1.mlp.gate.weight", true},
                  {"gpt_oss", "model.layers.1.mlp.router.weight", false}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        arena a = {0};
        model *m = golden(&a, arena_printf(&a, "../experts/%s", models[i].name));
        const nrl_param *router = model_param(m, models[i].router);
        const nrl_param *query = model_param(m, "model.layers.1.self_attn.q_proj.weight");
        assert_int_equal(adapter_fits(m, router), models[i].fits);
        assert_false(model_quantizes(m, router));
        assert_true(adapter_fits(m, query) && model_quantizes(m, query));
        model_destroy(m);
        arena_free(&a);
    }
}

static void a_model_with_adapters_trains_them_alone(void **state)
{
    (void)state;
    arena a = {0};
    model *m = golden(&a, "gpt2");
    int32_t own = m->n_params, uses = m->units[1].n_uses;
    ASSERT_OK(test_adapt(m, &a,
                         "{\"module\":\"transformer.h.0.attn.c_attn\",\"rank\":4,\"alpha\":8},"
                         "{\"module\":\"transformer.h.1.mlp.c_proj\",\"rank\":2,\"alpha\":8}"));
    assert_int_equal(m->n_own, own);
    assert_int_equal(m->n_params, own + 4);
    for (int32_t i = 0; i < m->n_params; i++)
        assert_int_equal(m->params[i]->trained, i >= own);
    const nrl_param *w = model_param(m, "transformer.h.0.attn.c_attn.weight"), *p = w->adapter->params[0],
                    *q = w->adapter->params[1];
    assert_string_equal(p->name, "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
    assert_string_equal(q->name, "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight");
    assert_true(p->dims[0] == 4 && p->dims[1] == w->dims[1] && q->dims[0] == w->dims[0] && q->dims[1] == 4);
    assert_int_equal(m->units[1].n_uses, uses + 2);
    assert_int_equal(model_first_trained(m), 1);
    double flops = 0; /* of one token: every frozen matrix is gone through twice, an adapter's three times */
    for (int32_t i = 2; i < m->n_params; i++) /* behind the tables, of which the first is the head, too */
        if (m->params[i]->n_dims == 2) flops += (i < own ? 4.0 : 6.0) * (double)m->params[i]->numel;
    for (int32_t u = 0; u < m->n_units; u++)
        flops -= model_unit_flops(m, u);
    assert_true(flops == -4.0 * (double)m->head.weight->numel);
    assert_int_equal(model_n_trained(m), p->numel + q->numel + m->params[own + 2]->numel + m->params[own + 3]->numel);
    model_destroy(m);
    arena_free(&a);
}

/* kaiming_uniform with a = sqrt 5: within 1/sqrt(inputs); and the other is zero. */
static void initial_values_are_pefts(void **state)
{
    (void)state;
    arena a = {0};
    model *m = golden(&a, "llama");
    ASSERT_OK(test_adapt(m, &a, "{\"module\":\"model.layers.0.mlp.down_proj\",\"rank\":64,\"alpha\":64}"));
    const nrl_param *p = m->params[m->n_own], *q = m->params[m->n_own + 1];
    float *x = mem_alloc((size_t)p->numel * sizeof *x), *y = mem_alloc((size_t)q->numel * sizeof *y), part[7];
    double bound = 1 / sqrt((double)p->dims[1]), mean = 0, square = 0;
    model_init_values(p, 5, 0, p->numel, x);
    model_init_values(q, 5, 0, q->numel, y);
    for (int64_t i = 0; i < p->numel; i++) {
        assert_true(fabs((double)x[i]) <= bound);
        mean += (double)x[i] / (double)p->numel;
        square += (double)x[i] * (double)x[i] / (double)p->numel;
    }
    assert_true(fabs(mean) < 0.05 * bound && fabs(square / (bound * bound / 3) - 1) < 0.1);
    for (int64_t i = 0; i < q->numel; i++)
        assert_true(y[i] == 0);
    model_init_values(p, 5, 11, 7, part);
    assert_memory_equal(part, x + 11, sizeof part);
    free(x);
    free(y);
    model_destroy(m);
    arena_free(&a);
}

static void an_unknown_module_is_told_with_those_there_are(void **state)
{
    (void)state;
    arena a = {0};
    model *m = golden(&a, "llama");
    ASSERT_FAILS(test_adapt(m, &a, "{\"module\":\"model.layers.0.attention.q\",\"rank\":4,\"alpha\":8}"),
                 NRL_ERR_CONFIG, "model.layers.1.self_attn.v_proj");
    model_destroy(m);
    arena_free(&a);
}

static void products_of_stretches_are_those_of_the_whole(void **state)
{
    (void)state;
    enum { M = 5, K = 7, R = 3 };
    float x[R * K], y[M * R], whole[M * K] = {0}, pieces[M * K] = {0};
    const float *const values[] = {x, y};
    arena memory = {0};
    nrl_node *settings;
    adapter_set set;
    const char text[] = "{\"adapter\":\"lora\",\"modules\":[{\"module\":\"m\",\"rank\":6,\"alpha\":3}]}";
    const nrl_adapter_target target = {.size = sizeof target, .module = "m", .outputs = M, .inputs = K};
    ASSERT_OK(json_parse(&memory, "settings", text, strlen(text), &settings));
    nrl_node *one = (nrl_node *)nrl_node_at(nrl_node_find(settings, "modules"), 0);
    node_set(&memory, one, "rank", node_int(&memory, R));
    node_set(&memory, one, "alpha", node_f64(&memory, 0.5 * R)); /* scale 0.5 */
    ASSERT_OK(adapter_set_open(&memory, host, settings, &set));
    for (int i = 0; i < R * K; i++)
        x[i] = (float)(i % 5 - 2);
    for (int i = 0; i < M * R; i++)
        y[i] = (float)(i % 7 - 3);
    set.table->merge(set.self, 0, &target, values, 0, M * K, whole);
    for (int begin = 0; begin < M * K; begin += 4) {
        int n = M * K - begin < 4 ? M * K - begin : 4;
        set.table->merge(set.self, 0, &target, values, begin, n, pieces + begin);
    }
    adapter_set_close(&set);
    arena_free(&memory);
    assert_memory_equal(whole, pieces, sizeof whole);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++) {
            double sum = 0;
            for (int j = 0; j < R; j++)
                sum += 0.5 * (double)y[m * R + j] * (double)x[j * K + k];
            assert_true(fabs(sum - (double)whole[m * K + k]) < 1e-6);
        }
}

/* ---- peft directories ---- */

/* A copy of a golden adapter, its description with `from` replaced by `to`. */
static char *changed(const char *from, const char *to)
{
    arena a = {0};
    char *dir = support_scratch(), *text;
    const char *golden_dir = arena_printf(&a, "%s/tests/data/lora/llama_qv", getenv("NRL_TEST_SOURCE"));
    size_t size;
    ASSERT_OK(file_read(arena_printf(&a, "%s/adapter_model.safetensors", golden_dir), 1 << 20, &text, &size));
    support_write(dir, "adapter_model.safetensors", text, size);
    free(text);
    ASSERT_OK(file_read(arena_printf(&a, "%s/adapter_config.json", golden_dir), 1 << 20, &text, &size));
    char *at = strstr(text, from);
    assert_non_null(at);
    const char *out = arena_printf(&a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    support_write(dir, "adapter_config.json", out, strlen(out));
    free(text);
    arena_free(&a);
    return dir;
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *told;
    } cases[] = {
        {"\"use_dora\": false", "\"use_dora\": true", "use_dora is true"},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias is \"all\""},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save is [\"lm_head\"]"},
        {"\"lora_bias\": false", "\"lora_bias\": true", "lora_bias is true"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights is \"pissa\""},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "expected LORA"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q.*\": 3}", "is a regular expression"},
        {"\"lora_alpha\": 8", "\"lora_alpha\": \"eight\"", "is not a number"},
        {"\"lora_dropout\": 0.0", "\"lora_dropout\": 1.0", "lora_dropout is 1"},
        {"\"lora_dropout\": 0.0", "\"lora_dropout\": \"none\"", "lora_dropout is \"none\""},
        {"\"layer_replication\": null", "\"layer_replication\": [[0, 1]]", "layer_replication is"},
        {"\"use_rslora\": false", "\"a_new_thing\": 3", "a_new_thing is 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_adapter p;
        char *dir = changed(cases[i].from, cases[i].to);
        nrl_status st = test_adapter_open(dir, &p);
        assert_true(st == NRL_ERR_CONFIG || st == NRL_ERR_DATA);
        if (!strstr(nrl_error_text(), cases[i].told)) fail_msg("'%s' is not in: %s", cases[i].told, nrl_error_text());
        test_folder_remove(dir);
        free(dir);
    }
}

static void a_modules_own_alpha_is_taken(void **state)
{
    (void)state;
    test_adapter p;
    char *dir = changed("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"1.self_attn.v_proj\": 3}");
    ASSERT_OK(test_adapter_open(dir, &p));
    const adapter_set *s = &p.set;
    assert_int_equal(s->n, 4);
    for (int32_t i = 0; i < s->n; i++) {
        const nrl_node *at = nrl_node_at(nrl_node_find(s->settings, "modules"), (size_t)i);
        double alpha = nrl_node_f64(nrl_node_find(at, "alpha"), 0);
        assert_true(alpha == (!strcmp(s->modules[i], "model.layers.1.self_attn.v_proj") ? 3 : 8));
    }
    test_adapter_close(&p);
    test_folder_remove(dir);
    free(dir);
}

static void an_adapter_of_another_model_is_told(void **state)
{
    (void)state;
    arena a = {0};
    test_adapter p;
    model *m = golden(&a, "qwen3"); /* the same modules, other widths */
    ASSERT_OK(test_adapter_open(arena_printf(&a, "%s/tests/data/lora/llama_qv", getenv("NRL_TEST_SOURCE")), &p));
    nrl_status st = model_adapt(m, &p.set);
    if (st == NRL_OK) st = weights_check_adapters(p.w, m);
    assert_int_equal(st, NRL_ERR_CONFIG);
    test_adapter_close(&p);
    model_destroy(m);
    m = golden(&a, "gpt2");
    ASSERT_OK(test_adapter_open(arena_printf(&a, "%s/tests/data/lora/llama_qv", getenv("NRL_TEST_SOURCE")), &p));
    ASSERT_FAILS(model_adapt(m, &p.set), NRL_ERR_CONFIG, "no such linear module");
    test_adapter_close(&p);
    model_destroy(m);
    arena_free(&a);
}

static nrl_status zeros(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    (void)user, (void)p, (void)begin;
    memset(out, 0, (size_t)n * sizeof *out);
    return NRL_OK;
}

/* adapter_config.json as it is written for the model; malloc'd. */
static char *described(const model *m, const char *base)
{
    char *dir = support_scratch(), *path = mem_printf("%s/out/adapter_config.json", dir),
         *to = mem_printf("%s/out", dir), *text;
    size_t size;
    const save_options o = {.dtype = NRL_DTYPE_F32, .adapter_base = base};
    ASSERT_OK(test_save(to, m, zeros, NULL, o));
    ASSERT_OK(file_read(path, 1 << 20, &text, &size));
    test_folder_remove(dir);
    free(dir);
    free(path);
    free(to);
    return text;
}

static void targets_are_told_by_last_parts_where_these_say_all(void **state)
{
    (void)state;
    arena a = {0};
    model *m = golden(&a, "gpt2");
    ASSERT_OK(test_adapt(m, &a,
                         "{\"module\":\"transformer.h.0.attn.c_attn\",\"rank\":4,\"alpha\":8},"
                         "{\"module\":\"transformer.h.1.attn.c_attn\",\"rank\":2,\"alpha\":6}"));
    char *text = described(m, "models/x");
    assert_non_null(strstr(text, "\"c_attn\"\n"));
    assert_non_null(strstr(text, "\"fan_in_fan_out\": true"));
    assert_non_null(strstr(text, "\"transformer.h.1.attn.c_attn\": 2"));
    assert_non_null(strstr(text, "\"transformer.h.1.attn.c_attn\": 6"));
    free(text);
    model_destroy(m);
    m = golden(&a, "gpt2");
    ASSERT_OK(test_adapt(m, &a, "{\"module\":\"transformer.h.0.attn.c_attn\",\"rank\":4,\"alpha\":8}"));
    text = described(m, "");
    assert_non_null(strstr(text, "\"transformer.h.0.attn.c_attn\"\n"));
    assert_non_null(strstr(text, "\"base_model_name_or_path\": null"));
    free(text);
    model_destroy(m);
    arena_free(&a);
}

/* y = x W^T + (f - 1) * d W^T + f * s (d A^T) B^T, where d is x after dropout and f = m / |W + s B A|. */
static void dora_with_dropout_is_pefts(void **state)
{
    enum { ROWS = 5, IN = 4, OUT = 3, RANK = 2, W = 0, A, B, M, X, N };
    static const int64_t dims[N][2] = {{OUT, IN}, {RANK, IN}, {OUT, RANK}, {OUT, 1}, {ROWS, IN}};
    static const char settings[] = "{\"adapter\":\"lora\",\"dora\":true,\"dropout\":0.5,\"modules\":"
                                   "[{\"module\":\"linear\",\"rank\":2,\"alpha\":3}]}";
    const double scale = 3.0 / RANK;
    arena a = {0};
    uint64_t seed = 1;
    float v[N][ROWS * IN];
    double d[ROWS * IN], y[ROWS * OUT];
    nrl_param p[X] = {0};
    nrl_part parts[X];
    nrl_tensor *t[N], *dropped, *out;
    nrl_node *node;
    adapter_set set;
    ASSERT_OK(json_parse(&a, "settings", settings, strlen(settings), &node));
    ASSERT_OK(adapter_set_open(&a, host, node, &set));
    if (open_context(state)) fail();
    ctx_scope_begin(the_ctx);
    for (int i = 0; i < N; i++) {
        for (int64_t k = 0; k < dims[i][0] * dims[i][1]; k++)
            v[i][k] = (float)test_uniform(&seed);
        ASSERT_OK(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, i == M ? 1 : 2, dims[i], v[i], &t[i]));
        if (i == X) continue;
        param_init(&p[i], &parts[i], "linear.weight", i == M ? 1 : 2, dims[i]);
        p[i].slots[NRL_SLOT_WEIGHT] = t[i];
    }
    nrl_adapter_site site = {
        .table = set.table, .self = set.self, .n = 3, .params = {&p[A], &p[B], &p[M]}, .weight = &p[W]};
    p[W].adapter = &site;
    ctx_set_random(the_ctx, 7);
    ASSERT_OK(nrl_op_linear(the_ctx, t[X], &p[W], NULL, &out));
    ctx_set_random(the_ctx, 7); /* the same mask */
    ASSERT_OK(nrl_adapter_dropout(the_ctx, &site, t[X], 0.5, &dropped));
    ASSERT_OK(nrl_tensor_fetch(the_ctx, out, y, ROWS * OUT));
    ASSERT_OK(nrl_tensor_fetch(the_ctx, dropped, d, ROWS * IN));
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < OUT; m++) {
            double whole = 0, product = 0, added = 0, squares = 0;
            for (int k = 0; k < IN; k++) {
                double ba = 0;
                for (int j = 0; j < RANK; j++)
                    ba += (double)v[B][m * RANK + j] * (double)v[A][j * IN + k];
                const double w = v[W][m * IN + k];
                whole += (double)v[X][r * IN + k] * w;
                product += d[r * IN + k] * w;
                added += d[r * IN + k] * scale * ba;
                squares += (w + scale * ba) * (w + scale * ba);
            }
            const double f = (double)v[M][m] / sqrt(squares);
            assert_true(fabs(y[r * OUT + m] - (whole + (f - 1) * product + f * added)) < 1e-5);
        }
    ctx_scope_end(the_ctx);
    close_context(state);
    adapter_set_close(&set);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_weights_fit_and_no_other),
        cmocka_unit_test(routers_are_not_quantized_and_only_those_that_were_linear_in_transformers_fit),
        cmocka_unit_test(a_model_with_adapters_trains_them_alone),
        cmocka_unit_test(initial_values_are_pefts),
        cmocka_unit_test(an_unknown_module_is_told_with_those_there_are),
        cmocka_unit_test(products_of_stretches_are_those_of_the_whole),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(a_modules_own_alpha_is_taken),
        cmocka_unit_test(an_adapter_of_another_model_is_told),
        cmocka_unit_test(targets_are_told_by_last_parts_where_these_say_all),
        cmocka_unit_test(dora_with_dropout_is_pefts),
    };
    return cmocka_run_group_tests(tests, open_host, close_host);
}
