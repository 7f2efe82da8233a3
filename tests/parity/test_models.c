/*
 * test_models.c - eight small random models compared with float64 numbers of transformers: forward,
 * gradients and eight AdamW steps, in fp32, bf16 and fp16, from both spellings of config.json.
 *
 * Tolerances are those of the golden files: about five times the error of transformers itself in
 * the same precision on the same models. Each test prints its largest error and its bound.
 */
#include "harness.h"
#include "inference/scheduler.h"
#include <math.h>
#include <unistd.h>

typedef struct {
    const char *name; /* of the dtype */
    nrl_dtype dtype;
    double logp, loss, grad_norm, grad_l2, grad_element; /* grad_element 0: not comparable */
    double adamw_loss, adamw_norm, adamw_l2, adamw_k_bias;
} bounds;

static const bounds fp32 = {"fp32", NRL_DTYPE_F32, 2e-5, 2e-6, 1e-5, 2e-5, 1e-5, 1e-4, 3e-4, 1e-5, 2e-3};
/* Key biases get gradients near rounding noise, which AdamW turns into steps of up to lr: in bf16
 * only their size is meaningful. */
static const bounds bf16 = {"bf16", NRL_DTYPE_BF16, 0.15, 1e-2, 2e-2, 0.1, 0, 5e-2, 0.1, 1e-2, 0.5};
/* An eighth of bf16's: three bits more. AdamW's first steps are of lr whatever the gradient: half.
 */
static const bounds fp16 = {"fp16", NRL_DTYPE_F16, 2e-2, 1.25e-3, 2.5e-3, 1.25e-2, 0, 2.5e-2, 5e-2, 5e-3, 0.5};
static const bounds *const precisions[] = {&fp32, &bf16, &fp16};
static const char *const names[] = {"llama", "llama3", "qwen2", "qwen3", "mistral", "gpt2", "phi3", "gemma3_text"};
enum { N_MODELS = sizeof names / sizeof *names, N_STEPS = 8 };

/* Runs a check on every model in every precision. */
static void for_all(void (*check)(parity *, const bounds *))
{
    for (size_t d = 0; d < sizeof precisions / sizeof *precisions; d++)
        for (size_t i = 0; i < N_MODELS; i++) {
            arena a = {0};
            parity p;
            parity_open(&p, parity_model_dir(&a, names[i]), "config.json", precisions[d]->dtype);
            assert_non_null(p.golden);
            print_message("%-8s %s ", names[i], precisions[d]->name);
            check(&p, precisions[d]);
            print_message("\n");
            parity_close(&p);
            arena_free(&a);
        }
}

static void report(const char *what, double error, double bound)
{
    print_message(" %s %.1e/%g", what, error, bound);
    if (!(error <= bound)) fail_msg("%s: error %g, expected at most %g", what, error, bound);
}

static void note(double *worst, double x, double y, double scale)
{
    double e = fabs(x - y) / scale;
    if (!(e <= *worst)) *worst = e; /* a NaN stays */
}

/* ---- forward ---- */

static const nrl_node *row(const parity *p, const char *key, int s)
{
    return nrl_node_at(nrl_node_find(p->golden, key), (size_t)s);
}

static void check_logps(parity *p, const bounds *b)
{
    double packed_error = 0, alone_error = 0;
    nrl_batch *packed = parity_golden_batch(p, 0, 3, SCORE_ALL);
    double *all = parity_logps(p, packed), *at = all;
    for (int s = 0; s < 3; s++) {
        nrl_batch *one = parity_golden_batch(p, s, s + 1, SCORE_ALL);
        double *alone = parity_logps(p, one);
        const nrl_node *want = row(p, "all_logprobs", s);
        assert_int_equal(one->n_rows, nrl_node_size(want));
        for (int64_t i = 0; i < one->n_rows; i++) {
            note(&packed_error, at[i], parity_item(want, (size_t)i), 1);
            note(&alone_error, at[i], alone[i], 1);
        }
        at += one->n_rows;
        free(alone);
        ctx_set_batch(p->ctx, NULL);
        batch_free(one);
    }
    report("logp", packed_error, b->logp);
    report("packed-separate", alone_error, b->logp);
    free(all);
    batch_free(packed);
}

static void log_probs_agree_packed_and_alone(void **state)
{
    (void)state;
    for_all(check_logps);
}

