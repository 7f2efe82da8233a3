/*
 * test_lora.c - adapters created by peft, on small random models, compared with peft's float64
 * numbers: loss, log-probs, the gradient of every A and B, merged weights and eight AdamW steps, in
 * fp32. Tolerances are those of test_models.c.
 */
#include "harness.h"
#include "model/weights.h"
#include <math.h>

static const struct {
    const char *name, *base;
} cases[] = {{"llama_qv", "llama"}, {"qwen2_all_rslora", "qwen2"}};
enum { N_CASES = sizeof cases / sizeof *cases, N_STEPS = 8 };

static void report(const char *what, double error, double bound)
{
    print_message(" %s %.1e/%g", what, error, bound);
    if (!(error <= bound)) fail_msg("%s: error %g, expected at most %g", what, error, bound);
}

static void note(double *worst, double x, double y, double scale)
{
    double e = fabs(x - y) / scale;
    if (!(e <= *worst)) *worst = e;
}

typedef struct {
    parity p;
    test_adapter adapter;
    const nrl_node *golden; /* the adapter's; p.golden is the base model's, which has the batch */
} lora;

static void open_case(lora *l, size_t i, nrl_dtype dtype)
{
    arena a = {0};
    nrl_node *golden;
    const char *dir = arena_printf(&a, "%s/tests/data/lora/%s", getenv("NRL_TEST_SOURCE"), cases[i].name);
    ASSERT_OK(test_adapter_open(dir, &l->adapter));
    parity_open_adapted(&l->p, parity_model_dir(&a, cases[i].base), &l->adapter, dtype);
    ASSERT_OK(json_read_file(&l->p.a, arena_printf(&a, "%s/golden.json", dir), 64 << 20, &golden));
    l->golden = golden;
    arena_free(&a);
}

static void close_case(lora *l)
{
    parity_close(&l->p);
    test_adapter_close(&l->adapter);
}

static void for_all(void (*check)(lora *))
{
    for (size_t i = 0; i < N_CASES; i++) {
        lora l;
        open_case(&l, i, NRL_DTYPE_F32);
        print_message("%-17s", cases[i].name);
        check(&l);
        print_message("\n");
        close_case(&l);
    }
}

static void check_logps(lora *l)
{
    double error = 0;
    int64_t at = 0;
    nrl_batch *batch = parity_golden_batch(&l->p, 0, 3, SCORE_LABELS);
    double *logps = parity_logps(&l->p, batch);
    for (size_t s = 0; s < 3; s++) {
        const nrl_node *want = nrl_node_at(nrl_node_find(l->golden, "label_logprobs"), s);
        for (size_t i = 0; i < nrl_node_size(want); i++)
            note(&error, logps[at++], parity_item(want, i), 1);
    }
    assert_int_equal(at, batch->n_rows);
    report("logp", error, 2e-5);
    free(logps);
    ctx_set_batch(l->p.ctx, NULL);
    batch_free(batch);
}

static void log_probs_are_pefts(void **state)
{
    (void)state;
    for_all(check_logps);
}

/* With adapters off it is the base model, to the bit. */
static void check_off(lora *l)
{
    parity base;
    parity_open(&base, l->p.dir, "config.json", NRL_DTYPE_F32);
    nrl_batch *batch = parity_golden_batch(&l->p, 0, 3, SCORE_ALL);
    ctx_settings_of(l->p.ctx)->adapters_off = true;
    double *off = parity_logps(&l->p, batch), *plain = parity_logps(&base, batch);
    assert_memory_equal(off, plain, (size_t)batch->n_rows * sizeof *off);
    ctx_settings_of(l->p.ctx)->adapters_off = false;
    double *on = parity_logps(&l->p, batch);
    assert_memory_not_equal(on, plain, (size_t)batch->n_rows * sizeof *on);
    free(on);
    free(off);
    free(plain);
    ctx_set_batch(l->p.ctx, NULL);
    parity_close(&base);
    batch_free(batch);
}

static void without_its_adapters_it_is_the_base_model(void **state)
{
    (void)state;
    for_all(check_off);
}

