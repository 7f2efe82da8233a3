/*
 * plan_text.c - nrl_plan_text of nrl/logger.h. Reads the tree that core/run/plan.c makes; what the tree does not have
 * is not mentioned.
 */
#include "base/plan_text.h"
#include "base/buffer.h"
#include "base/units.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_WIDTH = 24, SAMPLE_BYTES = 600 };

static int64_t plan_int(const nrl_node *map, const char *key)
{
    return nrl_node_int(nrl_node_find(map, key), 0);
}

static const char *plan_string(const nrl_node *map, const char *key)
{
    return nrl_node_string(nrl_node_find(map, key), "");
}

static bool plan_bool(const nrl_node *map, const char *key)
{
    return nrl_node_bool(nrl_node_find(map, key), false);
}

static double plan_f64(const nrl_node *map, const char *key)
{
    return nrl_node_f64(nrl_node_find(map, key), 0);
}

/* Bytes with their unit, in one of a few rotating buffers. */
static const char *plan_bytes(int64_t bytes)
{
    static _Thread_local char rotating[8][SIZE_TEXT];
    static _Thread_local int next;
    return size_text((double)bytes, rotating[next = (next + 1) % 8]);
}

static const char *plan_size(const nrl_node *map, const char *key)
{
    return plan_bytes(plan_int(map, key));
}

/* 1234567 -> "1,234,567", in one of a few rotating buffers. */
static const char *plan_thousands(int64_t n)
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

static const char *plan_count(const nrl_node *map, const char *key)
{
    return plan_thousands(plan_int(map, key));
}

static const char *plural(int64_t n, const char *ending)
{
    return n == 1 ? "" : ending;
}

static void add_model(buffer *b, const nrl_node *model, const nrl_node *adapter)
{
    buffer_print(b,
                 "model      %s, %s parameters: %lld layers, width %lld, %lld heads (%lld key/value), vocabulary %s\n",
                 plan_string(model, "type"), plan_count(model, "parameters"), (long long)plan_int(model, "layers"),
                 (long long)plan_int(model, "width"), (long long)plan_int(model, "heads"),
                 (long long)plan_int(model, "key_value_heads"), plan_count(model, "vocabulary"));
    if (nrl_node_find(model, "weights"))
        buffer_print(b, "           weights from %s\n", plan_string(model, "weights"));
    else
        buffer_print(b, "           random weights, seed %lld\n", (long long)plan_int(model, "seed"));
    if (!adapter) return;
    const char *summary = plan_string(adapter, "summary"), *base = plan_string(adapter, "base");
    double trained = plan_f64(adapter, "trained"), frozen = plan_f64(adapter, "frozen");
    buffer_print(b, "%-10s %s%son %lld modules; %s parameters are trained (%.3g %%, %s), %s frozen (%s%s%s)\n",
                 plan_string(adapter, "name"), summary, *summary ? " " : "", (long long)plan_int(adapter, "modules"),
                 plan_count(adapter, "trained"), 100 * trained / (trained + frozen),
                 plan_size(adapter, "trained_bytes"), plan_count(adapter, "frozen"), plan_size(adapter, "frozen_bytes"),
                 *base ? " in " : "", base);
    if (nrl_node_find(adapter, "weights"))
        buffer_print(b, "           adapters from %s\n", plan_string(adapter, "weights"));
}

static void add_stream(buffer *b, const nrl_node *stream)
{
    if (!stream) return;
    buffer_print(b, "streaming  data.train is read during training: ");
    if (plan_int(stream, "bytes")) buffer_print(b, "%s, ", plan_size(stream, "bytes"));
    buffer_print(b, "the number of rows is unknown; %s samples are shuffled at a time\n",
                 plan_count(stream, "shuffle_buffer"));
}

