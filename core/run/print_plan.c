/*
 * print_plan.c - the plan, which a run tells before its first step: model, data, steps, memory, machine. Every
 * number a user could otherwise only guess, and every row of data that was omitted.
 */
#include "run/print_plan.h"
#include "run/state/state.h"
#include "run/walk/loss.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_WIDTH = 24 };

const char *thousands_text(int64_t n)
{
    static _Thread_local char rotating[8][32];
    static _Thread_local int next;
    char digits[24], *out = rotating[next = (next + 1) % 8];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;
    for (int i = 0; i < len; i++) {
        out[k++] = digits[i];
        if (i < len - 1 && (len - 1 - i) % 3 == 0 && digits[i] != '-') out[k++] = ',';
    }
    out[k] = 0;
    return out;
}

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void say_model(session *se)
{
    const nrl_model_info *f = &se->model->info;
    telemetry_say(se->telemetry,
                  "model      %s, %s parameters: %lld layers, width %lld, %lld heads (%lld key/value), vocabulary %s",
                  se->model->type, thousands_text(model_n_own(se->model)), (long long)f->n_layers, (long long)f->width,
                  (long long)f->n_heads, (long long)f->n_kv_heads, thousands_text(f->vocab_size));
    const char *from = se->origin.checkpoint ? se->origin.checkpoint : se->origin.dir;
    if (from)
        telemetry_say(se->telemetry, "           weights from %s", from);
    else
        telemetry_say(se->telemetry, "           random weights, seed %lld", (long long)se->config.train.seed);
    adapter_say(se);
}

static void say_left_out(session *se, const char *what, int64_t n)
{
    if (n) telemetry_say(se->telemetry, "           %s rows %s", thousands_text(n), what);
}

static void say_histogram(session *se, const dataset_report *d)
{
    int64_t most = 1;
    for (int k = 0; k < 24; k++)
        if (d->histogram[k] > most) most = d->histogram[k];
    for (int k = 0; k < 24; k++) {
        if (!d->histogram[k]) continue;
        int n = (int)((d->histogram[k] * BAR_WIDTH + most - 1) / most);
        telemetry_say(se->telemetry, "           %7lld - %-7lld %-*.*s %s", 1LL << k, (2LL << k) - 1, BAR_WIDTH, n,
                      "########################", thousands_text(d->histogram[k]));
    }
}

static void say_data(session *se, const char *role, const dataset *data)
{
    const dataset_report *d = dataset_info(data);
    telemetry_say(se->telemetry, "%-10s %s samples (%s%s), %s tokens, %s trained; lengths %lld to %lld, median %lld",
                  role, thousands_text(d->kept), d->format, d->from_cache ? ", from the token cache" : "",
                  thousands_text(d->tokens), thousands_text(d->trained_tokens), (long long)d->min_length,
                  (long long)d->max_length, (long long)d->median_length);
    if (d->shared_tokens)
        telemetry_say(se->telemetry, "           %s tokens of prompts are computed once for both sides of a pair",
                      thousands_text(d->shared_tokens));
    say_left_out(se, "dropped: longer than data.max_length", d->dropped_overlong);
    say_left_out(se, "truncated to data.max_length", d->truncated);
    say_left_out(se, "omitted: no trained token", d->untrainable);
    say_left_out(se, "omitted: empty", d->empty);
    say_histogram(se, d);
}

static void say_sample(session *se)
{
    enum { SHOWN = 600 };
    char *text = dataset_first_sample(se->train.set, se->tokenizer);
    size_t n = text ? strlen(text) : 0;
    if (n > SHOWN) {
        n = SHOWN;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* not inside a character */
    }
    if (text) telemetry_say(se->telemetry, "sample 1   %.*s%s", (int)n, text, strlen(text) > n ? " ..." : "");
    free(text);
}

static const char *recompute_text(const session *se)
{
    int32_t n = 0;
    for (int32_t u = 0; u < se->model->n_units; u++)
        n += se->work.recompute[u];
    if (!n) return "";
    static _Thread_local char text[64];
    snprintf(text, sizeof text, ", activations of %d of %lld layers computed again", n,
             (long long)se->model->info.n_layers);
    return text;
}

static const char *precision_text(const config_train *t)
{
    static _Thread_local char text[96];
    if (t->precision == CONFIG_FP32) return "fp32";
    if (t->precision == CONFIG_BF16)
        return t->master == CONFIG_MASTER_SPLIT16 ? "bf16 with fp32 masters in two halves" : "bf16 with fp32 masters";
    snprintf(text, sizeof text, "fp16 with fp32 masters, %sloss scale %g", t->scale.dynamic ? "dynamic " : "",
             t->scale.init);
    return text;
}