static void compare_grad(lora *l, nrl_param *p, double *l2_error, double *element)
{
    const nrl_node *want = nrl_node_find(nrl_node_find(l->golden, "grads"), p->name);
    const nrl_node *at = nrl_node_find(want, "indices"), *values = nrl_node_find(want, "values");
    double *got = parity_tensor(&l->p, p, NRL_SLOT_GRAD), l2 = parity_number(want, "l2"), largest = 0;
    note(l2_error, parity_l2(got, p->numel), l2, l2);
    for (int64_t i = 0; i < p->numel; i++)
        largest = fmax(largest, fabs(got[i]));
    for (size_t i = 0; i < nrl_node_size(at); i++)
        note(element, got[nrl_node_int(nrl_node_at(at, i), 0)], parity_item(values, i), largest);
    free(got);
}

static void check_grads(lora *l)
{
    nrl_batch *batch = parity_golden_batch(&l->p, 0, 3, SCORE_LABELS);
    double n = parity_number(l->golden, "n_target_tokens"), loss = parity_number(l->golden, "loss_token_mean");
    const model *m = l->p.m;
    for (int tokenwise = 0; tokenwise < 2; tokenwise++) {
        double l2 = 0, element = 0;
        l->p.loss.tokenwise = tokenwise;
        double sum = parity_train(&l->p, batch, n);
        for (int32_t i = m->n_own; i < m->n_params; i++)
            compare_grad(l, m->params[i], &l2, &element);
        report("loss", fabs(sum / n - loss) / loss, 2e-6);
        report("grad l2", l2, 2e-5);
        report("element", element, 1e-5);
    }
    for (int32_t i = 0; i < m->n_own; i++) {
        assert_null(nrl_param_tensor(m->params[i], NRL_SLOT_GRAD));
        assert_null(nrl_param_tensor(m->params[i], NRL_SLOT_MASTER));
        assert_null(nrl_param_tensor(m->params[i], NRL_SLOT_STATE0));
    }
    ctx_set_batch(l->p.ctx, NULL);
    batch_free(batch);
}

static void gradients_of_every_adapter_are_pefts(void **state)
{
    (void)state;
    for_all(check_grads);
}

static void check_recompute(lora *l)
{
    nrl_batch *batch = parity_golden_batch(&l->p, 0, 3, SCORE_LABELS);
    const model *m = l->p.m;
    double **kept = mem_alloc((size_t)m->n_params * sizeof *kept);
    double loss = parity_train(&l->p, batch, 10);
    for (int32_t i = m->n_own; i < m->n_params; i++)
        kept[i] = parity_tensor(&l->p, m->params[i], NRL_SLOT_GRAD);
    for (int32_t u = 0; u < m->n_units - 1; u++)
        l->p.walk.recompute[u] = true;
    actions_free(&l->p.walk.actions);
    assert_true(parity_train(&l->p, batch, 10) == loss);
    for (int32_t i = m->n_own; i < m->n_params; i++) {
        double *again = parity_tensor(&l->p, m->params[i], NRL_SLOT_GRAD);
        assert_memory_equal(again, kept[i], (size_t)m->params[i]->numel * sizeof *again);
        free(again);
        free(kept[i]);
    }
    free(kept);
    ctx_set_batch(l->p.ctx, NULL);
    batch_free(batch);
}

static void activation_checkpointing_changes_no_bit(void **state)
{
    (void)state;
    for_all(check_recompute);
}

/* ---- merged ---- */