static void check_logits(parity *p, const bounds *b)
{
    double error = 0;
    int64_t vocab = p->m->info.vocab_size;
    nrl_batch *batch = parity_golden_batch(p, 0, 3, SCORE_ALL);
    int32_t last[3];
    for (int s = 0; s < 3; s++)
        last[s] = batch->cu_seqlens[s + 1] - 1;
    double *logits = parity_logits(p, batch, last, 3);
    for (int s = 0; s < 3; s++)
        for (int64_t v = 0; v < vocab; v++)
            note(&error, logits[s * vocab + v], parity_item(row(p, "last_logits", s), (size_t)v), 1);
    report("logits", error, b->logp);
    free(logits);
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
}

static void logits_agree(void **state)
{
    (void)state;
    for_all(check_logits);
}

/* The golden list: embedding, each layer but the last, and after the final norm. Relative to l2. */
static void compare_hidden(parity *p, nrl_tensor *h, const nrl_node *want, double *error)
{
    int64_t n = nrl_tensor_numel(h), d = nrl_tensor_dim(h, -1);
    double *x = mem_alloc((size_t)n * sizeof *x), l2 = parity_number(want, "l2");
    const nrl_node *first = nrl_node_find(want, "last_position_first_values");
    ASSERT_OK(nrl_tensor_fetch(p->ctx, h, x, n));
    note(error, parity_l2(x, n), l2, l2);
    for (size_t i = 0; i < nrl_node_size(first); i++)
        note(error, x[n - d + (int64_t)i], parity_item(first, i), l2);
    free(x);
}

static void check_hidden(parity *p, const bounds *b)
{
    double error = 0;
    const nrl_node *list = nrl_node_find(p->golden, "hidden_states_seq0");
    nrl_batch *batch = parity_golden_batch(p, 0, 1, SCORE_ALL);
    nrl_carry carry = {0};
    ASSERT_OK(ctx_set_batch(p->ctx, batch));
    ctx_scope_begin(p->ctx);
    for (int32_t u = 0; u < p->m->n_units; u++) {
        ASSERT_OK(p->m->table.forward(p->m->self, p->ctx, u, &carry));
        if (u == p->m->n_units - 2) continue; /* the last layer is listed after the norm */
        size_t i = u < p->m->n_units - 1 ? (size_t)u : (size_t)u - 1;
        compare_hidden(p, carry.tensors[0], nrl_node_at(list, i), &error);
    }
    assert_int_equal(nrl_node_size(list), p->m->n_units - 1);
    ctx_scope_end(p->ctx);
    report("hidden", error, b->dtype == NRL_DTYPE_F32 ? 1e-6 : 1e-2);
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
}

static void hidden_states_agree(void **state)
{
    (void)state;
    for_all(check_hidden);
}

/* ---- gradients ---- */

/* grads.safetensors has the names of the weights, so it is read like weights. */
static weight_files *open_grads(parity *p, const char *dir)
{
    weight_files *w;
    char *link = arena_printf(&p->a, "%s/model.safetensors", dir);
    assert_int_equal(symlink(arena_printf(&p->a, "%s/grads.safetensors", p->dir), link), 0);
    char *config = arena_printf(&p->a, "%s/config.json", dir);
    assert_int_equal(symlink(arena_printf(&p->a, "%s/config.json", p->dir), config), 0);
    ASSERT_OK(test_weights_open(dir, &w));
    unlink(link);
    unlink(config);
    return w;
}

typedef struct {
    double l2, element, square_sum;
} grad_errors;

static void compare_grad(parity *p, const weight_files *w, nrl_param *param, grad_errors *e)
{
    int64_t n = param->numel;
    float *want = mem_alloc((size_t)n * sizeof *want);
    double *got = parity_tensor(p, param, NRL_SLOT_GRAD), largest = 0, l2 = 0, diff = 0;
    ASSERT_OK(weights_read(w, p->m, param, 0, n, want));
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        l2 += (double)want[i] * (double)want[i];
        diff = fmax(diff, fabs(got[i] - (double)want[i]));
        if (isnan(got[i])) diff = NAN;
    }
    double mine = parity_l2(got, n);
    note(&e->l2, mine, sqrt(l2), sqrt(l2));
    note(&e->element, diff, 0, largest);
    e->square_sum += mine * mine;
    free(want);
    free(got);
}