static void add_data(buffer *b, const char *role, const nrl_node *d)
{
    static const char *const omitted[][2] = {{"dropped", "dropped: longer than data.max_length"},
                                             {"truncated", "truncated to data.max_length"},
                                             {"split", "split into samples of data.max_length"},
                                             {"untrained", "omitted: no trained token"},
                                             {"empty", "omitted: empty"}};
    const nrl_node *lengths = nrl_node_find(d, "lengths");
    int64_t most = 1;
    if (!d) return;
    buffer_print(b, "%-10s %s samples (%s%s), %s tokens, %s trained; lengths %lld to %lld, median %lld\n", role,
                 plan_count(d, "samples"), plan_string(d, "format"),
                 plan_bool(d, "from_cache") ? ", from the token cache" : "", plan_count(d, "tokens"),
                 plan_count(d, "trained_tokens"), (long long)plan_int(d, "min_length"),
                 (long long)plan_int(d, "max_length"), (long long)plan_int(d, "median_length"));
    if (plan_int(d, "shared_tokens"))
        buffer_print(b, "           %s tokens of prompts are computed once for both answers of a pair\n",
                     plan_count(d, "shared_tokens"));
    for (size_t i = 0; i < sizeof omitted / sizeof *omitted; i++)
        if (plan_int(d, omitted[i][0]))
            buffer_print(b, "           %s rows %s\n", plan_count(d, omitted[i][0]), omitted[i][1]);
    for (size_t k = 0; k < nrl_node_size(lengths); k++)
        if (nrl_node_int(nrl_node_at(lengths, k), 0) > most) most = nrl_node_int(nrl_node_at(lengths, k), 0);
    for (size_t k = 0; k < nrl_node_size(lengths); k++) {
        int64_t n = nrl_node_int(nrl_node_at(lengths, k), 0);
        if (n)
            buffer_print(b, "           %7lld - %-7lld %-*.*s %s\n", 1LL << k, (2LL << k) - 1, BAR_WIDTH,
                         (int)((n * BAR_WIDTH + most - 1) / most), "########################", plan_thousands(n));
    }
}

static void add_entries(buffer *b, const nrl_node *list, bool is_stream)
{
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *e = nrl_node_at(list, i);
        if (is_stream)
            buffer_print(b, "           %s: %s samples of each window, %.3g per step\n", plan_string(e, "path"),
                         plan_count(e, "samples"), plan_f64(e, "per_step"));
        else
            buffer_print(b, "           %s: %s samples, %lld per epoch, %.3g per step\n", plan_string(e, "path"),
                         plan_count(e, "samples"), (long long)plan_int(e, "per_epoch"), plan_f64(e, "per_step"));
    }
}

/* Sets of data.eval with names are "eval_data NAME". */
static void add_eval_sets(buffer *b, const nrl_node *plan)
{
    static const char prefix[] = "eval_data ";
    const size_t n = sizeof prefix - 1;
    for (size_t i = 0; i < nrl_node_size(plan); i++)
        if (!strncmp(nrl_node_key(plan, i), prefix, n)) add_data(b, nrl_node_key(plan, i) + n, nrl_node_at(plan, i));
}

static void add_sample(buffer *b, const nrl_node *plan)
{
    const char *text = plan_string(plan, "sample");
    size_t n = strlen(text);
    if (!nrl_node_find(plan, "sample")) return;
    if (n > SAMPLE_BYTES) {
        n = SAMPLE_BYTES;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* not inside a character */
    }
    buffer_print(b, "sample 1   %.*s%s\n", (int)n, text, text[n] ? " ..." : "");
}