static void check_merged(lora *l)
{
    double error = 0;
    const nrl_node *want = nrl_node_find(l->golden, "merged_param_l2");
    for (int32_t i = 0; i < l->p.m->n_own; i++) {
        const nrl_param *w = l->p.m->params[i];
        if (!w->adapter) continue;
        const nrl_adapter_site *site = w->adapter;
        const nrl_param *pa = site->params[0], *pb = site->params[1];
        const nrl_adapter_target target = adapter_target(w, "");
        float *x = mem_alloc((size_t)w->numel * sizeof *x), *a = mem_alloc((size_t)pa->numel * sizeof *a);
        float *b = mem_alloc((size_t)pb->numel * sizeof *b);
        double sum = 0;
        ASSERT_OK(weights_read(l->p.weights, l->p.m, w, 0, w->numel, x));
        ASSERT_OK(weights_read_tensor(l->adapter.w, pa->name, 0, pa->numel, a));
        ASSERT_OK(weights_read_tensor(l->adapter.w, pb->name, 0, pb->numel, b));
        int64_t cut = w->numel / 3; /* not at a row's end */
        const float *const values[] = {a, b};
        site->table->merge(site->self, site->module, &target, values, 0, cut, x);
        site->table->merge(site->self, site->module, &target, values, cut, w->numel - cut, x + cut);
        for (int64_t k = 0; k < w->numel; k++)
            sum += (double)x[k] * (double)x[k];
        double l2 = parity_number(want, w->name);
        note(&error, sqrt(sum), l2, l2);
        free(x);
        free(a);
        free(b);
    }
    report("merged l2", error, 1e-6);
}

static void merged_weights_are_pefts(void **state)
{
    (void)state;
    for_all(check_merged);
}

/* ---- training ---- */

static double total_norm(lora *l)
{
    double sum = 0;
    for (int32_t i = l->p.m->n_own; i < l->p.m->n_params; i++) {
        double *g = parity_tensor(&l->p, l->p.m->params[i], NRL_SLOT_GRAD);
        double l2 = parity_l2(g, l->p.m->params[i]->numel);
        sum += l2 * l2;
        free(g);
    }
    return sqrt(sum);
}

static void step(lora *l, const nrl_node *hyper, int64_t number, double norm)
{
    nrl_adamw adamw = {sizeof adamw, parity_number(hyper, "beta1"), parity_number(hyper, "beta2"),
                       parity_number(hyper, "eps"), parity_number(hyper, "weight_decay")};
    double clip = parity_number(hyper, "clip_global_norm");
    parity_adamw(&l->p, &adamw, parity_number(hyper, "lr"), fmin(1, clip / (norm + 1e-6)), number);
}

static void check_adamw(lora *l)
{
    const nrl_node *want = nrl_node_find(l->golden, "adamw"), *after = nrl_node_find(want, "param_l2_after");
    nrl_batch *batch = parity_golden_batch(&l->p, 0, 3, SCORE_LABELS);
    double n = (double)batch->n_rows, loss_error = 0, norm_error = 0, l2_error = 0;
    for (size_t i = 0; i < N_STEPS; i++) {
        double loss = parity_item(nrl_node_find(want, "loss"), i);
        double golden = parity_item(nrl_node_find(want, "grad_norm"), i);
        note(&loss_error, parity_train(&l->p, batch, n) / n, loss, loss);
        double norm = total_norm(l);
        note(&norm_error, norm, golden, golden);
        step(l, want, (int64_t)i + 1, norm);
    }
    for (int32_t i = l->p.m->n_own; i < l->p.m->n_params; i++) {
        const nrl_param *p = l->p.m->params[i];
        double *x = parity_tensor(&l->p, p, NRL_SLOT_MASTER), l2 = parity_number(after, p->name);
        note(&l2_error, parity_l2(x, p->numel), l2, l2);
        free(x);
    }
    report("loss", loss_error, 1e-4);
    report("norm", norm_error, 3e-4);
    report("weights l2", l2_error, 1e-5);
    ctx_set_batch(l->p.ctx, NULL);
    batch_free(batch);
}

static void eight_adamw_steps_are_pefts(void **state)
{
    (void)state;
    for_all(check_adamw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probs_are_pefts),
        cmocka_unit_test(without_its_adapters_it_is_the_base_model),
        cmocka_unit_test(gradients_of_every_adapter_are_pefts),
        cmocka_unit_test(activation_checkpointing_changes_no_bit),
        cmocka_unit_test(merged_weights_are_pefts),
        cmocka_unit_test(eight_adamw_steps_are_pefts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