static void check_grads(parity *p, const bounds *b)
{
    char dir[] = "/tmp/nrl-parity-XXXXXX";
    assert_non_null(mkdtemp(dir));
    weight_files *w = open_grads(p, dir);
    rmdir(dir);
    nrl_batch *batch = parity_golden_batch(p, 0, 3, SCORE_LABELS);
    double n = parity_number(p->golden, "n_target_tokens");
    double norm = parity_number(p->golden, "grad_norm"), loss = parity_number(p->golden, "loss_token_mean");
    assert_int_equal(batch->n_rows, (int64_t)n);
    for (int tokenwise = 0; tokenwise < 2; tokenwise++) {
        grad_errors e = {0};
        p->loss.tokenwise = tokenwise;
        double sum = parity_train(p, batch, n);
        for (int32_t i = 0; i < p->m->n_params; i++)
            compare_grad(p, w, p->m->params[i], &e);
        print_message(tokenwise ? "\n    by chunk:" : "\n    whole:   ");
        report("loss", fabs(sum / n - loss) / loss, b->loss);
        report("grad l2", e.l2, b->grad_l2);
        if (b->grad_element > 0) report("element", e.element, b->grad_element);
        report("norm", fabs(sqrt(e.square_sum) - norm) / norm, b->grad_norm);
    }
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
    weights_close(w);
}

static void loss_and_every_gradient_agree(void **state)
{
    (void)state;
    for_all(check_grads);
}

static void check_recompute(parity *p, const bounds *b)
{
    (void)b;
    nrl_batch *batch = parity_golden_batch(p, 0, 3, SCORE_LABELS);
    double **kept = mem_alloc((size_t)p->m->n_params * sizeof *kept);
    double loss = parity_train(p, batch, 10);
    for (int32_t i = 0; i < p->m->n_params; i++)
        kept[i] = parity_tensor(p, p->m->params[i], NRL_SLOT_GRAD);
    for (int32_t u = 0; u < p->m->n_units - 1; u++)
        p->walk.recompute[u] = true;
    actions_free(&p->walk.actions);
    assert_true(parity_train(p, batch, 10) == loss);
    for (int32_t i = 0; i < p->m->n_params; i++) {
        double *again = parity_tensor(p, p->m->params[i], NRL_SLOT_GRAD);
        assert_memory_equal(again, kept[i], (size_t)p->m->params[i]->numel * sizeof *again);
        free(again);
        free(kept[i]);
    }
    free(kept);
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
}

static void activation_checkpointing_changes_no_bit(void **state)
{
    (void)state;
    for_all(check_recompute);
}

/* ---- training ---- */

static double total_norm(parity *p)
{
    double sum = 0;
    for (int32_t i = 0; i < p->m->n_params; i++) {
        double *g = parity_tensor(p, p->m->params[i], NRL_SLOT_GRAD);
        double l2 = parity_l2(g, p->m->params[i]->numel);
        sum += l2 * l2;
        free(g);
    }
    return sqrt(sum);
}

static void update(parity *p, const nrl_node *hyper, int64_t step, double norm)
{
    nrl_adamw adamw = {sizeof adamw, parity_number(hyper, "beta1"), parity_number(hyper, "beta2"),
                       parity_number(hyper, "eps"), parity_number(hyper, "weight_decay")};
    double clip = parity_number(hyper, "clip_global_norm");
    parity_adamw(p, &adamw, parity_number(hyper, "lr"), fmin(1, clip / (norm + 1e-6)), step);
}

/* The gradient of a key bias is exactly zero without rope, so AdamW follows rounding noise there.
 */
static bool is_key_bias(const char *name)
{
    return strstr(name, "k_proj.bias") || strstr(name, "c_attn.bias");
}

static void compare_weights(parity *p, const nrl_node *want, double *error, double *k_bias)
{
    for (int32_t i = 0; i < p->m->n_params; i++) {
        const nrl_param *param = p->m->params[i];
        double *x = parity_tensor(p, param, NRL_SLOT_MASTER), l2 = parity_number(want, param->name);
        note(is_key_bias(param->name) ? k_bias : error, parity_l2(x, param->numel), l2, l2);
        free(x);
    }
}

/* qwen3's loss falls so steeply that eight steps amplify rounding: in bf16, PyTorch's autocast
 * itself ends 21 % off in loss and 56 % in norm (9e-3 and 6e-3 on gpt2). */
static double amplification(const parity *p, const bounds *b)
{
    return b != &fp32 && !strcmp(p->m->type, "qwen3") ? 5 : 1;
}