static void add_train(buffer *b, const nrl_node *t)
{
    int64_t steps = plan_int(t, "steps"), per_epoch = plan_int(t, "steps_per_epoch");
    int64_t micro_batches = plan_int(t, "micro_batches");
    const char *precision = plan_string(t, "precision");
    buffer_print(b, "train      %s step%s of %s sample%s", plan_thousands(steps), plural(steps, "s"),
                 plan_count(t, "global_batch"), plural(plan_int(t, "global_batch"), "s"));
    if (per_epoch)
        buffer_print(b, " (%.3g epoch%s of %s step%s)", (double)steps / (double)per_epoch,
                     plural(steps == per_epoch ? 1 : 2, "s"), plan_thousands(per_epoch), plural(per_epoch, "s"));
    buffer_print(b, ", %lld micro-batch%s in the first step, %s", (long long)micro_batches, plural(micro_batches, "es"),
                 precision);
    if (strcmp(precision, "fp32"))
        buffer_print(b, " with fp32 masters%s", plan_bool(t, "split_masters") ? " in two halves" : "");
    if (nrl_node_find(t, "loss_scale"))
        buffer_print(b, ", %sloss scale %g", plan_bool(t, "dynamic_loss_scale") ? "dynamic " : "",
                     plan_f64(t, "loss_scale"));
    buffer_print(b, ", seed %lld", (long long)plan_int(t, "seed"));
    if (plan_int(t, "recomputed_layers"))
        buffer_print(b, ", activations of %lld of %lld layers recomputed", (long long)plan_int(t, "recomputed_layers"),
                     (long long)plan_int(t, "layers"));
    const double lr = plan_f64(t, "lr");
    buffer_print(b, "\n           %s, %s lr %g", plan_string(t, "algorithm"), plan_string(t, "optimizer"), lr);
    if (nrl_node_find(t, "lr_factor"))
        buffer_print(b, " (%g x %.4g, for the global batch)", lr / plan_f64(t, "lr_factor"), plan_f64(t, "lr_factor"));
    buffer_print(b, ", %s, clip_norm %g\n", plan_string(t, "schedule"), plan_f64(t, "clip_norm"));
}

static void add_ranks(buffer *b, const nrl_node *plan)
{
    const nrl_node *ranks = nrl_node_find(plan, "ranks"), *strategies = nrl_node_find(plan, "parallel");
    const nrl_node *stages = nrl_node_find(plan, "stages");
    size_t n_stages = nrl_node_size(stages);
    if (plan_int(ranks, "n") > 1) buffer_print(b, "ranks      %s\n", plan_string(ranks, "text"));
    for (size_t i = 0; i < nrl_node_size(strategies); i++) {
        const nrl_node *one = nrl_node_at(strategies, i);
        buffer_print(b, "parallel   %s%s%s\n", plan_string(one, "name"), nrl_node_find(one, "text") ? ": " : "",
                     plan_string(one, "text"));
        if (nrl_node_find(one, "bubble"))
            buffer_print(b,
                         "           bubble: in the first step, of %lld micro-batches, ranks wait for %.1f %% of "
                         "their computing time\n",
                         (long long)plan_int(nrl_node_find(plan, "train"), "micro_batches"),
                         100 * plan_f64(one, "bubble"));
    }
    if (!n_stages) return;
    buffer_puts(b, "           ranks hold ");
    for (size_t k = 0; k < n_stages; k++)
        buffer_print(b, "%s%s", k ? " + " : "", plan_thousands(nrl_node_int(nrl_node_at(stages, k), 0)));
    buffer_puts(b, " parameters\n");
}

static void add_memory(buffer *b, const nrl_node *plan)
{
    const nrl_node *m = nrl_node_find(plan, "memory");
    const bool staged = nrl_node_size(nrl_node_find(plan, "stages"));
    const char *where = staged ? " on rank 0" : plan_int(nrl_node_find(plan, "ranks"), "n") > 1 ? " a rank" : "";
    bool estimated = nrl_node_find(m, "micro_batch");
    int64_t masters = plan_int(m, "masters"); /* 0: the weights are the masters */
    if (plan_int(m, "strategy")) buffer_print(b, "           buffers %s%s\n", plan_size(m, "strategy"), where);
    buffer_print(b,
                 "memory     %s%s: weights %s%s%s, gradients %s, optimizer %s "
                 "(%.3g bytes a parameter)%s\n",
                 plan_size(m, "total"), where, plan_size(m, "weights"), masters ? ", masters " : "",
                 masters ? plan_bytes(masters) : "", plan_size(m, "gradients"), plan_size(m, "optimizer"),
                 plan_f64(m, "total") / plan_f64(m, "parameters"), estimated ? "" : ", without activations");
    if (plan_int(m, "offloaded"))
        buffer_print(b, "           without %s of offloaded data\n", plan_size(m, "offloaded"));
    if (nrl_node_find(m, "updated_by"))
        buffer_print(b, "           offloaded states are updated by '%s', with %s of pinned memory for copies\n",
                     plan_string(m, "updated_by"), plan_size(m, "update_copies"));
    if (estimated)
        buffer_print(b,
                     "           and %s in %s of %s tokens, the largest of the first steps: activations, logits, "
                     "gradients in transit; %s in total, without the backend's own memory\n",
                     plan_size(m, "micro_batch"),
                     staged ? "the micro-batches that the stage holds at a time, one" : "a micro-batch",
                     plan_count(m, "micro_batch_tokens"),
                     plan_bytes(plan_int(m, "total") + plan_int(m, "micro_batch")));
    if (nrl_node_find(m, "activations_in"))
        buffer_print(b,
                     "           %s%sof activations are stored %s until their backward pass "
                     "(train.offload.activations)\n",
                     estimated ? plan_size(m, "activations_offloaded") : "most", estimated ? " more " : " ",
                     strcmp(plan_string(m, "activations_in"), "disk") ? "in host memory" : "on disk");
    if (plan_int(m, "gradient_buffer"))
        buffer_print(b, "           gradients in bf16; %s of them are the fp32 sums of one unit in the backward pass\n",
                     plan_size(m, "gradient_buffer"));
    if (plan_int(m, "checkpoint_copy"))
        buffer_print(b, "           and %s for the copy of a checkpoint (checkpoint.async)\n",
                     plan_size(m, "checkpoint_copy"));
    if (plan_int(m, "logits"))
        buffer_print(b,
                     "           logits of a micro-batch: at most %s are kept until the backward pass "
                     "(train.logits_mb)\n",
                     plan_size(m, "logits"));
}

