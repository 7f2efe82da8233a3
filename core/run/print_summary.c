/*
 * print_summary.c - the plan, which a run tells before its first step: model, data, steps, memory, machine. Every
 * number a user could otherwise only guess, and every row of data that was omitted.
 */
#include "run/walk/loss.h"
#include "run/state/state.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_WIDTH = 24 };

static void tell(run *r, nrl_run_event_kind kind, const char *path, const char *fmt, va_list a)
{
    char *text = NULL;
    if (r->env.quiet) return;
    if (vasprintf(&text, fmt, a) < 0) return;
    telemetry_tell(&r->telemetry, kind, r->progress.step, path, text);
    free(text);
}

void run_say(run *r, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    tell(r, r->plans ? NRL_EVENT_PLAN : NRL_EVENT_NEWS, NULL, fmt, a);
    va_end(a);
}

void run_tell(run *r, nrl_run_event_kind kind, const char *path, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    tell(r, kind, path, fmt, a);
    va_end(a);
}

const char *run_thousands(int64_t n)
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

static void say_model(run *r)
{
    const nrl_model_info *f = &r->model->info;
    run_say(r, "model      %s, %s parameters: %lld layers, width %lld, %lld heads (%lld key/value), vocabulary %s",
            r->model->type, run_thousands(model_n_own(r->model)), (long long)f->n_layers, (long long)f->width,
            (long long)f->n_heads, (long long)f->n_kv_heads, run_thousands(f->vocab_size));
    const char *from = r->origin.checkpoint ? r->origin.checkpoint : r->origin.dir;
    if (from)
        run_say(r, "           weights from %s", from);
    else
        run_say(r, "           random weights, seed %lld", (long long)r->config.train.seed);
    adapters_say(r);
}

static void say_left_out(run *r, const char *what, int64_t n)
{
    if (n) run_say(r, "           %s rows %s", run_thousands(n), what);
}

static void say_histogram(run *r, const dataset_report *d)
{
    int64_t most = 1;
    for (int k = 0; k < 24; k++)
        if (d->histogram[k] > most) most = d->histogram[k];
    for (int k = 0; k < 24; k++) {
        if (!d->histogram[k]) continue;
        int n = (int)((d->histogram[k] * BAR_WIDTH + most - 1) / most);
        run_say(r, "           %7lld - %-7lld %-*.*s %s", 1LL << k, (2LL << k) - 1, BAR_WIDTH, n,
                "########################", run_thousands(d->histogram[k]));
    }
}

static void say_data(run *r, const char *role, const dataset *data)
{
    const dataset_report *d = dataset_info(data);
    run_say(r, "%-10s %s samples (%s%s), %s tokens, %s trained; lengths %lld to %lld, median %lld", role,
            run_thousands(d->kept), d->format, d->from_cache ? ", from the token cache" : "", run_thousands(d->tokens),
            run_thousands(d->trained_tokens), (long long)d->min_length, (long long)d->max_length,
            (long long)d->median_length);
    if (d->shared_tokens)
        run_say(r, "           %s tokens of prompts are computed once for both sides of a pair",
                run_thousands(d->shared_tokens));
    say_left_out(r, "dropped: longer than data.max_length", d->dropped_overlong);
    say_left_out(r, "truncated to data.max_length", d->truncated);
    say_left_out(r, "omitted: no trained token", d->untrainable);
    say_left_out(r, "omitted: empty", d->empty);
    say_histogram(r, d);
}

static void say_sample(run *r)
{
    enum { SHOWN = 600 };
    char *text = dataset_first_sample(r->train_data, r->tokenizer);
    size_t n = text ? strlen(text) : 0;
    if (n > SHOWN) {
        n = SHOWN;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* not inside a character */
    }
    if (text) run_say(r, "sample 1   %.*s%s", (int)n, text, strlen(text) > n ? " ..." : "");
    free(text);
}