/* Settings that are meant now and then, and are mistakes otherwise. */
static void warn_of_odd(session *se)
{
    int64_t batch = se->config.train.global_batch, kept = dataset_info(se->train.set)->kept;
    bool one = data_plan_steps_per_epoch(se->train.plan) == 1;
    if (se->optimizer_options.lr == 0) nrl_warn("optimizer.lr is 0: the weights will not change");
    if (one && batch > kept)
        nrl_warn("train.global_batch %lld is more than the data has, %lld: each step is a whole epoch",
                 (long long)batch, (long long)kept);
}

static void say_train(session *se)
{
    const config_train *t = &se->config.train;
    int64_t per_epoch = data_plan_steps_per_epoch(se->train.plan),
            n_micro_batches = data_plan_n_micro_batches(se->train.plan, 0);
    telemetry_say(
        se->telemetry,
        "train      %s steps of %s samples (%.3g epoch%s of %s step%s), %lld micro-batch%s in the first step, %s, "
        "seed %lld%s",
        thousands_text(se->total_steps), thousands_text(t->global_batch), (double)se->total_steps / (double)per_epoch,
        se->total_steps == per_epoch ? "" : "s", thousands_text(per_epoch), per_epoch > 1 ? "s" : "",
        (long long)n_micro_batches, n_micro_batches > 1 ? "es" : "", precision_text(t), (long long)t->seed,
        recompute_text(se));
    telemetry_say(se->telemetry, "           %s, %s lr %g, %s, clip_norm %g", se->algorithm->plugin.name,
                  se->config.optimizer.name, se->optimizer_options.lr, se->config.schedule.name,
                  se->optimizer_options.clip_norm);
}

/* Checked without a device; a run asks for the memory, which fails with the same numbers. */
static void warn_of_room(session *se, int64_t bytes)
{
    int64_t total, left;
    nrl_host_memory(&total, &left);
    if (!se->env.check_only || se->backend->stream_create || left < 0 || bytes <= left) return;
    nrl_warn("%.1f MiB are more than the %.1f MiB that can be had here, of %.1f MiB", mib(bytes), mib(left),
             mib(total));
}

/* Elements of parameters that a stage holds; all without stages. */
static int64_t held_by(const session *se, int32_t index)
{
    int64_t n = 0;
    for (int32_t i = 0; i < se->model->n_params; i++) {
        const bool *owner_stages = se->model->params[i]->parts[0].layout.owner_stages;
        if (!owner_stages || owner_stages[index]) n += se->model->params[i]->numel;
    }
    return n;
}

/* A stage waits for the others while the first micro-batches come and the last ones go. */
static void say_stages(session *se)
{
    int32_t n = se->strategy.n_stages;
    int64_t n_micro_batches = data_plan_n_micro_batches(se->train.plan, 0);
    const char *sizes = "";
    arena a = {0};
    if (n < 2) return;
    for (int32_t k = 0; k < n; k++)
        sizes = arena_printf(&a, "%s%s%s", sizes, k ? " + " : "", thousands_text(held_by(se, k)));
    telemetry_say(
        se->telemetry,
        "           stages hold %s parameters; bubble (stages - 1) / micro-batches: %d/%lld in the first step", sizes,
        n - 1, (long long)n_micro_batches);
    arena_free(&a);
}