static void check_adamw(parity *p, const bounds *b)
{
    const nrl_node *want = nrl_node_find(p->golden, "adamw");
    nrl_batch *batch = parity_golden_batch(p, 0, 3, SCORE_LABELS);
    double n = (double)batch->n_rows, loss_error = 0, norm_error = 0, l2_error = 0, k_bias = 0;
    for (size_t i = 0; i < N_STEPS; i++) {
        double loss = parity_item(nrl_node_find(want, "loss"), i);
        double golden_norm = parity_item(nrl_node_find(want, "grad_norm"), i);
        note(&loss_error, parity_train(p, batch, n) / n, loss, loss);
        double norm = total_norm(p);
        note(&norm_error, norm, golden_norm, golden_norm);
        update(p, want, (int64_t)i + 1, norm);
    }
    double after = parity_number(want, "loss_after");
    note(&loss_error, parity_train(p, batch, n) / n, after, after);
    compare_weights(p, nrl_node_find(want, "param_l2_after"), &l2_error, &k_bias);
    report("loss", loss_error, b->adamw_loss * amplification(p, b));
    report("norm", norm_error, b->adamw_norm * amplification(p, b));
    report("weights l2", l2_error, b->adamw_l2);
    report("k bias", k_bias, b->adamw_k_bias);
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
}

static void eight_adamw_steps_agree(void **state)
{
    (void)state;
    for_all(check_adamw);
}

/* ---- sampling ---- */

static nrl_status keep_token(void *user, const scheduler_token *t, bool *is_last)
{
    int32_t **next = user;
    (void)is_last;
    *(*next)++ = t->id;
    return NRL_OK;
}

/* The likeliest token behind n ids, by a forward of all of them. */
static int32_t likeliest(parity *p, const int32_t *ids, int32_t n)
{
    int32_t last = n - 1, best = 0;
    nrl_batch *b = parity_batch(1, &ids, &n);
    double *logits = parity_logits(p, b, &last, 1);
    for (int32_t v = 1; v < p->m->info.vocab_size; v++)
        if (logits[v] > logits[best]) best = v;
    free(logits);
    ctx_set_batch(p->ctx, NULL);
    batch_free(b);
    return best;
}

/* Long enough that windows of 8 slide. */
static void tokens_through_the_cache_are_those_of_whole_forwards(void **state)
{
    (void)state;
    enum { N_PROMPT = 3, N_NEW = 16 };
    for (size_t i = 0; i < N_MODELS; i++) {
        arena a = {0};
        parity p;
        int32_t ids[N_PROMPT + N_NEW] = {5, 9, 3};
        int32_t got[N_NEW], *next = got;
        const sequence_options o = {.max_tokens = N_NEW, .token = keep_token, .user = &next};
        scheduler *tokens;
        sequence *q;
        parity_open(&p, parity_model_dir(&a, names[i]), "config.json", NRL_DTYPE_F32);
        ASSERT_OK(scheduler_create(&p.walk, &(scheduler_options){0}, &tokens));
        ASSERT_OK(scheduler_add(tokens, ids, N_PROMPT, &o, &q));
        for (int k = 0; k < N_NEW; k++)
            ASSERT_OK(scheduler_step(tokens));
        assert_ptr_equal(next, got + N_NEW);
        for (int32_t k = 0; k < N_NEW; k++) {
            assert_int_equal(got[k], likeliest(&p, ids, N_PROMPT + k));
            ids[N_PROMPT + k] = got[k];
        }
        scheduler_destroy(tokens);
        parity_close(&p);
        arena_free(&a);
    }
}

/* ---- configs ---- */

static void both_spellings_of_a_config_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const configs[] = {"config.json", "config_v4.json"};
    for (size_t i = 0; i < N_MODELS; i++) {
        double *logps[2];
        int64_t n = 0;
        for (int k = 0; k < 2; k++) {
            arena a = {0};
            parity p;
            parity_open(&p, parity_model_dir(&a, names[i]), configs[k], NRL_DTYPE_F32);
            nrl_batch *batch = parity_golden_batch(&p, 0, 3, SCORE_ALL);
            logps[k] = parity_logps(&p, batch);
            n = batch->n_rows;
            parity_close(&p);
            batch_free(batch);
            arena_free(&a);
        }
        assert_memory_equal(logps[0], logps[1], (size_t)n * sizeof **logps);
        free(logps[0]);
        free(logps[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probs_agree_packed_and_alone),
        cmocka_unit_test(logits_agree),
        cmocka_unit_test(hidden_states_agree),
        cmocka_unit_test(loss_and_every_gradient_agree),
        cmocka_unit_test(activation_checkpointing_changes_no_bit),
        cmocka_unit_test(eight_adamw_steps_agree),
        cmocka_unit_test(tokens_through_the_cache_are_those_of_whole_forwards),
        cmocka_unit_test(both_spellings_of_a_config_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