static const char *recompute_text(const run *r)
{
    int32_t n = 0;
    for (int32_t u = 0; u < r->model->n_units; u++)
        n += r->work.recompute[u];
    if (!n) return "";
    static _Thread_local char text[64];
    snprintf(text, sizeof text, ", activations of %d of %lld layers computed again", n,
             (long long)r->model->info.n_layers);
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
static void warn_of_odd(run *r)
{
    int64_t batch = r->config.train.global_batch, kept = dataset_info(r->train_data)->kept;
    bool one = data_plan_steps_per_epoch(r->train_plan) == 1;
    if (r->optimizer_options.lr == 0) nrl_warn("optimizer.lr is 0: the weights will not change");
    if (one && batch > kept)
        nrl_warn("train.global_batch %lld is more than the data has, %lld: each step is a whole epoch",
                 (long long)batch, (long long)kept);
    const nrl_node *lora = nrl_node_find(r->tree, "lora");
    if (nrl_node_kind(lora) == NRL_NODE_NULL && lora->line) /* in a file; lora=null is what was typed to be without */
        nrl_warn("%s: lora: is empty, so everything is trained; {} takes its defaults", nrl_node_place(lora));
}

static void say_train(run *r)
{
    const config_train *t = &r->config.train;
    int64_t per_epoch = data_plan_steps_per_epoch(r->train_plan),
            n_micro_batches = data_plan_n_micro_batches(r->train_plan, 0);
    run_say(r,
            "train      %s steps of %s samples (%.3g epoch%s of %s step%s), %lld micro-batch%s in the first step, %s, "
            "seed %lld%s",
            run_thousands(r->total_steps), run_thousands(t->global_batch), (double)r->total_steps / (double)per_epoch,
            r->total_steps == per_epoch ? "" : "s", run_thousands(per_epoch), per_epoch > 1 ? "s" : "",
            (long long)n_micro_batches, n_micro_batches > 1 ? "es" : "", precision_text(t), (long long)t->seed,
            recompute_text(r));
    run_say(r, "           %s, %s lr %g, %s, clip_norm %g", r->algorithm->plugin.name, r->config.optimizer.name,
            r->optimizer_options.lr, r->config.schedule.name, r->optimizer_options.clip_norm);
}

/* Checked without a device; a run asks for the memory, which fails with the same numbers. */
static void warn_of_room(run *r, int64_t bytes)
{
    int64_t total, left;
    nrl_host_memory(&total, &left);
    if (!r->env.check_only || r->backend->stream_create || left < 0 || bytes <= left) return;
    nrl_warn("%.1f MiB are more than the %.1f MiB that can be had here, of %.1f MiB", mib(bytes), mib(left),
             mib(total));
}

/* Elements of parameters that a stage holds; all without stages. */
static int64_t held_by(const run *r, int32_t index)
{
    int64_t n = 0;
    for (int32_t i = 0; i < r->model->n_params; i++) {
        const bool *owner_stages = r->model->params[i]->parts[0].layout.owner_stages;
        if (!owner_stages || owner_stages[index]) n += r->model->params[i]->numel;
    }
    return n;
}

/* A stage waits for the others while the first micro-batches come and the last ones go. */
static void say_stages(run *r)
{
    int32_t n = r->strategy.n_stages;
    int64_t n_micro_batches = data_plan_n_micro_batches(r->train_plan, 0);
    const char *sizes = "";
    arena a = {0};
    if (n < 2) return;
    for (int32_t k = 0; k < n; k++)
        sizes = arena_printf(&a, "%s%s%s", sizes, k ? " + " : "", run_thousands(held_by(r, k)));
    run_say(r, "           stages hold %s parameters; bubble (stages - 1) / micro-batches: %d/%lld in the first step",
            sizes, n - 1, (long long)n_micro_batches);
    arena_free(&a);
}

static void say_memory(run *r)
{
    const storage *s = &r->storage;
    int64_t buffers = r->strategy.plan.buffer_bytes;
    int64_t total = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes + buffers;
    const char *where = r->strategy.n_stages > 1 ? " on rank 0" : nrl_mesh_world(r->mesh) > 1 ? " a rank" : "";
    if (nrl_mesh_world(r->mesh) > 1) run_say(r, "ranks      %s", mesh_text(r->mesh));
    for (int32_t i = 0; i < r->strategy.n; i++) {
        const strategy_member *one = &r->strategy.of[i];
        run_say(r, "parallel   %s%s%s", one->table->plugin.name, one->plan.text ? ": " : "",
                one->plan.text ? one->plan.text : "");
    }
    say_stages(r);
    if (buffers) run_say(r, "           buffers %.1f MiB%s", mib(buffers), where);
    run_say(r,
            "memory     %.1f MiB%s: weights %.1f, masters %.1f, gradients %.1f, optimizer %.1f "
            "(%.3g bytes a parameter)%s",
            mib(total), where, mib(s->work_bytes), mib(s->master_bytes), mib(s->gradient_bytes), mib(s->state_bytes),
            (double)total / (double)held_by(r, r->strategy.index),
            r->estimate.known ? "" : "; activations come on top");
    if (r->estimate.known)
        run_say(r,
                "           and %.1f MiB in a micro-batch of %s tokens, the largest of the first steps: activations, "
                "logits, gradients on their way; %.1f MiB in all, without the backend's own",
                mib(r->estimate.bytes), run_thousands(r->estimate.tokens), mib(total + r->estimate.bytes));
    if (s->buffer_bytes)
        run_say(r, "           gradients in bf16; %.1f MiB of them are one unit's in fp32, as backward sums it",
                mib(s->buffer_bytes));
    warn_of_room(r, total + r->estimate.bytes);
}

static void say_staging(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    if (!c->async || (!c->every && c->every_minutes <= 0)) return;
    run_say(r, "           and %.1f MiB for a copy of what a checkpoint holds (checkpoint.async)", mib(state_bytes(r)));
}

static void say_logits(run *r)
{
    const config_train *t = &r->config.train;
    double room = (double)t->logits_mb;
    double most = (double)t->micro_batch_tokens * (double)r->model->info.vocab_size * sizeof(float) / (1 << 20);
    if (loss_is_separable(r->algorithm) || room == 0) return;
    run_say(r, "           logits of a micro-batch: %.1f at most stay from forward to backward (train.logits_mb)",
            t->micro_batch || most > room ? room : most);
}

static void say_reference(run *r)
{
    static const char *const ways[] = {"a forward each step", "computed once, from a file", "none: zeros"};
    if (r->reference && reference_is_shared(r->reference))
        run_say(r, "reference  the policy without its adapters, %s: no weights of its own",
                ways[r->reference_options.reference]);
    else if (r->reference)
        run_say(r, "reference  %s, weights %.1f MiB", ways[r->reference_options.reference],
                mib(reference_bytes(r->reference)));
}

static void say_relaxed(run *r, const nrl_backend *b)
{
    bool changes = b->relax && b->relaxed;
    run_say(r, "           deterministic: false: %s%s", changes ? "bits may differ from run to run: " : "",
            changes ? b->relaxed : "changes nothing, this backend has no faster ways");
}

static void say_machine(run *r)
{
    const nrl_device_info *f = &r->device.info;
    const char *name = r->backend->plugin.name;
    if (r->env.check_only)
        run_say(r, "backend    %s", name);
    else
        run_say(r, "backend    %s: %s, %lld thread%s, %s, %s", name, f->name, (long long)f->n_threads,
                f->n_threads == 1 ? "" : "s", f->isa, f->library);
    if (!r->config.train.deterministic) say_relaxed(r, r->backend);
    if (r->skipped_backends) run_say(r, "           auto skipped %s", r->skipped_backends);
    if (r->env.check_only && r->backend->probe && r->backend->probe() != NRL_OK)
        nrl_warn("backend '%s' cannot be used here: %s", name, nrl_error_text());
}

nrl_status open_plan(run *r)
{
    if (r->env.quiet) return NRL_OK;
    r->plans = true;
    run_say(r, "nrl %s  run '%s' in %s", NRL_VERSION, r->config.name, r->config.out);
    say_model(r);
    say_data(r, "train data", r->train_data);
    if (r->eval_data) say_data(r, "eval data", r->eval_data);
    say_sample(r);
    say_train(r);
    warn_of_odd(r);
    say_memory(r);
    say_staging(r);
    say_logits(r);
    if (!r->env.check_only) say_reference(r); /* else no device is open */
    say_machine(r);
    if (r->progress.step)
        run_say(r, "resume     after step %s of %s", run_thousands(r->progress.step), run_thousands(r->total_steps));
    r->plans = false;
    return NRL_OK;
}