static void say_memory(session *se)
{
    const storage *s = &se->storage;
    int64_t buffers = se->strategy.plan.buffer_bytes;
    int64_t total = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes + buffers;
    const char *where = se->strategy.n_stages > 1 ? " on rank 0" : nrl_mesh_world(se->mesh) > 1 ? " a rank" : "";
    if (nrl_mesh_world(se->mesh) > 1) telemetry_say(se->telemetry, "ranks      %s", mesh_text(se->mesh));
    for (int32_t i = 0; i < se->strategy.n; i++) {
        const strategy_member *one = &se->strategy.of[i];
        telemetry_say(se->telemetry, "parallel   %s%s%s", one->table->plugin.name, one->plan.text ? ": " : "",
                      one->plan.text ? one->plan.text : "");
    }
    say_stages(se);
    if (buffers) telemetry_say(se->telemetry, "           buffers %.1f MiB%s", mib(buffers), where);
    telemetry_say(se->telemetry,
                  "memory     %.1f MiB%s: weights %.1f, masters %.1f, gradients %.1f, optimizer %.1f "
                  "(%.3g bytes a parameter)%s",
                  mib(total), where, mib(s->work_bytes), mib(s->master_bytes), mib(s->gradient_bytes),
                  mib(s->state_bytes), (double)total / (double)held_by(se, se->strategy.index),
                  se->estimate.known ? "" : "; activations come on top");
    if (se->estimate.known)
        telemetry_say(
            se->telemetry,
            "           and %.1f MiB in a micro-batch of %s tokens, the largest of the first steps: activations, "
            "logits, gradients on their way; %.1f MiB in all, without the backend's own",
            mib(se->estimate.bytes), thousands_text(se->estimate.tokens), mib(total + se->estimate.bytes));
    if (s->buffer_bytes)
        telemetry_say(se->telemetry,
                      "           gradients in bf16; %.1f MiB of them are one unit's in fp32, as backward sums it",
                      mib(s->buffer_bytes));
    warn_of_room(se, total + se->estimate.bytes);
}

static void say_staging(session *se, int64_t bytes)
{
    const config_checkpoint *c = &se->config.checkpoint;
    if (!c->async || (!c->every && c->every_minutes <= 0)) return;
    telemetry_say(se->telemetry, "           and %.1f MiB for a copy of what a checkpoint holds (checkpoint.async)",
                  mib(bytes));
}

static void say_logits(session *se)
{
    const config_train *t = &se->config.train;
    double room = (double)t->logits_mb;
    double most = (double)t->micro_batch_tokens * (double)se->model->info.vocab_size * sizeof(float) / (1 << 20);
    if (loss_is_separable(se->algorithm) || room == 0) return;
    telemetry_say(se->telemetry,
                  "           logits of a micro-batch: %.1f at most stay from forward to backward (train.logits_mb)",
                  t->micro_batch || most > room ? room : most);
}

static void say_reference(session *se)
{
    static const char *const ways[] = {"a forward each step", "computed once, from a file", "none: zeros"};
    if (se->reference && reference_is_shared(se->reference))
        telemetry_say(se->telemetry, "reference  the policy without its adapters, %s: no weights of its own",
                      ways[se->reference_options.reference]);
    else if (se->reference)
        telemetry_say(se->telemetry, "reference  %s, weights %.1f MiB", ways[se->reference_options.reference],
                      mib(reference_bytes(se->reference)));
}

static void say_relaxed(session *se, const nrl_backend *b)
{
    bool changes = b->relax && b->relaxed;
    telemetry_say(se->telemetry, "           deterministic: false: %s%s",
                  changes ? "bits may differ from run to run: " : "",
                  changes ? b->relaxed : "changes nothing, this backend has no faster ways");
}

static void say_machine(session *se)
{
    const nrl_device_info *f = &se->device.info;
    const char *name = se->backend->plugin.name;
    if (se->env.check_only)
        telemetry_say(se->telemetry, "backend    %s", name);
    else
        telemetry_say(se->telemetry, "backend    %s: %s, %lld thread%s, %s, %s", name, f->name, (long long)f->n_threads,
                      f->n_threads == 1 ? "" : "s", f->isa, f->library);
    if (!se->config.train.deterministic) say_relaxed(se, se->backend);
    if (se->skipped_backends) telemetry_say(se->telemetry, "           auto skipped %s", se->skipped_backends);
    if (se->env.check_only && se->backend->probe && se->backend->probe() != NRL_OK)
        nrl_warn("backend '%s' cannot be used here: %s", name, nrl_error_text());
}

void print_plan(trainer *tr)
{
    session *se = tr->session;
    if (se->env.quiet) return;
    se->telemetry->plans = true;
    telemetry_say(se->telemetry, "nrl %s  run '%s' in %s", NRL_VERSION, se->config.name, se->config.out);
    say_model(se);
    say_data(se, "train data", se->train.set);
    if (se->eval.set) say_data(se, "eval data", se->eval.set);
    say_sample(se);
    say_train(se);
    warn_of_odd(se);
    say_memory(se);
    say_staging(se, state_bytes(tr));
    say_logits(se);
    if (!se->env.check_only) say_reference(se); /* else no device is open */
    say_machine(se);
    if (tr->progress.step)
        telemetry_say(se->telemetry, "resume     after step %s of %s", thousands_text(tr->progress.step),
                      thousands_text(se->total_steps));
    se->telemetry->plans = false;
}