static void add_backend(buffer *b, const nrl_node *plan)
{
    const nrl_node *reference = nrl_node_find(plan, "reference"), *backend = nrl_node_find(plan, "backend");
    int64_t threads = plan_int(backend, "threads");
    if (plan_bool(reference, "shared"))
        buffer_print(b, "reference  the policy without its adapters, %s: no additional weights\n",
                     plan_string(reference, "log_probs"));
    else if (reference)
        buffer_print(b, "reference  %s, weights %s\n", plan_string(reference, "log_probs"),
                     plan_size(reference, "bytes"));
    buffer_print(b, "backend    %s", plan_string(backend, "name"));
    if (nrl_node_find(backend, "device"))
        buffer_print(b, ": %s, %lld thread%s, %s, %s", plan_string(backend, "device"), (long long)threads,
                     plural(threads, "s"), plan_string(backend, "isa"), plan_string(backend, "library"));
    buffer_puts(b, "\n");
    if (!plan_bool(backend, "deterministic")) {
        const char *relaxed = nrl_node_string(nrl_node_find(backend, "relaxed"), NULL);
        buffer_print(b, "           deterministic: false: %s%s\n",
                     relaxed ? "results may differ between runs: " : "has no effect, because ",
                     relaxed ? relaxed
                             : nrl_node_string(nrl_node_find(backend, "exact_for"), "this backend has no faster "
                                                                                    "alternatives"));
    }
    if (nrl_node_find(backend, "skipped"))
        buffer_print(b, "           auto skipped %s\n", plan_string(backend, "skipped"));
    if (plan_int(plan, "resumed_step"))
        buffer_print(b, "resume     after step %s of %s\n", plan_count(plan, "resumed_step"),
                     plan_count(nrl_node_find(plan, "train"), "steps"));
}

char *plan_text(const nrl_node *plan)
{
    buffer b = {0};
    buffer_print(&b, "nrl %s  run '%s' in %s\n", plan_string(plan, "nrl"), plan_string(plan, "name"),
                 plan_string(plan, "out"));
    add_model(&b, nrl_node_find(plan, "model"), nrl_node_find(plan, "adapter"));
    const nrl_node *stream = nrl_node_find(plan, "stream");
    add_stream(&b, stream);
    add_data(&b, stream ? "window" : "train data", nrl_node_find(plan, "train_data"));
    add_entries(&b, nrl_node_find(plan, "train_entries"), stream);
    add_data(&b, "eval data", nrl_node_find(plan, "eval_data"));
    add_eval_sets(&b, plan);
    add_sample(&b, plan);
    add_train(&b, nrl_node_find(plan, "train"));
    add_ranks(&b, plan);
    add_memory(&b, plan);
    add_backend(&b, plan);
    b.text[--b.size] = 0; /* without the last line end, as all texts of events */
    return buffer_take(&b);
}
