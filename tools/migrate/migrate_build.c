/*
 * migrate_build.c - the config of nrl: first every key by its rule, then what several keys make together (the batch,
 * the schedule, data, precision, strategies). Each line names the keys it comes from.
 */
#include "migrate.h"
#include "base/hub.h"
#include "base/json.h"
#include "base/other_names.h"
#include "base/scalar.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_INFO = 4 << 20, PEEK = 16384, MAX_ENTRIES = 256 };

/* ---- slots ---- */

/* The key that fills a slot; one that the source has comes before a default. NULL = none, or all are null. */
static source_key *slot(const migration *m, const char *name)
{
    source_key *found = NULL;
    for (size_t i = 0; i < m->n_keys; i++) {
        source_key *k = m->keys[i];
        if (!k->slot || strcmp(k->slot, name) || source_is_null(k)) continue;
        if (!found || (found->is_default && !k->is_default)) found = k;
    }
    return found;
}

static const char *slot_text(const migration *m, const char *name)
{
    return source_text(m, slot(m, name));
}

static bool is_true(const char *text)
{
    return !strcasecmp(text, "true") || !strcasecmp(text, "yes") || !strcasecmp(text, "on") || !strcmp(text, "1");
}

static bool slot_is_true(const migration *m, const char *name)
{
    return is_true(slot_text(m, name));
}

/* The slot of that name; NeMo RL has a second set, for Megatron, of which the other one is used if that is on. */
static const char *engine_slot(const migration *m, const char *name)
{
    return slot_is_true(m, "megatron") ? arena_printf(m->a, "megatron_%s", name) : name;
}

/* A number of a slot; false: there is none, or it is not a number, which is a remark. */
static bool slot_number(migration *m, const char *name, double *x)
{
    source_key *k = slot(m, name);
    if (!k) return false;
    if (source_number(source_text(m, k), x)) return true;
    if (strcasecmp(source_text(m, k), "auto"))
        write_remark(m, REMARK_LOST, k, "expected a number, found '%.60s'", source_text(m, k));
    return false;
}

static const char *number_text(arena *a, double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? arena_printf(a, "%.0f", x) : arena_printf(a, "%.12g", x);
}

/* As it was written, if YAML reads that as a number. */
static const char *number_word(const migration *m, const source_key *k, double x)
{
    const char *text = source_text(m, k);
    nrl_node_type kind = nrl_node_kind(scalar_node(m->a, text, strlen(text)));
    return kind == NRL_NODE_INT || kind == NRL_NODE_FLOAT ? text : number_text(m->a, x);
}

/* ---- keys that have a counterpart of their own ---- */

static void apply_number(migration *m, const source_key *k, const rule *r, const char *to)
{
    double x;
    const char *text = source_text(m, k);
    bool whole = r->kind == RULE_INTEGER;
    if (!source_number(text, &x) || (whole && x != floor(x))) {
        write_remark(m, REMARK_LOST, k, "%s: expected a %snumber, found '%.60s'", to, whole ? "whole " : "", text);
        return;
    }
    write_line(m, to, whole ? number_text(m->a, x) : number_word(m, k, x), "%s", write_source(m, k));
}

static void apply_word(migration *m, const source_key *k, const rule *r)
{
    const char *value;
    if (words_find(m->a, r->words, source_text(m, k), &value))
        write_line(m, r->to, value, "%s", write_source(m, k));
    else
        write_remark(m, REMARK_LOST, k, "%s has no such value; `nrl describe %s`", r->to, r->to);
}

static void apply_bool(migration *m, const source_key *k, const rule *r)
{
    const char *text = source_text(m, k);
    bool yes = is_true(text);
    if (!yes && !words_find(m->a, "false|no|off|0", text, NULL))
        write_remark(m, REMARK_LOST, k, "%s: expected true or false, found '%.60s'", r->to, text);
    else
        write_line(m, r->to, yes ? "true" : "false", "%s", write_source(m, k));
}

static const char *last_part(const char *path)
{
    return strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
}

static const char *reason_of(const migration *m, const source_key *k, const rule *r)
{
    const char *known = r->text ? r->text : other_names_find(m->a, m->exe_dir, last_part(k->path), NULL);
    return known ? known : "there is no such key in nrl";
}

static void apply_rule(migration *m, source_key *k, const rule *r)
{
    const char *to = r->to;
    if (to && strchr(to, '*')) to = arena_printf(m->a, "%.*s%s", (int)(strlen(to) - 1), to, last_part(k->path));
    switch (r->kind) {
    case RULE_COPY:
        write_line(m, to, write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
        return;
    case RULE_INTEGER:
    case RULE_NUMBER:
        apply_number(m, k, r, to);
        return;
    case RULE_BOOL:
        apply_bool(m, k, r);
        return;
    case RULE_WORD:
        apply_word(m, k, r);
        return;
    case RULE_SLOT:
        k->slot = to;
        if (!to) return;
        if (!strcmp(to, "ignored")) write_remark(m, REMARK_SAME, k, "%s", r->text);
        if (!strcmp(to, "unsupported")) write_remark(m, REMARK_LOST, k, "%s", r->text);
        return;
    case RULE_SAME:
        write_remark(m, REMARK_SAME, k, "%s", reason_of(m, k, r));
        return;
    case RULE_LOST:
        if (!words_find(m->a, r->words, source_text(m, k), NULL) || nrl_node_kind(k->node) == NRL_NODE_LIST)
            write_remark(m, REMARK_LOST, k, "%s", reason_of(m, k, r));
        return;
    }
}

/* A key without a rule: what errors of ordinary configs say about the word. */
static void apply_unknown(migration *m, const source_key *k)
{
    const char *key = NULL, *known = other_names_find(m->a, m->exe_dir, last_part(k->path), &key);
    if (key && nrl_node_kind(k->node) != NRL_NODE_LIST && strchr(key, '.'))
        write_line(m, key, write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
    else
        write_remark(m, REMARK_LOST, k, "%s", known ? known : "unknown; whether it changes numbers is unknown too");
}

static void apply_keys(migration *m)
{
    for (size_t i = 0; i < m->n_keys; i++) {
        source_key *k = m->keys[i];
        const rule *r = rule_find(m->format, k->path);
        /* "none" is a value where the rule has it */
        const bool has_word = r && r->kind == RULE_WORD && nrl_node_kind(k->node) == NRL_NODE_STRING &&
                              words_find(m->a, r->words, source_text(m, k), NULL);
        if (source_is_null(k) && !has_word) continue;
        if (r)
            apply_rule(m, k, r);
        else
            apply_unknown(m, k);
    }
}

/* Two keys for one thing, with different values: the first one is used. */
static void compare_slots(migration *m)
{
    static const char several[] = "ignored|unsupported|mixer|columns|rank_pattern|alpha_pattern|script|dataset|eval_"
                                  "dataset|eval_share|report_to|wandb_project|wandb_entity";
    for (size_t i = 0; i < m->n_keys; i++) {
        const source_key *k = m->keys[i], *first = k->slot ? slot(m, k->slot) : NULL;
        if (!first || first == k || k->is_default || source_is_null(k) || words_find(m->a, several, k->slot, NULL))
            continue;
        if (strcmp(source_text(m, first), source_text(m, k)))
            write_remark(m, REMARK_ASSUMED, k, "%s decides", first->path);
    }
}

static void add_defaults(migration *m)
{
    for (size_t i = 0; i < m->format->n_defaults; i++) {
        const trainer_default *d = &m->format->defaults[i];
        const source_key *given = source_find(m, d->key);
        const rule *r = rule_find(m->format, d->key), *other;
        bool known = given && !source_is_null(given);
        if (d->method && strcmp(d->method, m->method)) continue;
        for (size_t k = 0; !known && r && k < m->n_keys; k++) { /* another name of the same thing */
            other = rule_find(m->format, m->keys[k]->path);
            known = other && other->to && r->to && other->kind == r->kind && !strcmp(other->to, r->to) &&
                    !source_is_null(m->keys[k]);
        }
        const source_key *optimizer = source_find(m, "optimizer._component_");
        if (!strcmp(d->key, "optimizer.weight_decay") && optimizer && !strstr(source_text(m, optimizer), "Adam"))
            known = true;
        if (known) continue;
        source_key *k = source_add(m, d->key, scalar_node(m->a, d->value, strlen(d->value)));
        k->is_default = true;
    }
}

/* ---- the algorithm ---- */

static const char method_words[] =
    "sft=sft|pt=pt|pretrain=pt|clm=pt|run_clm=pt|dpo=dpo|ipo=ipo|orpo=orpo|simpo=simpo|cpo=cpo|kto=kto|rm=reward|"
    "reward=reward|reward_modeling=reward|gkd=distill|distill=distill|distillation=distill|supervised=sft|finetune=sft|"
    "grpo=grpo|fine_tune=sft|full=sft|lora=sft|sftconfig=sft|dpoconfig=dpo|ktoconfig=kto";

/* "dpo" of dpo.py, lora_dpo_single_device, full_finetune_distributed; NULL = nothing in it. */
static const char *method_in(const char *name)
{
    static const char *const parts[][2] = {{"orpo", "orpo"},         {"simpo", "simpo"}, {"cpo", "cpo"},
                                           {"dpo", "dpo"},           {"kto", "kto"},     {"grpo", "grpo"},
                                           {"reward", "reward"},     {"gkd", "distill"}, {"distillation", "distill"},
                                           {"knowledge", "distill"}, {"sft", "sft"},     {"finetune", "sft"},
                                           {"run_clm", "pt"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i][0])) return parts[i][1];
    return NULL;
}

/* Before rules are applied, because defaults depend on it: looks at paths by their rules. */
static const source_key *key_of_slot(const migration *m, const char *name)
{
    for (size_t i = 0; i < m->n_keys; i++) {
        const rule *r = rule_find(m->format, m->keys[i]->path);
        if (r && r->kind == RULE_SLOT && !strcmp(r->to, name) && !source_is_null(m->keys[i])) return m->keys[i];
    }
    return NULL;
}

static bool has_prefix(const migration *m, const char *prefix)
{
    for (size_t i = 0; i < m->n_keys; i++)
        if (!strncmp(m->keys[i]->path, prefix, strlen(prefix))) return true;
    return false;
}

static const char sft_loss_words[] = "nll=nll|chunked_nll=nll|dft=dft"; /* of TRL's SFT */

static void find_method(migration *m)
{
    const source_key *k = key_of_slot(m, "method"), *script = key_of_slot(m, "script");
    const source_key *loss = key_of_slot(m, "torchtune_loss");
    const char *word = NULL;
    if (m->method) return;
    if (k && !words_find(m->a, method_words, source_text(m, k), &word)) {
        write_remark(m, REMARK_LOST, k, "no such algorithm; `nrl describe algorithms` lists those of nrl");
    } else if (!k && script && (word = method_in(source_text(m, script))) != NULL) {
        k = script;
    } else if (!k && key_of_slot(m, "is_reward") && is_true(source_text(m, key_of_slot(m, "is_reward")))) {
        word = "reward";
    } else if (!k && (source_find(m, "num_generations") || source_find(m, "reward_funcs") || has_prefix(m, "grpo."))) {
        word = "grpo";
    } else if (!k && (source_find(m, "lmbda") || source_find(m, "teacher_model_name_or_path"))) {
        word = "distill";
    } else if (!k && (has_prefix(m, "dpo.") || (loss && strstr(source_text(m, loss), "DPO")))) {
        word = "dpo";
    } else if (!k && has_prefix(m, "kd_")) {
        word = "distill";
    } else if (!k) {
        const source_key *kto = source_find(m, "desirable_weight"),
                         *reward = source_find(m, "center_rewards_coefficient");
        const source_key *beta = key_of_slot(m, "beta"), *form = key_of_slot(m, "loss"),
                         *free = key_of_slot(m, "reference_free");
        if (form && words_find(m->a, sft_loss_words, source_text(m, form), NULL)) form = NULL;
        const source_key *sign = kto ? kto : reward ? reward : beta ? beta : form ? form : free;
        if (!sign) sign = source_find(m, "max_prompt_length");
        word = kto ? "kto" : reward ? "reward" : sign ? "dpo" : "sft";
        if (!strncmp(m->format->name, "tr", 2))
            write_remark(m, REMARK_ASSUMED, sign, "the algorithm is %s; --algorithm NAME decides", word);
    }
    m->method = word ? word : "sft";
}

static bool is_pairwise(const migration *m)
{
    return words_find(m->a, "dpo|ipo|orpo|simpo|cpo", m->method, NULL);
}

static const char loss_words[] =
    "sigmoid=sigmoid|dpo=sigmoid|hinge=hinge|ipo=ipo|exo_pair=exo_pair|nca_pair=nca_pair|robust=robust|bco_pair=bco_"
    "pair|"
    "sppo_hard=sppo_hard|aot=aot|aot_pair=aot|aot_unpaired=aot_unpaired|apo_zero=apo_zero|apo_down=apo_down|"
    "discopop=discopop|sft=sft|sigmoid_norm=sigmoid_norm|orpo=orpo|simpo=simpo|cpo=cpo|cdpo=cdpo";
static const char cpo_words[] = "sigmoid=cpo|hinge=cpo_hinge|ipo=cpo_ipo|simpo=simpo|alphapo=alphapo";

static const char *loss_word(migration *m, const char *word)
{
    const char *value = NULL;
    bool cpo = !strcmp(m->method, "cpo");
    double smoothing = 0;
    if (!words_find(m->a, cpo ? cpo_words : loss_words, word, &value)) return NULL;
    if (!strcmp(value, "sigmoid") && slot_is_true(m, "average_logps")) return "sigmoid_norm";
    source_number(slot_text(m, "label_smoothing"), &smoothing);
    return !strcmp(value, "sigmoid") && smoothing > 0 ? "cdpo" : value;
}

/* The loss, or several with weights. */
static void build_losses(migration *m)
{
    const source_key *k = slot(m, "loss"), *sft = slot(m, "sft_weight"), *weight = slot(m, "preference_weight");
    const char *first = !strcmp(m->method, "dpo") || !strcmp(m->method, "cpo") ? "sigmoid" : m->method;
    double share = 0, main_share = 1;
    bool is_list = k && nrl_node_kind(k->node) == NRL_NODE_LIST;
    const char *list = "", *from = k ? write_source(m, k) : "the algorithm";
    for (size_t i = 0; i < (is_list ? nrl_node_size(k->node) : 1); i++) {
        const char *word = is_list ? source_node_text(m->a, nrl_node_at(k->node, i)) : k ? source_text(m, k) : first;
        const char *here = loss_word(m, word);
        if (!here) write_remark(m, REMARK_LOST, k, "no loss '%.60s'; `nrl describe dpo` lists those of nrl", word);
        if (here) list = arena_printf(m->a, "%s%s%s", list, *list ? ", " : "", here);
    }
    slot_number(m, "sft_weight", &share);
    slot_number(m, "preference_weight", &main_share);
    if (share > 0) {
        write_line(m, "algorithm.loss", arena_printf(m->a, "[%s, sft]", list), "%s; %s", from, write_source(m, sft));
        write_line(m, "algorithm.loss_weights",
                   arena_printf(m->a, "[%s, %s]", number_text(m->a, main_share), number_text(m->a, share)), "%s%s%s",
                   write_source(m, sft), weight ? "; " : "", weight ? write_source(m, weight) : "");
    } else if (*list) {
        write_line(m, "algorithm.loss", is_list ? arena_printf(m->a, "[%s]", list) : list, "%s", from);
    }
    const source_key *weights = slot(m, "loss_weights");
    if (weights && nrl_node_kind(weights->node) == NRL_NODE_LIST) {
        const char *text = "";
        for (size_t i = 0; i < nrl_node_size(weights->node); i++)
            text = arena_printf(m->a, "%s%s%s", text, i ? ", " : "",
                                source_node_text(m->a, nrl_node_at(weights->node, i)));
        write_line(m, "algorithm.loss_weights", arena_printf(m->a, "[%s]", text), "%s", write_source(m, weights));
    }
}

static void build_slot_number(migration *m, const char *name, const char *key)
{
    double x;
    const source_key *k = slot(m, name);
    if (slot_number(m, name, &x)) write_line(m, key, number_word(m, k, x), "%s", write_source(m, k));
}

static void build_distillation(migration *m)
{
    const char *teacher = slot_text(m, "teacher"), *loss = slot_text(m, "kd_loss");
    double beta;
    if (*teacher)
        write_line(m, "algorithm.teacher_model", write_word(m->a, teacher), "%s", write_source(m, slot(m, "teacher")));
    if (*loss)
        write_line(m, "algorithm.divergence", strstr(loss, "Reverse") ? "reverse_kl" : "forward_kl", "%s",
                   write_source(m, slot(m, "kd_loss")));
    if (!*loss && slot_number(m, "beta", &beta)) {
        write_line(m, "algorithm.divergence",
                   beta == 0   ? "forward_kl"
                   : beta == 1 ? "reverse_kl"
                               : "jsd",
                   "%s", write_source(m, slot(m, "beta")));
        if (beta > 0 && beta < 1) build_slot_number(m, "beta", "algorithm.beta");
        write_line(m, "algorithm.kd_ratio", "1", "the loss of %s has no cross-entropy", m->format->title);
    }
}

/* Steps on completions of the student, as GKDTrainer has them. */
static void build_on_policy(migration *m)
{
    double share = 0, temperature = 1;
    const source_key *k = slot(m, "sample_temperature");
    build_slot_number(m, "sample_temperature", "algorithm.temperature");
    if (slot_number(m, "sample_temperature", &temperature) && temperature != 1)
        write_remark(m, REMARK_LOST, k, "the divergence is multiplied here by the square of the temperature");
    if (!slot_number(m, "on_policy", &share) || share <= 0) return;
    build_slot_number(m, "on_policy", "algorithm.on_policy");
    build_slot_number(m, "completion_length", "algorithm.max_tokens");
    build_slot_number(m, "sample_temperature", "algorithm.sample_temperature");
    build_slot_number(m, "sample_top_p", "algorithm.top_p");
    build_slot_number(m, "sample_top_k", "algorithm.top_k");
}

static void build_grpo(migration *m)
{
    static const char losses[] = "dapo=dapo|grpo=grpo|dr_grpo=dr_grpo|bnpo=bnpo|cispo=cispo|sapo=sapo";
    const source_key *k = slot(m, "reward");
    const char *value;
    double x;
    write_line(m, "algorithm.reward", "reward.lua", "%s", k ? write_source(m, k) : "no reward is named");
    write_remark(
        m, REMARK_LOST, k,
        "write the reward as a Lua function to reward.lua: `return function(sample) ... end`, docs/reinforcement.md");
    build_slot_number(m, "group_size", "algorithm.group_size");
    build_slot_number(m, "completion_length", "algorithm.max_tokens");
    k = slot(m, "loss");
    if (k && words_find(m->a, losses, source_text(m, k), &value))
        write_line(m, "algorithm.loss", value, "%s", write_source(m, k));
    else if (k)
        write_remark(m, REMARK_LOST, k, "no loss '%.60s'; `nrl describe grpo` lists those of nrl", source_text(m, k));
    build_slot_number(m, "beta", "algorithm.beta");
    k = slot(m, "kl_ratio");
    if (k && is_true(source_text(m, k)) && slot_number(m, "beta", &x) && x != 0)
        write_remark(
            m, REMARK_LOST, k,
            "the KL divergence is not multiplied by the ratio of the probabilities; with false it is the same");
    build_slot_number(m, "sample_temperature", "algorithm.temperature");
    if (slot_number(m, "sample_temperature", &x) && x != 1)
        write_remark(m, REMARK_LOST, slot(m, "sample_temperature"), "the loss has log-probs at temperature 1");
    build_slot_number(m, "sample_top_p", "algorithm.top_p");
    if (slot_number(m, "sample_top_k", &x) && x > 0) build_slot_number(m, "sample_top_k", "algorithm.top_k");
    build_slot_number(m, "sample_min_p", "algorithm.min_p");
}

/* Limits of the two parts of a sample, where an algorithm has only one of the sum. */
static void list_part_lengths(migration *m)
{
    static const char *const names[] = {"prompt_length", "completion_length"};
    for (size_t i = 0; i < 2; i++) {
        const source_key *k = slot(m, names[i]);
        if (k && !k->is_default && strcmp(m->method, "grpo") && !(i && !strcmp(m->method, "distill")))
            write_remark(m, REMARK_LOST, k, "data.max_length counts prompt and answer, and truncates the end");
    }
}

static void build_algorithm(migration *m)
{
    const source_key *k = slot(m, "method");
    const char *from = k                   ? write_source(m, k)
                       : slot(m, "script") ? write_source(m, slot(m, "script"))
                                           : "the kind of training";
    const char *name = is_pairwise(m) ? "dpo" : !strcmp(m->method, "pt") ? "sft" : m->method;
    write_line(m, "algorithm.name", name, "%s", from);
    list_part_lengths(m);
    if (!strcmp(name, "distill")) {
        build_distillation(m);
        build_on_policy(m);
    }
    if (!strcmp(name, "grpo")) build_grpo(m);
    if (!strcmp(name, "sft")) {
        const source_key *loss = slot(m, "loss");
        const char *value;
        build_slot_number(m, "label_smoothing", "algorithm.label_smoothing");
        if (loss && words_find(m->a, sft_loss_words, source_text(m, loss), &value))
            write_line(m, "algorithm.loss", value, "%s", write_source(m, loss));
        else if (loss && !words_find(m->a, loss_words, source_text(m, loss), NULL)) /* pref_loss is of DPO */
            write_remark(m, REMARK_LOST, loss, "no loss '%.60s'; `nrl describe sft` lists those of nrl",
                         source_text(m, loss));
    }
    if (strcmp(name, "dpo") && strcmp(name, "kto") && strcmp(name, "grpo")) return;
    if (!strcmp(name, "grpo")) {
        if (slot(m, "reference"))
            write_line(m, "algorithm.reference_model", write_word(m->a, slot_text(m, "reference")), "%s",
                       write_source(m, slot(m, "reference")));
        return;
    }
    if (!strcmp(name, "dpo")) {
        build_losses(m);
        build_slot_number(m, "label_smoothing", "algorithm.label_smoothing");
        build_slot_number(m, "simpo_gamma", "algorithm.simpo_gamma");
    } else if (slot(m, "loss")) {
        const char *word = slot_text(m, "loss");
        if (words_find(m->a, "kto|apo_zero_unpaired", word, NULL))
            write_line(m, "algorithm.loss", word, "%s", write_source(m, slot(m, "loss")));
        else if (strcmp(word, "sigmoid")) /* LLaMA-Factory's pref_loss is of DPO */
            write_remark(m, REMARK_LOST, slot(m, "loss"), "no loss '%.60s'; `nrl describe kto` lists those of nrl",
                         word);
    }
    build_slot_number(m, "beta", "algorithm.beta");
    if (slot_is_true(m, "reference_free"))
        write_line(m, "algorithm.reference", "none", "%s", write_source(m, slot(m, "reference_free")));
    else if (slot_is_true(m, "precompute"))
        write_line(m, "algorithm.reference", "cached", "%s", write_source(m, slot(m, "precompute")));
    if (slot(m, "reference"))
        write_line(m, "algorithm.reference_model", write_word(m->a, slot_text(m, "reference")), "%s",
                   write_source(m, slot(m, "reference")));
}

/* ---- model and adapter ---- */

static const char *text_at(const migration *m, const nrl_node *map, const char *key)
{
    return nrl_node_kind(map) == NRL_NODE_MAP ? source_node_text(m->a, nrl_node_find(map, key)) : "";
}

/* The words of a list, or between commas, each with a text before and behind it. */
static const char *list_items(migration *m, const nrl_node *n, const char *before, const char *behind)
{
    const bool is_list = nrl_node_kind(n) == NRL_NODE_LIST;
    const char *out = "", *s = is_list ? "" : source_node_text(m->a, n);
    for (size_t i = 0; is_list ? i < nrl_node_size(n) : *(s += strspn(s, ", ")) != 0; i++) {
        const size_t size = strcspn(s, ", ");
        const char *word = is_list ? source_node_text(m->a, nrl_node_at(n, i)) : arena_strndup(m->a, s, size);
        out = arena_printf(m->a, "%s%s%s%s%s", out, *out ? ", " : "", before, write_word(m->a, word), behind);
        s += size;
    }
    return out;
}

static const char *list_text(migration *m, const nrl_node *n)
{
    return arena_printf(m->a, "[%s]", list_items(m, n, "", ""));
}

/* Tokens that the model gets, plain and special ones. */
static void build_new_tokens(migration *m)
{
    const source_key *plain = slot(m, "new_tokens"), *special = slot(m, "new_special_tokens");
    const char *list = plain ? list_items(m, plain->node, "", "") : "";
    if (special)
        list = arena_printf(m->a, "%s%s%s", list, *list ? ", " : "",
                            list_items(m, special->node, "{token: ", ", special: true}"));
    if (!*list) return;
    write_line(m, "model.add_tokens", arena_printf(m->a, "[%s]", list), "%s%s%s", plain ? write_source(m, plain) : "",
               plain && special ? "; " : "", special ? write_source(m, special) : "");
    write_remark(m, REMARK_ASSUMED, plain ? plain : special,
                 "a new row is the mean of the others, without the noise that %s adds", m->format->title);
}

static void build_model(migration *m)
{
    const source_key *k = slot(m, "model_path"), *tok = slot(m, "tokenizer");
    if (k) write_line(m, "model.path", write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
    for (size_t i = 0; tok && i < m->n_lines; i++) /* the same directory is the default */
        if (!strcmp(m->lines[i].key, "model.path") && !strcmp(m->lines[i].value, write_word(m->a, source_text(m, tok))))
            tok = NULL;
    if (tok) write_line(m, "model.tokenizer", write_word(m->a, source_text(m, tok)), "%s", write_source(m, tok));
    if (!write_has(m, "model.path"))
        write_remark(m, REMARK_LOST, NULL, "the model is not named; model.path is required");
    build_new_tokens(m);
}

static void build_targets(migration *m)
{
    const source_key *k = slot(m, "lora_targets"), *attention = slot(m, "lora_attention"), *mlp = slot(m, "lora_mlp");
    if (attention || mlp) { /* torchtune */
        static const char *const names[][2] = {{"output_proj", "o_proj"}};
        const char *out = "";
        for (size_t i = 0; attention && i < nrl_node_size(attention->node); i++) {
            const char *word = source_node_text(m->a, nrl_node_at(attention->node, i));
            if (!strcmp(word, names[0][0])) word = names[0][1];
            out = arena_printf(m->a, "%s%s%s", out, i ? ", " : "", word);
        }
        if (mlp && is_true(source_text(m, mlp)))
            out = arena_printf(m->a, "%s%sgate_proj, up_proj, down_proj", out, *out ? ", " : "");
        write_line(m, "lora.targets", arena_printf(m->a, "[%s]", out), "%s%s%s",
                   attention ? write_source(m, attention) : "", attention && mlp ? "; " : "",
                   mlp ? write_source(m, mlp) : "");
    } else if (slot_is_true(m, "lora_all")) {
        write_line(m, "lora.targets", "all-linear", "%s", write_source(m, slot(m, "lora_all")));
        if (slot(m, "lora_excluded"))
            write_remark(m, REMARK_LOST, slot(m, "lora_excluded"), "lora.targets lists modules");
    } else if (k && words_find(m->a, "all|all-linear|all_linear", source_text(m, k), NULL)) {
        write_line(m, "lora.targets", "all-linear", "%s", write_source(m, k));
    } else if (k && strpbrk(source_text(m, k), "*[(\\|")) {
        write_line(m, "lora.targets", write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
    } else if (k) {
        write_line(m, "lora.targets", list_text(m, k->node), "%s", write_source(m, k));
    } else if (!strncmp(m->format->name, "tr", 2)) {
        write_line(m, "lora.targets", "[q_proj, v_proj]", "default of peft for models such as Llama");
    } else {
        write_line(m, "lora.targets", "all-linear", "default of %s", m->format->title);
    }
}

/* lora.base of load_in_4bit, quantization_bit and the like; `kind` may be the word qlora. */
static void build_base(migration *m, const source_key *qlora, bool is_lora)
{
    const source_key *four = slot(m, "load_4bit"), *eight = slot(m, "load_8bit"), *bits = slot(m, "quant_bits");
    const source_key *type = slot(m, "quant_type"), *nested = slot(m, "double_quant"), *word = slot(m, "quant_word");
    const source_key *k = NULL;
    const char *base = NULL, *found = NULL;
    double n = 0;
    if (word && words_find(m->a, "none|false|no", source_text(m, word), NULL)) word = NULL;
    if (eight && is_true(source_text(m, eight))) {
        k = eight;
        base = "int8";
    } else if (bits && slot_number(m, "quant_bits", &n)) {
        k = bits;
        base = n == 8 ? "int8" : n == 4 ? "nf4" : NULL;
    } else if (four && is_true(source_text(m, four))) {
        k = four;
        base =
            strstr(k->path, "quantization_config") ? "fp4" : "nf4"; /* BitsAndBytesConfig's default, and all others' */
    } else if (word) {
        k = word;
        base = words_find(m->a, "4bit=nf4|nf4=nf4|fp4=fp4|8bit=int8|int8=int8", source_text(m, word), &found) ? found
                                                                                                              : NULL;
    } else if (qlora) {
        k = qlora;
        base = "nf4";
    }
    if (!k) return;
    if (!base || !is_lora) {
        write_remark(m, REMARK_LOST, k,
                     base ? "only the frozen weights beside adapters are quantized; lora.base"
                          : "lora.base is nf4, fp4 or int8");
        return;
    }
    bool has_type = type && strcmp(base, "int8");
    if (has_type && words_find(m->a, "nf4|fp4", source_text(m, type), NULL)) base = source_text(m, type);
    write_line(m, "lora.base", base, "%s%s%s", write_source(m, k), has_type ? "; " : "",
               has_type ? write_source(m, type) : "");
    if (!strcmp(base, "int8"))
        write_remark(m, REMARK_LOST, k, "nrl does not treat outliers of activations separately, unlike bitsandbytes");
    else if (nested ? !is_true(source_text(m, nested)) : !strncmp(m->format->name, "tr", 2))
        write_remark(m, REMARK_LOST, nested ? nested : k,
                     "scales of blocks are quantized here (double quantization), and fp32 there");
}

/* {q_proj: 8, v_proj: 4} of the keys of lora.rank_pattern or lora.alpha_pattern. */
static void build_pattern(migration *m, const char *name)
{
    const char *out = "", *separator = arena_printf(m->a, "%s.", name);
    const source_key *first = NULL;
    for (size_t i = 0; i < m->n_keys; i++) {
        const source_key *k = m->keys[i];
        double x;
        if (!k->slot || strcmp(k->slot, name)) continue;
        if (!source_number(source_text(m, k), &x)) {
            write_remark(m, REMARK_LOST, k, "expected a number, found '%.60s'", source_text(m, k));
            continue;
        }
        const char *module = strstr(k->path, separator) + strlen(separator);
        out = arena_printf(m->a, "%s%s%s: %s", out, first ? ", " : "", write_word(m->a, module), number_word(m, k, x));
        if (!first) first = k;
    }
    if (first)
        write_line(m, arena_printf(m->a, "lora.%s", name), arena_printf(m->a, "{%s}", out), "%s",
                   write_source(m, first));
}

/* A pattern of file names of a regular expression that re.match would find; NULL = it says more than such a pattern. */
static const char *glob_of(migration *m, const char *regex)
{
    char *out = arena_alloc(m->a, strlen(regex) + 2), *o = out;
    const char *s = regex + (*regex == '^');
    for (; *s && strcmp(s, "$"); s++) {
        if (*s == '.' && s[1] == '*') {
            *o++ = *++s;
        } else if (*s == '\\' && s[1] == '.') {
            *o++ = *++s;
        } else if (isalnum((unsigned char)*s) || strchr("_-.", *s)) {
            *o++ = *s;
        } else {
            return NULL;
        }
    }
    if (!*s && (o == out || o[-1] != '*')) *o++ = '*';
    *o = 0;
    return out;
}

/* axolotl's unfrozen_parameters: regular expressions of names. */
static void build_unfrozen(migration *m, bool is_lora)
{
    const source_key *k = slot(m, "unfrozen");
    const char *out = "";
    if (!k) return;
    for (size_t i = 0; i < nrl_node_size(k->node); i++) {
        const char *regex = source_node_text(m->a, nrl_node_at(k->node, i)), *glob = glob_of(m, regex);
        if (!glob)
            write_remark(m, REMARK_LOST, k, "'%.100s': train.trainable has patterns as of files", regex);
        else
            out = arena_printf(m->a, "%s%s%s", out, *out ? ", " : "", write_word(m->a, glob));
    }
    if (is_lora)
        write_remark(m, REMARK_LOST, k, "with adapters all weights of the model are frozen");
    else if (*out)
        write_line(m, "train.trainable", arena_printf(m->a, "[%s]", out), "%s", write_source(m, k));
}

/* A number in config.json of the model, if that is here; else 0. */
static double model_number(migration *m, const char *key)
{
    double found = 0;
    for (size_t i = 0; i < m->n_lines; i++) {
        nrl_node *root = NULL;
        if (strcmp(m->lines[i].key, "model.path")) continue;
        if (json_read_file(m->a, arena_printf(m->a, "%s/config.json", m->lines[i].value), MAX_INFO, &root) == NRL_OK)
            source_number(text_at(m, root, key), &found);
    }
    return found;
}

/* "a, b" without blanks, one after the other; NULL = no more. */
static const char *next_word(migration *m, const char **at)
{
    *at += strspn(*at, ", ");
    size_t n = strcspn(*at, ", ");
    const char *word = n ? arena_strndup(m->a, *at, n) : NULL;
    *at += n;
    return word;
}

/* LLaMA-Factory's freeze: the last layers are trained, or with a negative number the first ones. */
static void build_freeze(migration *m, const source_key *kind)
{
    const source_key *layers = slot(m, "freeze_layers"), *parts = slot(m, "freeze_modules"),
                     *extra = slot(m, "freeze_extra");
    const char *out = "", *word;
    double n = 2, all = model_number(m, "num_hidden_layers");
    slot_number(m, "freeze_layers", &n);
    if (!(fabs(n) >= 1 && fabs(n) <= all) || all > 4096) {
        const char *why = arena_printf(m->a, "freeze_trainable_layers: expected at most %.0f layers", all);
        if (all < 1)
            why = "name the layers in train.trainable: their number is in config.json of the model, which is not here";
        write_remark(m, REMARK_LOST, kind, "%s", why);
        return;
    }
    int first = n > 0 ? (int)(all - n) : 0, end = n > 0 ? (int)all : (int)-n;
    for (int i = first; i < end; i++) {
        const char *list = parts ? source_text(m, parts) : "all";
        while ((word = next_word(m, &list)) != NULL)
            out = arena_printf(m->a, "%s%s\"*.%d.%s*\"", out, *out ? ", " : "", i, !strcmp(word, "all") ? "" : word);
    }
    const char *list = extra ? source_text(m, extra) : "";
    while ((word = next_word(m, &list)) != NULL)
        out = arena_printf(m->a, "%s, \"*%s*\"", out, word);
    write_line(m, "train.trainable", arena_printf(m->a, "[%s]", out), "%s; %s%s%s", write_source(m, kind),
               layers ? write_source(m, layers) : "2 layers, the default of LLaMA-Factory", extra ? "; " : "",
               extra ? write_source(m, extra) : "");
}

static void build_adapter(migration *m)
{
    const source_key *kind = slot(m, "finetuning"), *use = slot(m, "lora");
    const char *word = source_text(m, kind), *component = slot_text(m, "torchtune_model");
    bool is_lora = words_find(m->a, "lora|qlora", word, NULL) || is_true(source_text(m, use)) ||
                   strstr(component, "lora") || (!kind && !use && m->format->by_last_part && slot(m, "lora_rank"));
    const bool is_llamafactory = !strcmp(m->format->name, "llamafactory");
    double rank = is_llamafactory ? 8 : 16, alpha;
    const source_key *qlora = strstr(word, "qlora") ? kind : NULL;
    if (!qlora && strstr(component, "qlora")) qlora = slot(m, "torchtune_model");
    build_unfrozen(m, is_lora);
    build_base(m, qlora, is_lora);
    if (kind && !strcasecmp(word, "freeze"))
        build_freeze(m, kind);
    else if (kind && !is_lora && !words_find(m->a, "full|none|false", word, NULL))
        write_remark(m, REMARK_LOST, kind, "nrl trains all weights or LoRA adapters");
    if (!is_lora) return;
    const char *why = kind         ? write_source(m, kind)
                      : use        ? write_source(m, use)
                      : *component ? write_source(m, slot(m, "torchtune_model"))
                                   : "";
    slot_number(m, "lora_rank", &rank);
    const source_key *k = slot(m, "lora_rank");
    write_line(m, "lora.rank", number_text(m->a, rank), "%s%s%s", why, *why ? "; " : "",
               k ? write_source(m, k) : arena_printf(m->a, "default of %s", m->format->title));
    alpha = is_llamafactory ? 2 * rank : !strcmp(m->format->name, "trl") ? 32 : 2 * rank;
    slot_number(m, "lora_alpha", &alpha);
    k = slot(m, "lora_alpha");
    write_line(m, "lora.alpha", number_text(m->a, alpha), "%s",
               k ? write_source(m, k) : arena_printf(m->a, "default of %s", m->format->title));
    build_slot_number(m, "lora_dropout", "lora.dropout");
    if (!slot(m, "lora_dropout") && !strcmp(m->format->name, "trl"))
        write_line(m, "lora.dropout", "0.05", "default of TRL");
    if (slot_is_true(m, "lora_rs")) write_line(m, "lora.rslora", "true", "%s", write_source(m, slot(m, "lora_rs")));
    if (slot_is_true(m, "lora_dora")) write_line(m, "lora.dora", "true", "%s", write_source(m, slot(m, "lora_dora")));
    build_targets(m);
    build_pattern(m, "rank_pattern");
    build_pattern(m, "alpha_pattern");
    k = slot(m, "lora_whole");
    if (k && *source_text(m, k)) write_line(m, "lora.modules_to_save", list_text(m, k->node), "%s", write_source(m, k));
    k = slot(m, "adapter_path");
    if (k) write_line(m, "lora.use", write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
}

/* ---- data ---- */

static bool exists(const char *path)
{
    return *path && !access(path, F_OK);
}

/* A path that means the same in the config, whose directory may be another. */
static const char *local_path(const migration *m, const char *path)
{
    if (!m->out || !strchr(m->out, '/') || *path == '/') return path;
    char *full = realpath(path, NULL);
    const char *kept = full ? arena_strdup(m->a, full) : path;
    free(full);
    return kept;
}

/* What data.train calls a file or a data set of the hub. */
static const char *data_address(migration *m, const source_key *k, const char *text, const char *split,
                                const char *subset)
{
    if (exists(text)) return local_path(m, text);
    if (!strncmp(text, HUB_SCHEME, strlen(HUB_SCHEME))) return text;
    if (!hub_is_name(text, strlen(text))) {
        write_remark(m, REMARK_ASSUMED, k, "'%.100s' is not a file here", text);
        return text;
    }
    size_t n = strcspn(split, "[");
    write_remark(m, REMARK_ASSUMED, k,
                 "`nrl download %s --dataset` fetches it; the files of the split are guessed by their usual names",
                 text);
    return arena_printf(m->a, HUB_SCHEME "%s/%s/%.*s-*", text, *subset ? subset : "data", n ? (int)n : 5,
                        n ? split : "train");
}

/* ", rows: 0:1000" of train[:1000]; "" without a slice. */
static const char *slice_text(migration *m, const source_key *k, const char *split)
{
    const char *at = strchr(split, '[');
    char *end;
    if (!at) return "";
    size_t n = strcspn(++at, "]");
    const char *inside = arena_strndup(m->a, at, n);
    if (strchr(inside, '%')) {
        write_remark(m, REMARK_LOST, k, "`rows` of an entry of data.train counts rows, not percent");
        return "";
    }
    long long first = strtoll(inside, &end, 10);
    return arena_printf(m->a, ", rows: \"%lld%s\"", first,
                        end == inside && *inside != ':' ? ":"
                        : strchr(inside, ':')           ? strchr(inside, ':')
                                                        : ":");
}

/* An entry: the path alone, or a map with more. */
static const char *data_entry(const migration *m, const char *path, const char *more)
{
    const char *word = write_word(m->a, path);
    return *more ? arena_printf(m->a, "{path: %s%s}", word, more) : word;
}

/* The first bytes of a local file; "" = none. */
static const char *peek(const migration *m, const char *path)
{
    char *text = arena_alloc(m->a, PEEK + 1);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, PEEK, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return strlen(text) == n ? text : "";
}

/* Column names of LLaMA-Factory's dataset_info.json, where nrl expects others. */
static const char *info_columns(migration *m, const nrl_node *info)
{
    static const char *const names[][2] = {{"prompt", "instruction"}, {"query", "input"},
                                           {"response", "output"},    {"system", "system"},
                                           {"history", "history"},    {"messages", "conversations"},
                                           {"chosen", "chosen"},      {"rejected", "rejected"},
                                           {"kto_tag", "kto_tag"},    {"tools", "tools"}};
    const nrl_node *columns = nrl_node_kind(info) == NRL_NODE_MAP ? nrl_node_find(info, "columns") : NULL;
    const char *out = "";
    bool is_prompt = !strcmp(text_at(m, columns, "prompt"), "prompt"); /* prompt and completion, or a pair */
    for (size_t i = 0; columns && i < sizeof names / sizeof *names; i++) {
        const char *theirs = text_at(m, columns, names[i][0]), *ours = names[i][1];
        if (is_prompt && i == 0) continue;
        if (is_prompt && !strcmp(ours, "output")) ours = "completion";
        if (!*theirs || !strcmp(theirs, ours) || (!strcmp(ours, "conversations") && !strcmp(theirs, "messages")))
            continue;
        out = arena_printf(m->a, "%s%s%s: %s", out, *out ? ", " : "", ours, write_word(m->a, theirs));
    }
    return *out ? arena_printf(m->a, ", columns: {%s}", out) : "";
}

/* One data set of LLaMA-Factory, by dataset_info.json in its directory if that is here. */
static const char *llamafactory_entry(migration *m, const source_key *k, const nrl_node *info, const char *folder,
                                      const char *name)
{
    const nrl_node *about = nrl_node_kind(info) == NRL_NODE_MAP ? nrl_node_find(info, name) : NULL;
    const char *file = text_at(m, about, "file_name"), *hub = text_at(m, about, "hf_hub_url");
    const char *more = about ? info_columns(m, about) : "", *path;
    double most;
    if (slot_number(m, "max_samples", &most) && !strcmp(k->slot, "dataset"))
        more = arena_printf(m->a, "%s, rows: \"0:%.0f\"", more, most);
    if (*file)
        path = local_path(m, arena_printf(m->a, "%s/%s", folder, file));
    else if (*hub)
        path = data_address(m, k, hub, text_at(m, about, "split"), text_at(m, about, "subset"));
    else if (exists(name) || strchr(name, '/'))
        path = data_address(m, k, name, "", "");
    else {
        path = arena_printf(m->a, "%s/%s.json", folder, name);
        if (!exists(path))
            write_remark(m, REMARK_ASSUMED, k, "dataset_info.json names the file of '%.100s', and %s", name,
                         info ? "has no such entry" : arena_printf(m->a, "%s/dataset_info.json is not here", folder));
        path = local_path(m, path);
    }
    return data_entry(m, path, more);
}

static const char *llamafactory_data(migration *m, const source_key *k)
{
    const char *folder = *slot_text(m, "dataset_dir") ? slot_text(m, "dataset_dir") : "data", *out = "";
    nrl_node *info = NULL;
    size_t n = 0;
    bool is_list = nrl_node_kind(k->node) == NRL_NODE_LIST;
    char *save = NULL, *words = arena_strdup(m->a, source_text(m, k));
    if (json_read_file(m->a, arena_printf(m->a, "%s/dataset_info.json", folder), MAX_INFO, &info) != NRL_OK)
        info = NULL;
    for (char *w = is_list ? NULL : strtok_r(words, ", ", &save); is_list ? n < nrl_node_size(k->node) : w != NULL;
         w = is_list ? NULL : strtok_r(NULL, ", ", &save), n++) {
        const char *name = is_list ? source_node_text(m->a, nrl_node_at(k->node, n)) : w;
        out = arena_printf(m->a, "%s%s%s", out, n ? ", " : "", llamafactory_entry(m, k, info, folder, name));
    }
    return n > 1 ? arena_printf(m->a, "[%s]", out) : out;
}

/* Entries of axolotl's `datasets`. */
static const char *axolotl_entry(migration *m, const source_key *k, const nrl_node *d)
{
    static const char *const known[] = {"path",
                                        "type",
                                        "ds_type",
                                        "data_files",
                                        "split",
                                        "name",
                                        "field",
                                        "field_messages",
                                        "message_property_mappings",
                                        "roles_to_train",
                                        "train_on_eos",
                                        "chat_template",
                                        "roles",
                                        "field_chosen",
                                        "field_rejected",
                                        "conversation",
                                        "trust_remote_code",
                                        "message_field_role",
                                        "message_field_content"};
    const char *path = nrl_node_kind(d) == NRL_NODE_STRING ? nrl_node_string(d, "") : text_at(m, d, "path");
    const char *files = text_at(m, d, "data_files"), *messages = text_at(m, d, "field_messages"), *columns = "";
    const nrl_node *list = nrl_node_kind(d) == NRL_NODE_MAP ? nrl_node_find(d, "data_files") : NULL;
    const nrl_node *names = nrl_node_kind(d) == NRL_NODE_MAP ? nrl_node_find(d, "message_property_mappings") : NULL;
    const char *type = text_at(m, d, "type"),
               *content = names ? text_at(m, names, "content") : text_at(m, d, "message_field_content");
    bool shares = !strcmp(content, "value") || strstr(type, "sharegpt");
    if (nrl_node_size(list) == 1) files = source_node_text(m->a, nrl_node_at(list, 0));
    if (*files) path = exists(files) ? files : exists(path) ? arena_printf(m->a, "%s/%s", path, files) : path;
    if (*messages && strcmp(messages, shares ? "conversations" : "messages"))
        columns = arena_printf(m->a, "%s: %s", shares ? "conversations" : "messages", write_word(m->a, messages));
    if (*text_at(m, d, "field") && strcmp(text_at(m, d, "field"), "text"))
        columns = arena_printf(m->a, "text: %s", write_word(m->a, text_at(m, d, "field")));
    for (int i = 0; i < 2; i++) {
        const char *theirs = text_at(m, d, i ? "field_rejected" : "field_chosen"), *ours = i ? "rejected" : "chosen";
        if (*theirs && strcmp(theirs, ours))
            columns = arena_printf(m->a, "%s%s%s: %s", columns, *columns ? ", " : "", ours, write_word(m->a, theirs));
    }
    for (size_t i = 0; nrl_node_kind(d) == NRL_NODE_MAP && i < nrl_node_size(d); i++) {
        bool is_known = false;
        for (size_t n = 0; n < sizeof known / sizeof *known; n++)
            is_known |= !strcmp(nrl_node_key(d, i), known[n]);
        if (!is_known && nrl_node_kind(nrl_node_at(d, i)) != NRL_NODE_NULL)
            write_remark(m, REMARK_LOST, k, "an entry has '%.60s'; data.columns renames columns", nrl_node_key(d, i));
    }
    const char *more = slice_text(m, k, text_at(m, d, "split"));
    if (*columns) more = arena_printf(m->a, "%s, columns: {%s}", more, columns);
    return data_entry(m, data_address(m, k, path, text_at(m, d, "split"), text_at(m, d, "name")), more);
}

/* {id or path, config, split, weight} of TRL and the alignment handbook. */
static const char *mixture_entry(migration *m, const source_key *k, const nrl_node *d)
{
    const char *id = text_at(m, d, "id"), *weight = text_at(m, d, "weight"), *config = text_at(m, d, "config");
    const char *split = text_at(m, d, "split"), *more = slice_text(m, k, split);
    if (!*id) id = text_at(m, d, "path");
    if (*weight && strcmp(weight, "1.0") && strcmp(weight, "1"))
        more = arena_printf(m->a, "%s, weight: %s", more, weight);
    if (!strcmp(config, "default")) config = "";
    return data_entry(m, data_address(m, k, id, split, config), more);
}

static const char *entries(migration *m, const source_key *k,
                           const char *(*entry)(migration *, const source_key *, const nrl_node *))
{
    const char *out = "";
    size_t n = nrl_node_kind(k->node) == NRL_NODE_LIST ? nrl_node_size(k->node) : 0;
    if (!n) return entry(m, k, k->node);
    for (size_t i = 0; i < n && i < MAX_ENTRIES; i++)
        out = arena_printf(m->a, "%s%s%s", out, i ? ", " : "", entry(m, k, nrl_node_at(k->node, i)));
    return n > 1 ? arena_printf(m->a, "[%s]", out) : out;
}

/* The data sets that torchtune's classes name. */
static const char *torchtune_source(const char *component)
{
    static const char *const sets[][2] = {{"alpaca_cleaned", "yahma/alpaca-cleaned"},
                                          {"alpaca", "tatsu-lab/alpaca"},
                                          {"stack_exchange_paired", "lvwerra/stack-exchange-paired"},
                                          {"hh_rlhf_helpful", "RLHFlow/HH-RLHF-Helpful-standard"},
                                          {"samsum", "Samsung/samsum"},
                                          {"grammar", "liweili/c4_200m"},
                                          {"slimorca", "Open-Orca/SlimOrca-Dedup"},
                                          {"wikitext", "EleutherAI/wikitext_document_level"},
                                          {"cnn_dailymail", "ccdv/cnn_dailymail"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strstr(component, sets[i][0])) return sets[i][1];
    return "";
}

static const char *columns_text(migration *m)
{
    static const char *const names[][2] = {{"prompt_column", "prompt"}, {"completion_column", "completion"},
                                           {"chosen_column", "chosen"}, {"rejected_column", "rejected"},
                                           {"text_column", "text"},     {"conversation_column", "messages"}};
    const char *out = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *theirs = slot_text(m, names[i][0]), *ours = names[i][1];
        if (!strcmp(ours, "messages") && !strcmp(theirs, "conversations")) continue; /* known by that name */
        if (*theirs && strcmp(theirs, ours))
            out = arena_printf(m->a, "%s%s%s: %s", out, *out ? ", " : "", ours, write_word(m->a, theirs));
    }
    for (size_t i = 0; i < m->n_keys; i++) {
        const source_key *k = m->keys[i];
        if (!k->slot || strcmp(k->slot, "columns") || source_is_null(k)) continue;
        const char *ours = last_part(k->path), *theirs = source_text(m, k);
        if (!strcmp(ours, "input") && !strstr(slot_text(m, "torchtune_data"), "alpaca")) ours = "prompt";
        if (!strcmp(ours, "output") && !strstr(slot_text(m, "torchtune_data"), "alpaca")) ours = "completion";
        if (strcmp(ours, theirs))
            out = arena_printf(m->a, "%s%s%s: %s", out, *out ? ", " : "", ours, write_word(m->a, theirs));
    }
    return out;
}

static void build_train_data(migration *m)
{
    const source_key *k;
    const char *value = NULL, *split = slot_text(m, "split"), *subset = slot_text(m, "subset");
    if ((k = slot(m, "axolotl_data")) != NULL)
        value = entries(m, k, axolotl_entry);
    else if ((k = slot(m, "mixture")) != NULL)
        value = entries(m, k, mixture_entry);
    else if ((k = slot(m, "dataset")) != NULL && !strcmp(m->format->name, "llamafactory"))
        value = llamafactory_data(m, k);
    else if (k && nrl_node_kind(k->node) == NRL_NODE_LIST)
        value = list_text(m, k->node);
    else if (k)
        value = data_entry(m, data_address(m, k, source_text(m, k), split, subset), slice_text(m, k, split));
    else if ((k = slot(m, "data_files")) != NULL)
        value = nrl_node_kind(k->node) == NRL_NODE_LIST
                    ? list_text(m, k->node)
                    : data_entry(m, local_path(m, source_text(m, k)), slice_text(m, k, split));
    else if ((k = slot(m, "torchtune_data")) != NULL) {
        const char *source = *slot_text(m, "source") ? slot_text(m, "source") : torchtune_source(source_text(m, k));
        if (*source) value = data_entry(m, data_address(m, k, source, split, subset), slice_text(m, k, split));
    } else if (slot(m, "mixer")) {
        const char *out = "";
        size_t n = 0;
        for (size_t i = 0; i < m->n_keys; i++) {
            const source_key *d = m->keys[i];
            if (!d->slot || strcmp(d->slot, "mixer")) continue;
            const char *name = strchr(d->path, '.') + 1, *share = source_text(m, d);
            const source_key *splits = slot(m, "splits");
            const char *first = splits ? source_node_text(m->a, nrl_node_at(splits->node, 0)) : "train";
            double x = 1;
            source_number(share, &x);
            out = arena_printf(m->a, "%s%s%s", out, n++ ? ", " : "",
                               data_entry(m, data_address(m, d, name, first, ""),
                                          x == 1 ? "" : arena_printf(m->a, ", weight: %s", share)));
            k = d;
        }
        value = n > 1 ? arena_printf(m->a, "[%s]", out) : out;
    }
    if (value) {
        write_line(m, "data.train", value, "%s", write_source(m, k));
    } else {
        k = slot(m, "nemo_name");
        write_remark(m, REMARK_LOST, k, "%s",
                     k ? "rows of this data set are made by code; write them to a file, and name it in data.train"
                       : "the training data are not named; data.train is required");
    }
    if (*columns_text(m))
        write_line(m, "data.columns", arena_printf(m->a, "{%s}", columns_text(m)), "columns of the rows");
}

static void build_streaming(migration *m)
{
    const source_key *k = slot(m, "streaming"), *size = slot(m, "buffer");
    double steps = 0, n = 0;
    if (!k || !is_true(source_text(m, k))) {
        if (size) write_remark(m, REMARK_LOST, size, "nothing is streamed: all rows are shuffled");
        return;
    }
    slot_number(m, "steps", &steps);
    if (steps <= 0) {
        write_remark(m, REMARK_ASSUMED, k,
                     "the rows are indexed before the run, because data.streaming needs train.steps");
        return;
    }
    write_line(m, "data.streaming", "true", "%s", write_source(m, k));
    if (size && slot_number(m, "buffer", &n) && n >= 1)
        write_line(m, "data.shuffle_buffer", number_text(m->a, n), "%s", write_source(m, size));
}

static bool is_hub_data(const migration *m, const source_key *k)
{
    const char *text = source_text(m, k);
    return !exists(text) && hub_is_name(text, strlen(text));
}

/* A share such as 0.1, or a number of rows. */
static void build_eval_data(migration *m)
{
    const source_key *k = slot(m, "eval_dataset"), *list = slot(m, "axolotl_eval"), *share = slot(m, "eval_share");
    double x = 0;
    if (!k) k = slot(m, "eval_files");
    if (list) {
        write_line(m, "data.eval", entries(m, list, axolotl_entry), "%s", write_source(m, list));
    } else if (k) {
        write_line(m, "data.eval",
                   !strcmp(m->format->name, "llamafactory") ? llamafactory_data(m, k)
                   : nrl_node_kind(k->node) == NRL_NODE_LIST
                       ? list_text(m, k->node)
                       : write_word(m->a, data_address(m, k, source_text(m, k), "validation", "")),
                   "%s", write_source(m, k));
    } else if (slot(m, "eval_strategy") && strcmp(slot_text(m, "eval_strategy"), "no") && slot(m, "dataset") &&
               strncmp(m->format->name, "tr", 2) == 0 && is_hub_data(m, slot(m, "dataset"))) {
        k = slot(m, "dataset");
        write_line(m, "data.eval",
                   write_word(m->a, data_address(m, k, source_text(m, k),
                                                 *slot_text(m, "test_split") ? slot_text(m, "test_split") : "test",
                                                 slot_text(m, "subset"))),
                   "%s; the split %s", write_source(m, k),
                   *slot_text(m, "test_split") ? slot_text(m, "test_split") : "test");
    } else if (share && slot_number(m, "eval_share", &x) && x > 0) {
        write_line(m, "data.eval", number_text(m->a, x), "%s: nrl holds out other rows", write_source(m, share));
    }
}

static void build_trained_tokens(migration *m)
{
    const source_key *k, *data = slot(m, "dataset");
    if (strcmp(m->method, "sft") && strcmp(m->method, "pt") && strcmp(m->method, "distill")) {
        static const char *const names[] = {"last_only", "train_on_prompt"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if ((k = slot(m, names[i])) && !k->is_default)
                write_remark(m, REMARK_SAME, k, "%s trains only the last answer of a row", m->method);
        return;
    }
    const char *kind = slot_text(m, "torchtune_data");
    const source_key *sets = slot(m, "axolotl_data");
    const nrl_node *first = sets ? nrl_node_at(sets->node, 0) : NULL;
    if (!strcmp(m->method, "pt") || strstr(kind, "text_completion") ||
        (first && !strncmp(text_at(m, first, "type"), "completion", 10))) {
        write_line(m, "data.train_on", "all", "every token of a text is trained");
    } else if (slot_is_true(m, "last_only")) {
        write_line(m, "data.train_on", "last", "%s", write_source(m, slot(m, "last_only")));
    } else if ((k = slot(m, "train_on_prompt")) != NULL) {
        write_line(m, "data.train_on", is_true(source_text(m, k)) ? "all" : "answer", "%s", write_source(m, k));
    } else if ((k = slot(m, "masking")) != NULL) {
        write_line(m, "data.train_on",
                   words_find(m->a, "train_on_all", source_text(m, k), NULL)    ? "all"
                   : words_find(m->a, "train_on_last", source_text(m, k), NULL) ? "last"
                                                                                : "answer",
                   "%s", write_source(m, k));
    } else if ((k = slot(m, "answers_only")) != NULL && is_true(source_text(m, k))) {
        write_line(m, "data.train_on", "answer", "%s", write_source(m, k));
    } else if ((k = slot(m, "completions_only")) != NULL) {
        write_line(m, "data.train_on", is_true(source_text(m, k)) ? "answer" : "all", "%s", write_source(m, k));
    } else if (strstr(kind, "alpaca")) {
        write_line(m, "data.train_on", "all", "default of %.60s", kind);
    } else if (!strcmp(m->method, "distill") && !strcmp(m->format->name, "trl")) {
        write_line(m, "data.train_on", "last", "what GKDTrainer does");
    } else if (!strncmp(m->format->name, "tr", 2)) { /* TRL: completions of prompts, else all */
        const char *text = data ? peek(m, source_text(m, data)) : "";
        bool answers = strstr(text, "\"completion\"") != NULL;
        write_line(m, "data.train_on", answers ? "answer" : "all", "default of %s for %s", m->format->title,
                   answers ? "rows with `completion`" : "rows with `messages` or `text`");
        if (!*text)
            write_remark(m, REMARK_ASSUMED, data,
                         "rows have `messages` or `text`, of which every token is trained; with "
                         "`completion` it is data.train_on: answer");
    }
}

static void build_template(migration *m)
{
    static const char words[] =
        "auto=auto|default=auto|tokenizer_default=auto|chatml=chatml|llama3=llama3|mistral=mistral|"
        "mistral_v1=mistral|plain=plain|"
        "tokenizer_default_fallback_chatml=auto";
    const source_key *k = slot(m, "template_text"), *word = slot(m, "template_word"), *file = slot(m, "template_file");
    const char *text = source_text(m, k), *value;
    if (k && (exists(text) || !strpbrk(text, "{\n"))) {
        file = k;
    } else if (k && m->out) {
        size_t stem = strlen(m->out) - (strrchr(m->out, '.') ? strlen(strrchr(m->out, '.')) : 0);
        const char *slash = strrchr(m->out, '/');
        const char *name = arena_printf(m->a, "%.*s.jinja", (int)stem, m->out);
        m->template_text = text;
        write_line(m, "data.template",
                   write_word(m->a, slash ? name + (slash - m->out) + 1 : arena_printf(m->a, "./%s", name)),
                   "%s: its text", k->path);
        return;
    } else if (k) {
        write_remark(m, REMARK_LOST, k, "the text of a template; with -o FILE.yaml it is written to FILE.jinja");
        return;
    }
    if (file) {
        write_line(m, "data.template",
                   write_word(m->a, strchr(source_text(m, file), '/')
                                        ? local_path(m, source_text(m, file))
                                        : arena_printf(m->a, "./%s", source_text(m, file))),
                   "%s", write_source(m, file));
    } else if (word && words_find(m->a, words, source_text(m, word), &value)) {
        write_line(m, "data.template", value, "%s", write_source(m, word));
    } else if (word && nrl_node_kind(word->node) != NRL_NODE_LIST && !strchr(source_text(m, word), '.')) {
        write_line(m, "data.template", "auto", "%s", write_source(m, word));
        write_remark(m, REMARK_ASSUMED, word,
                     "the chat template of the model's tokenizer is used; it may differ from the one of %s",
                     m->format->title);
    } else if (word) {
        write_remark(m, REMARK_LOST, word,
                     "data.template names a Jinja file, or one of auto, chatml, llama3, mistral, plain");
    }
}

/* What the model can take at most, by its config.json if that is here; else 4096. */
static double model_positions(migration *m)
{
    double x = 4096, found = model_number(m, "max_position_embeddings");
    return found >= 1 && found < x ? found : x;
}

/* Sets *length to data.max_length. */
static void build_length(migration *m, double *length)
{
    const source_key *k = slot(m, "max_length"), *how = slot(m, "overlong");
    bool drops = !strcmp(m->format->name, "axolotl") || !strcmp(m->format->name, "nemo-rl");
    const char *value = drops ? "drop" : "truncate";
    *length = 0;
    if (!slot_number(m, "max_length", length) && !strcmp(m->method, "grpo") && slot(m, "prompt_length")) {
        double completion = 0;
        slot_number(m, "prompt_length", length);
        slot_number(m, "completion_length", &completion);
        *length += completion;
        write_line(m, "data.max_length", number_text(m->a, *length), "%s; %s",
                   write_source(m, slot(m, "prompt_length")),
                   slot(m, "completion_length") ? write_source(m, slot(m, "completion_length")) : "");
        write_line(m, "data.overlong", "drop", "prompts that are too long lose their beginning there");
        return;
    }
    if (*length <= 0) {
        *length = model_positions(m);
        write_line(m, "data.max_length", number_text(m->a, *length),
                   "no limit is named, and nrl needs one: longer samples are an error");
        return;
    }
    write_line(m, "data.max_length", number_text(m->a, *length), "%s", write_source(m, k));
    if (how) words_find(m->a, "truncate=truncate|drop=drop|raise=error", source_text(m, how), &value);
    if (how)
        write_line(m, "data.overlong", value, "%s", write_source(m, how));
    else
        write_line(m, "data.overlong", value, "what %s does with longer samples", m->format->title);
}

static void build_packing(migration *m)
{
    const source_key *k = slot(m, "packing");
    if (!k) return;
    const char *text = source_text(m, k);
    bool on = is_true(text);
    if (!on && words_find(m->a, "false|no|off|0", text, NULL)) {
        write_remark(m, REMARK_SAME, k, "samples that are packed never see each other, so packing changes no numbers");
    } else if (on && m->format->by_last_part) {
        write_line(m, "data.packing", "true", "%s", write_source(m, k));
    } else {
        write_line(m, "data.packing", "true", "%s", write_source(m, k));
        write_remark(m, REMARK_LOST, k,
                     "a batch of %s then counts packed sequences, and train.global_batch counts samples: multiply it "
                     "by the samples of a sequence, which `nrl check` shows",
                     m->format->title);
    }
}

static void build_workers(migration *m)
{
    double n;
    if (slot_number(m, "workers", &n))
        write_line(m, "data.workers", n < 1 ? "1" : number_text(m->a, n > 1024 ? 1024 : n), "%s",
                   write_source(m, slot(m, "workers")));
}

/* ---- batch and length ---- */

/* Of CUDA_VISIBLE_DEVICES=0,1. */
static double visible_devices(const char *text)
{
    double n = *text ? 1 : 0;
    for (; *text; text++)
        n += *text == ',';
    return n;
}

static double positive(migration *m, const char *name, double otherwise)
{
    double x = 0;
    return slot_number(m, name, &x) && x >= 1 ? x : otherwise;
}

/* Ranks along the data axis, and where that is from. */
static double data_ranks(migration *m, const char **from)
{
    double devices = (double)m->devices, nodes = positive(m, "nodes", 1);
    const source_key *k = slot(m, "devices");
    *from = "";
    if (m->devices) {
        *from = arena_printf(m->a, " x %s devices (--devices)", number_text(m->a, devices));
        nodes = 1;
    } else if ((devices = positive(m, "devices", 0)) >= 1) {
        *from = arena_printf(m->a, " x %s", write_source(m, k));
        if (nodes > 1) *from = arena_printf(m->a, "%s x %s", *from, write_source(m, slot(m, "nodes")));
    } else if ((devices = visible_devices(slot_text(m, "visible"))) >= 1) {
        *from = arena_printf(m->a, " x %s", write_source(m, slot(m, "visible")));
    } else {
        devices = 1;
        if (!slot(m, "global_batch"))
            write_remark(m, REMARK_ASSUMED, NULL, "the batch is for 1 device; --devices N is for N");
    }
    double model_ranks = positive(m, engine_slot(m, "tensor"), 1) * positive(m, engine_slot(m, "pipeline"), 1) *
                         positive(m, engine_slot(m, "context"), 1);
    return devices * nodes / model_ranks < 1 ? 1 : floor(devices * nodes / model_ranks);
}

static void build_batch(migration *m, double max_length)
{
    const char *ranks_from;
    double per_device = positive(m, "per_device", 0), accumulation = positive(m, "accumulation", 1), whole = 0;
    double micro = positive(m, "micro_batch", per_device), ranks = data_ranks(m, &ranks_from);
    const bool is_grpo = !strcmp(m->method, "grpo");
    double group = is_grpo ? positive(m, "group_size", 8) : 1, completions = per_device * accumulation * ranks;
    const source_key *p = slot(m, "per_device"), *a = slot(m, "accumulation"), *g = slot(m, "global_batch");
    if (slot_number(m, "prompts_per_step", &whole)) {
        double updates = 0;
        write_line(m, "train.global_batch", number_text(m->a, whole), "%s",
                   write_source(m, slot(m, "prompts_per_step")));
        if (g && slot_number(m, "global_batch", &updates) && updates != whole * group)
            write_remark(m, REMARK_LOST, g, "each completion is used for one update, with all others of its step");
    } else if (is_grpo && per_device) {
        write_line(m, "train.global_batch", number_text(m->a, ceil(completions / group)),
                   "%s%s%s%s: %s completions, of which %s belong to a prompt", write_source(m, p), a ? " x " : "",
                   a ? write_source(m, a) : "", ranks_from, number_text(m->a, completions), number_text(m->a, group));
        if (fmod(completions, group) != 0)
            write_remark(m, REMARK_LOST, p, "the batch is no multiple of the completions of a prompt");
    } else if (g && slot_number(m, "global_batch", &whole)) {
        write_line(m, "train.global_batch", number_text(m->a, whole), "%s", write_source(m, g));
        if (!micro && a) micro = floor(whole / accumulation / ranks);
    } else if (per_device) {
        write_line(m, "train.global_batch", number_text(m->a, per_device * accumulation * ranks), "%s%s%s%s",
                   write_source(m, p), a ? " x " : "", a ? write_source(m, a) : "", ranks_from);
    } else {
        write_remark(m, REMARK_LOST, NULL, "the batch size is not given; train.global_batch is 8 by default");
    }
    const source_key *packed = slot_is_true(m, "pack_enabled") ? slot(m, "pack_tokens") : NULL;
    double tokens = 0;
    if (packed && slot_number(m, "pack_tokens", &tokens)) {
        write_line(m, "train.micro_batch_tokens", number_text(m->a, tokens), "%s", write_source(m, packed));
    } else if (micro >= 1 && micro * max_length <= INT32_MAX) {
        bool pairs = is_pairwise(m) || !strcmp(m->method, "reward");
        write_line(m, "train.micro_batch_tokens", number_text(m->a, micro * max_length * (pairs ? 2 : 1)),
                   "%s sample%s%s x data.max_length: bounds memory, changes no numbers", number_text(m->a, micro),
                   micro == 1 ? "" : "s", pairs ? " x 2 answers" : "");
    }
}

static void build_steps(migration *m)
{
    double steps = 0, epochs = 0, per_epoch = 0;
    const source_key *s = slot(m, "steps"), *e = slot(m, "epochs");
    slot_number(m, "steps", &steps);
    slot_number(m, "epochs", &epochs);
    if (slot_number(m, "steps_per_epoch", &per_epoch) && per_epoch > 0 && epochs >= 1) {
        write_line(m, "train.steps", number_text(m->a, per_epoch * epochs), "%s x %s",
                   write_source(m, slot(m, "steps_per_epoch")), write_source(m, e));
        if (epochs > 1)
            write_remark(m, REMARK_LOST, slot(m, "steps_per_epoch"),
                         "an epoch of nrl has all rows: %s passes begin with the same ones there",
                         number_text(m->a, epochs));
    } else if (steps > 0) {
        write_line(m, "train.steps", number_text(m->a, steps), "%s", write_source(m, s));
        if (e && !e->is_default && !strcmp(m->format->name, "nemo-rl"))
            write_remark(m, REMARK_ASSUMED, e, "the data have as many batches as there are steps");
        else if (e && !e->is_default)
            write_remark(m, REMARK_SAME, e, "the number of steps decides");
    } else if (epochs > 0) {
        write_line(m, "train.epochs", number_text(m->a, ceil(epochs)), "%s", write_source(m, e));
        if (epochs != floor(epochs))
            write_remark(m, REMARK_LOST, e,
                         "train.epochs is a whole number; train.steps is the number of steps that this share has");
    } else {
        write_remark(m, REMARK_LOST, NULL,
                     "the length of the training is not given; train.steps or train.epochs is required");
    }
}

/* ---- precision, optimizer, schedule ---- */

static const char precision_words[] = "bf16=bf16|bfloat16=bf16|torch.bfloat16=bf16|bf16-mixed=bf16|bf16-true=bf16|fp16="
                                      "fp16|float16=fp16|torch.float16=fp16|"
                                      "16=fp16|16-mixed=fp16|half=fp16|fp32=fp32|float32=fp32|torch.float32=fp32|32="
                                      "fp32|32-true=fp32|full=fp32|no=fp32|none=fp32|fp8=fp8";

static void build_precision(migration *m)
{
    const source_key *bf16 = slot(m, "bf16"), *fp16 = slot(m, "fp16"), *dtype = slot(m, "dtype"),
                     *load = slot(m, "load_dtype");
    const char *value = "fp32";
    if (fp16 && is_true(source_text(m, fp16))) {
        write_line(m, "train.precision", "fp16", "%s", write_source(m, fp16));
    } else if (bf16 && words_find(m->a, "true|auto|full|1|yes", source_text(m, bf16), NULL) &&
               !(bf16->is_default && fp16)) {
        write_line(m, "train.precision", "bf16", "%s", write_source(m, bf16));
    } else if (dtype && words_find(m->a, precision_words, source_text(m, dtype), &value)) {
        write_line(m, "train.precision", value, "%s", write_source(m, dtype));
    } else if (dtype && !words_find(m->a, "true|false|auto", source_text(m, dtype), NULL)) {
        write_remark(m, REMARK_LOST, dtype, "train.precision is fp32, bf16, fp16 or fp8");
    } else if (load && words_find(m->a, precision_words, source_text(m, load), &value) && strcmp(value, "fp32")) {
        write_line(m, "train.precision", value, "%s", write_source(m, load));
        write_remark(m, REMARK_ASSUMED, load, "master weights are fp32 here, and have that type there");
    }
}

static const char optimizer_words[] =
    "adamw=adamw|adamw_torch=adamw|adamw_torch_fused=adamw|adamw_hf=adamw|adamw_apex_fused=adamw|paged_adamw=adamw|"
    "paged_adamw_32bit=adamw|adamw_bnb_32bit=adamw|torch.optim.AdamW=adamw|fused_adamw=adamw|adamw_8bit=adamw8bit|"
    "adamw_bnb_8bit=adamw8bit|adamw_torch_8bit=adamw8bit|paged_adamw_8bit=adamw8bit|adamw8bit=adamw8bit|"
    "bitsandbytes.optim.AdamW8bit=adamw8bit|bitsandbytes.optim.PagedAdamW8bit=adamw8bit|bitsandbytes.optim.PagedAdamW="
    "adamw|"
    "bitsandbytes.optim.AdamW=adamw|adafactor=adafactor|torch.optim.Adafactor=adafactor|lion=lion|lion_32bit=lion|"
    "paged_lion_32bit=lion|sgd=sgd|torch.optim.SGD=sgd|muon=muon|adam=adam|torch.optim.Adam=adam|"
    "lion_8bit=lion8|paged_lion_8bit=lion8";

static const char *build_optimizer_name(migration *m)
{
    const source_key *k = slot(m, "optimizer");
    const char *name = "adamw", *text = source_text(m, k);
    double decay = 0;
    source_number(source_text(m, source_find(m, "weight_decay")), &decay);
    if (slot_is_true(m, "muon")) {
        write_line(m, "optimizer.name", "muon", "%s", write_source(m, slot(m, "muon")));
        return "muon";
    }
    if (!k) {
        write_line(m, "optimizer.name", "adamw", "default of %s", m->format->title);
        return name;
    }
    if (!words_find(m->a, optimizer_words, text, &name)) {
        name = "adamw";
        write_remark(m, REMARK_LOST, k, "no such optimizer; `nrl describe optimizers` lists those of nrl");
    } else if (!strcmp(name, "adam")) {
        name = "adamw";
        if (decay > 0) write_remark(m, REMARK_LOST, k, "adamw decays weights apart from the gradient");
    } else if (!strcmp(name, "lion8")) {
        name = "lion";
        write_remark(m, REMARK_LOST, k, "the moments of lion are fp32");
    } else if (!strcmp(name, "adafactor") && strncmp(text, "torch", 5)) {
        write_remark(m, REMARK_LOST, k, "adafactor has the update of PyTorch, which differs from that of transformers");
    }
    write_line(m, "optimizer.name", name, "%s", write_source(m, k));
    return name;
}

static void build_optimizer(migration *m)
{
    const char *name = build_optimizer_name(m);
    const source_key *b1 = slot(m, engine_slot(m, "beta1")), *b2 = slot(m, engine_slot(m, "beta2")),
                     *list = slot_is_true(m, "megatron") ? NULL : slot(m, "betas");
    bool adam = !strncmp(name, "adamw", 5), lion = !strcmp(name, "lion");
    double first = 0.9, second = 0.999;
    if (!strcmp(name, "sgd") && !write_has(m, "optimizer.momentum"))
        write_line(m, "optimizer.momentum", "0", "default of PyTorch");
    slot_number(m, engine_slot(m, "beta1"), &first);
    slot_number(m, engine_slot(m, "beta2"), &second);
    const bool muon = !strcmp(name, "muon");
    const char *betas = muon ? "optimizer.adamw_betas" : "optimizer.betas";
    if (list && (adam || lion || muon))
        write_line(m, betas, list_text(m, list->node), "%s", write_source(m, list));
    else if ((b1 || b2 || lion) && (adam || lion || muon))
        write_line(m, betas, arena_printf(m->a, "[%s, %s]", number_text(m->a, first), number_text(m->a, second)),
                   "%s%s%s", b1 ? write_source(m, b1) : "",
                   b1 && b2   ? "; "
                   : b1 || b2 ? ""
                              : "default of transformers",
                   b2 ? write_source(m, b2) : "");
    if (adam || muon) build_slot_number(m, engine_slot(m, "eps"), muon ? "optimizer.adamw_eps" : "optimizer.eps");
    build_slot_number(m, engine_slot(m, "lr"), "optimizer.lr");
    build_slot_number(m, engine_slot(m, "decay"), "optimizer.weight_decay");
    if (!write_has(m, "optimizer.lr"))
        write_remark(m, REMARK_LOST, NULL, "the learning rate is not given; optimizer.lr is required");
}

static const char schedule_words[] =
    "linear=linear|cosine=cosine|cosine_with_restarts=cosine_with_restarts|polynomial=polynomial|constant=constant|"
    "constant_with_warmup=constant_with_warmup|inverse_sqrt=inverse_sqrt|cosine_with_min_lr=cosine_with_min_lr|"
    "warmup_stable_decay=warmup_stable_decay|wsd=warmup_stable_decay|cosine_with_warmup=cosine|linear_with_warmup="
    "linear|"
    "get_cosine_schedule_with_warmup=cosine|none=constant|cosineannealinglr=cosine|warmup_cosine=cosine|warmup_linear="
    "linear";

/* LinearLR and ConstantLR of PyTorch, one after the other, as NeMo RL lists them. */
static void build_nemo_schedule(migration *m, const source_key *k)
{
    const char *name = "constant", *warmup = "", *minimum = "";
    double start = 0;
    bool is_list = nrl_node_kind(k->node) == NRL_NODE_LIST;
    for (size_t i = 0; i < (is_list ? nrl_node_size(k->node) : 0); i++) {
        const nrl_node *n = nrl_node_at(k->node, i);
        const char *what = text_at(m, n, "name");
        const nrl_node *options = nrl_node_kind(n) == NRL_NODE_MAP ? nrl_node_find(n, "kwargs") : NULL;
        if (strstr(what, "LinearLR")) {
            name = "constant_with_warmup";
            warmup = text_at(m, options, "total_iters");
            source_number(text_at(m, options, "start_factor"), &start);
        } else if (strstr(what, "CosineAnnealingLR")) {
            minimum = text_at(m, options, "eta_min");
            name = *minimum ? "cosine_with_min_lr" : "cosine";
        } else if (*what && !strstr(what, "ConstantLR")) {
            write_remark(m, REMARK_LOST, k, "no schedule like %.60s; `nrl describe schedule` lists those of nrl", what);
        }
    }
    write_line(m, "schedule.name", name, "%s", write_source(m, k));
    if (*warmup) write_line(m, "schedule.warmup_steps", warmup, "total_iters of LinearLR");
    if (*minimum) write_line(m, "schedule.min_lr", minimum, "eta_min of CosineAnnealingLR");
    if (start > 0)
        write_remark(m, REMARK_LOST, k, "a warm-up of nrl starts at 0, and that one at start_factor %g", start);
}

/* The scheduler of Megatron, which falls to min_lr and warms up in whole steps. */
static void build_megatron_schedule(migration *m)
{
    const source_key *k = slot(m, "megatron_schedule"), *steps = slot(m, "megatron_warmup"),
                     *least = slot(m, "megatron_min_lr");
    const char *style = source_text(m, k), *name = NULL;
    double warmup = 0, minimum = 0;
    slot_number(m, "megatron_warmup", &warmup);
    slot_number(m, "megatron_min_lr", &minimum);
    if (!k) return;
    if (!words_find(m->a, "constant=constant|linear=linear|cosine=cosine", style, &name)) {
        write_remark(m, REMARK_LOST, k, "no such schedule; `nrl describe schedule` lists those of nrl");
        return;
    }
    if (!strcmp(name, "constant") && warmup > 0) name = "constant_with_warmup";
    if (!strcmp(name, "cosine") && minimum > 0) name = "cosine_with_min_lr";
    write_line(m, "schedule.name", name, "%s", write_source(m, k));
    if (warmup > 0) write_line(m, "schedule.warmup_steps", number_text(m->a, warmup), "%s", write_source(m, steps));
    if (!strcmp(name, "cosine_with_min_lr"))
        write_line(m, "schedule.min_lr", source_text(m, least), "%s", write_source(m, least));
    else if (!strcmp(name, "linear") && minimum > 0)
        write_remark(m, REMARK_LOST, least, "the schedule linear falls to 0");
}

static void build_schedule(migration *m)
{
    const source_key *k = slot(m, "schedule"), *steps = slot(m, "warmup_steps"), *ratio = slot(m, "warmup_ratio");
    const char *name = NULL, *text = source_text(m, k);
    double n = 0, share = 0;
    if (slot_is_true(m, "megatron")) {
        build_megatron_schedule(m);
        return;
    }
    if (slot(m, "nemo_schedule")) {
        build_nemo_schedule(m, slot(m, "nemo_schedule"));
        return;
    }
    const char *word = strrchr(text, '.') ? strrchr(text, '.') + 1 : text;
    if (k && !words_find(m->a, schedule_words, word, &name))
        write_remark(m, REMARK_LOST, k, "no such schedule; `nrl describe schedule` lists those of nrl");
    if (name && (write_has(m, "schedule.min_lr") || write_has(m, "schedule.min_lr_rate")) && !strcmp(name, "cosine"))
        name = "cosine_with_min_lr";
    slot_number(m, "warmup_steps", &n);
    slot_number(m, "warmup_ratio", &share);
    if (n > 0 && n < 1) { /* transformers 5 takes a share here */
        share = n;
        ratio = steps;
        n = 0;
    }
    if (name && !strcmp(name, "constant") && (n > 0 || share > 0)) {
        bool ignores = !strncmp(m->format->name, "tr", 2) || !strcmp(m->format->name, "llamafactory") ||
                       !strcmp(m->format->name, "axolotl");
        write_remark(m, REMARK_SAME, n > 0 ? steps : ratio,
                     ignores ? "the schedule constant has no warm-up there either; constant_with_warmup has"
                             : "it makes the schedule constant_with_warmup");
        if (ignores) n = share = 0;
        if (!ignores) name = "constant_with_warmup";
    }
    if (!name && !k && m->format->by_last_part) name = n > 0 || share > 0 ? "constant_with_warmup" : "constant";
    if (name) write_line(m, "schedule.name", name, "%s", k ? write_source(m, k) : "no schedule is named");
    if (n > 0)
        write_line(m, "schedule.warmup_steps", number_text(m->a, n), "%s", write_source(m, steps));
    else if (share > 0)
        write_line(m, "schedule.warmup_ratio", number_text(m->a, share), "%s", write_source(m, ratio));
}

/* ---- memory, strategies, devices ---- */

static void build_recompute(migration *m)
{
    const char *name = engine_slot(m, "recompute");
    const source_key *k = slot(m, name), *ratio = slot(m, "recompute_ratio"), *off = slot(m, "no_recompute");
    double x;
    if (ratio && slot_number(m, "recompute_ratio", &x)) {
        write_line(m, "train.activation_checkpointing",
                   x >= 1   ? "all"
                   : x <= 0 ? "none"
                            : arena_printf(m->a, "{ratio: %s}", number_text(m->a, x)),
                   "%s", write_source(m, ratio));
    } else if (k && words_find(m->a, "true|yes|on|1|full|all|unsloth", source_text(m, k), NULL)) {
        write_line(m, "train.activation_checkpointing", "all", "%s", write_source(m, k));
    } else if (off && !is_true(source_text(m, off))) {
        write_line(m, "train.activation_checkpointing", "all", "%s", write_source(m, off));
    } else if (k && words_find(m->a, "selective|offload", source_text(m, k), NULL)) {
        write_line(m, "train.activation_checkpointing", "all", "%s", write_source(m, k));
    }
}

/* The options of fsdp for a word of FSDP; NULL = not sharded. */
static const char *shard_of(const char *text)
{
    if (strcasestr(text, "no_shard") || !strcmp(text, "3")) return NULL;
    if (strcasestr(text, "hybrid") || !strcmp(text, "4")) return "{name: fsdp, hybrid: true}";
    if (strcasestr(text, "grad_op") || !strcmp(text, "2")) return "{name: fsdp, shard: grads}";
    return "fsdp";
}

static const char *zero_of(double stage)
{
    return stage >= 3   ? "fsdp"
           : stage >= 2 ? "{name: fsdp, shard: grads}"
           : stage >= 1 ? "{name: fsdp, shard: optimizer}"
                        : "ddp";
}

/* The stage of a config of DeepSpeed: of the file if it is here, else by its name. */
static double deepspeed_stage(migration *m, const char *path)
{
    nrl_node *root = NULL;
    if (json_read_file(m->a, path, MAX_INFO, &root) == NRL_OK && nrl_node_kind(root) == NRL_NODE_MAP) {
        double stage = 0;
        const nrl_node *zero = nrl_node_find(root, "zero_optimization");
        const nrl_node *optimizer =
            nrl_node_kind(zero) == NRL_NODE_MAP ? nrl_node_find(zero, "offload_optimizer") : NULL;
        const char *device = text_at(m, optimizer, "device");
        if (!strcmp(device, "cpu") || !strcmp(device, "nvme"))
            write_line(m, "train.offload", !strcmp(device, "cpu") ? "{optimizer: host}" : "{optimizer: disk}",
                       "%s: offload_optimizer.device: %s", path, device);
        source_number(text_at(m, zero, "stage"), &stage);
        return stage;
    }
    const char *at = strcasestr(path, "zero"), *z = strcasestr(path, "z");
    for (const char *s = at ? at : z; s && *s; s++)
        if (isdigit((unsigned char)*s)) return *s - '0';
    return 3;
}

/* The schedule of stages: its name, or that each rank has several stages, as Megatron says it. */
static const char *stage_options(migration *m, const source_key **from)
{
    static const char words[] =
        "1f1b=1f1b|schedule1f1b=1f1b|gpipe=gpipe|schedulegpipe=gpipe|interleaved=interleaved|interleaved1f1b="
        "interleaved|"
        "scheduleinterleaved1f1b=interleaved|interleaved_1f1b=interleaved|zero_bubble=zero_bubble|zerobubble=zero_"
        "bubble|"
        "zb=zero_bubble|zb_h1=zero_bubble|interleavedzerobubble=zero_bubble|scheduleinterleavedzerobubble=zero_bubble";
    const source_key *stages = slot(m, engine_slot(m, "stages")), *named = slot(m, "pipeline_schedule");
    const double n = positive(m, engine_slot(m, "stages"), 1);
    const char *word = NULL;
    if (n > 1) {
        *from = stages;
        return arena_printf(m->a, ", schedule: interleaved, stages_per_rank: %s", number_text(m->a, n));
    }
    if (!named) return "";
    if (!words_find(m->a, words, source_text(m, named), &word)) {
        write_remark(m, REMARK_SAME, named,
                     "no such schedule; parallel.pipeline has 1f1b, gpipe, interleaved and zero_bubble");
        return "";
    }
    *from = named;
    return arena_printf(m->a, ", schedule: %s", word);
}

/* The axes along which ranks divide a model and its sequences. */
static void build_model_axes(migration *m)
{
    const char *tensor = engine_slot(m, "tensor"), *pipeline = engine_slot(m, "pipeline"),
               *context = engine_slot(m, "context"), *experts = engine_slot(m, "experts");
    const source_key *sequence = slot(m, engine_slot(m, "sequence")), *more = NULL;
    double size = positive(m, tensor, 1);
    const bool by_tokens = sequence && is_true(source_text(m, sequence));
    if (size > 1 && by_tokens)
        write_line(m, "parallel.tensor", arena_printf(m->a, "{size: %s, sequence: true}", number_text(m->a, size)),
                   "%s; %s", write_source(m, slot(m, tensor)), write_source(m, sequence));
    else if (size > 1)
        write_line(m, "parallel.tensor", number_text(m->a, size), "%s", write_source(m, slot(m, tensor)));
    else if (by_tokens)
        write_remark(m, REMARK_SAME, sequence, "it divides norms and residuals among the ranks of parallel.tensor");
    size = positive(m, pipeline, 1);
    const char *options = size > 1 ? stage_options(m, &more) : "";
    if (size > 1)
        write_line(m, "parallel.pipeline",
                   more ? arena_printf(m->a, "{size: %s%s}", number_text(m->a, size), options)
                        : number_text(m->a, size),
                   "%s%s%s", write_source(m, slot(m, pipeline)), more ? "; " : "", more ? write_source(m, more) : "");
    size = positive(m, context, 1);
    if (size > 1) write_line(m, "parallel.context", number_text(m->a, size), "%s", write_source(m, slot(m, context)));
    /* Elsewhere too, ranks with parts of the experts have batches of their own: they count as data ranks. */
    size = positive(m, experts, 1);
    if (size > 1) write_line(m, "parallel.experts", number_text(m->a, size), "%s", write_source(m, slot(m, experts)));
}

static void build_strategy(migration *m)
{
    static const char words[] =
        "ddp=ddp|dp=ddp|data_parallel=ddp|multi_gpu=ddp|fsdp=fsdp|fsdp2=fsdp|full_shard=fsdp|zero3=fsdp|"
        "deepspeed=fsdp|zero=fsdp|zero2={name: fsdp, shard: grads}|deepspeed_zero2={name: fsdp, shard: grads}|"
        "deepspeed_zero3=fsdp|zero1={name: fsdp, shard: optimizer}|none=|single=|no=|auto=|tensor_parallel=|pipeline=";
    const source_key *fsdp = slot(m, "fsdp"), *zero = slot(m, "zero_stage"), *ds = slot(m, "deepspeed"),
                     *any = slot(m, "strategy");
    const source_key *type = slot(m, "distributed_type"), *why = NULL, *script = slot(m, "script");
    const char *value = NULL;
    double stage = 0, size;
    if (fsdp && !words_find(m->a, "false|0", source_text(m, fsdp), NULL)) {
        const char *text = nrl_node_kind(fsdp->node) == NRL_NODE_LIST ? list_text(m, fsdp->node) : source_text(m, fsdp);
        why = fsdp;
        value = shard_of(text);
        if (!value) value = "ddp";
    } else if (slot(m, "fsdp_version")) {
        why = slot(m, "fsdp_version");
        value = "fsdp";
    } else if (zero && slot_number(m, "zero_stage", &stage)) {
        why = zero;
        value = zero_of(stage);
    } else if (ds && !words_find(m->a, "false", source_text(m, ds), NULL)) {
        why = ds;
        value = zero_of(deepspeed_stage(m, source_text(m, ds)));
    } else if (any && words_find(m->a, words, source_text(m, any), &value)) {
        why = any;
    } else if (any) {
        write_remark(m, REMARK_ASSUMED, any,
                     "no such strategy; several ranks train with ddp unless `parallel` says otherwise");
    } else if (type && strcasestr(source_text(m, type), "fsdp")) {
        why = type;
        value = "fsdp";
    } else if (!strcmp(m->format->name, "torchtune") && strstr(source_text(m, script), "distributed")) {
        why = script;
        value = "fsdp";
    } else if (slot_is_true(m, "dtensor") && data_ranks(m, &(const char *){NULL}) > 1) {
        why = slot(m, "dtensor");
        value = "fsdp";
    }
    if (why && slot(m, "reshard") && !slot_is_true(m, "reshard") && value && !strcmp(value, "fsdp") &&
        words_find(m->a, "false|no|0|shard_grad_op", slot_text(m, "reshard"), NULL))
        value = "{name: fsdp, shard: grads}";
    if (slot_number(m, "bucket_mb", &size) && (!value || !strcmp(value, "ddp"))) {
        why = slot(m, "bucket_mb");
        value = arena_printf(m->a, "{name: ddp, bucket_cap_mb: %s}", number_text(m->a, size));
    }
    if (value && *value) write_line(m, "parallel.data", value, "%s", write_source(m, why));
    build_model_axes(m);
    const char *device = slot_text(m, "device");
    if (slot_is_true(m, "cpu")) write_line(m, "backend", "cpu", "%s", write_source(m, slot(m, "cpu")));
    if (!strncmp(device, "cuda", 4) || !strcmp(device, "cpu"))
        write_line(m, "backend", !strncmp(device, "cuda", 4) ? "auto" : "cpu", "%s%s",
                   write_source(m, slot(m, "device")),
                   *device == 'c' && device[1] == 'u' ? "; cuda where there is one" : "");
    else if (*device && strcmp(device, "auto"))
        write_remark(m, REMARK_ASSUMED, slot(m, "device"), "backend: auto is used");
}

/* ---- evaluation, checkpoints, records ---- */

static void build_eval(migration *m)
{
    const source_key *how = slot(m, "eval_strategy"), *k = slot(m, "eval_steps"),
                     *per_epoch = slot(m, "evals_per_epoch");
    const char *word = source_text(m, how);
    double every = 0, steps = 0;
    bool ratio, by_steps = how ? !strcmp(word, "steps") : !strcmp(m->format->name, "axolotl") && k;
    build_slot_number(m, "eval_every", "eval.every");
    if (how && !strcmp(word, "epoch"))
        write_remark(m, REMARK_SAME, how, "eval.every counts steps; `nrl check` shows the steps of an epoch");
    else if (per_epoch)
        write_remark(m, REMARK_SAME, per_epoch, "eval.every counts steps; `nrl check` shows the steps of an epoch");
    else if (k && !by_steps)
        write_remark(m, REMARK_SAME, k, "without eval_strategy: steps there is no evaluation");
    if (!by_steps) return;
    if (!slot_number(m, "eval_steps", &every) && !slot_number(m, "log_every", &every)) every = 500;
    ratio = every > 0 && every < 1;
    if (ratio && slot_number(m, "steps", &steps) && steps > 0) every = ceil(every * steps);
    if (!write_has(m, "data.eval"))
        write_remark(
            m, REMARK_ASSUMED, how,
            "the evaluation data are a split of the data set: name its files in data.eval, and set eval.every");
    else if (every >= 1)
        write_line(m, "eval.every", number_text(m->a, every), "%s%s%s", how ? write_source(m, how) : "",
                   how && k ? "; " : "", k ? write_source(m, k) : "");
    else
        write_remark(m, REMARK_SAME, k, "eval.every counts steps; `nrl check` shows the steps of the run");
}

static void build_saves(migration *m)
{
    const source_key *how = slot(m, "save_strategy"), *k = slot(m, "save_steps"),
                     *per_epoch = slot(m, "saves_per_epoch");
    const source_key *enabled = slot(m, "saves");
    const char *word = source_text(m, how);
    double every = 0, total = 0;
    if ((how && words_find(m->a, "no|false", word, NULL)) || (enabled && !is_true(source_text(m, enabled)))) {
        write_line(m, "checkpoint.every", "0", "%s", write_source(m, how ? how : enabled));
    } else if ((how && strcmp(word, "steps")) || per_epoch) {
        write_remark(m, REMARK_SAME, how ? how : per_epoch,
                     "checkpoint.every counts steps; `nrl check` shows the steps of an epoch");
    } else if (slot_number(m, "save_steps", &every)) {
        if (every > 0 && every < 1 && slot_number(m, "steps", &total) && total > 0) every = ceil(every * total);
        if (every >= 1)
            write_line(m, "checkpoint.every", number_text(m->a, every), "%s", write_source(m, k));
        else
            write_remark(m, REMARK_SAME, k, "checkpoint.every counts steps; `nrl check` shows the steps of the run");
    }
    if (slot_is_true(m, "export_best"))
        write_line(m, "checkpoint.export", "best", "%s", write_source(m, slot(m, "export_best")));
    k = slot(m, "metric");
    if (k && (strstr(source_text(m, k), "eval_loss") || strstr(source_text(m, k), "val_loss") ||
              strstr(source_text(m, k), "default_loss") || !strcmp(source_text(m, k), "loss")))
        write_line(m, "checkpoint.metric", "eval_loss", "%s", write_source(m, k));
    else if (k && !strcmp(m->method, "grpo") &&
             (strstr(source_text(m, k), "reward") || strstr(source_text(m, k), "accuracy")))
        write_remark(m, REMARK_SAME, k, "checkpoint.metric: auto is eval_reward");
    else if (k)
        write_remark(m, REMARK_ASSUMED, k,
                     "checkpoint.metric: auto is %s; `nrl describe checkpoint` and the algorithm name others",
                     !strcmp(m->method, "grpo") ? "eval_reward" : "eval_loss");
    if (!write_has(m, "data.eval"))
        for (size_t i = 0; i < m->n_lines; i++) /* best of nothing */
            if (!strcmp(m->lines[i].key, "checkpoint.export"))
                write_remark(m, REMARK_ASSUMED, slot(m, "export_best"),
                             "the best evaluation needs data.eval and eval.every");
    k = slot(m, "resume");
    if (k && is_true(source_text(m, k)))
        write_line(m, "resume", "auto", "%s", write_source(m, k));
    else if (k && !words_find(m->a, "false|no|0", source_text(m, k), NULL))
        write_remark(m, REMARK_LOST, k, "checkpoints of %s are not continued; `nrl import` reads weights",
                     m->format->title);
    k = slot(m, "out");
    if (k) write_line(m, "out", write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
    k = slot(m, "run_name");
    if (k) write_line(m, "name", write_word(m->a, source_text(m, k)), "%s", write_source(m, k));
    if (!write_has(m, "out")) write_line(m, "out", "runs/migrated", "no directory is named");
}

static bool reports_to(migration *m, const char *name)
{
    const source_key *k = slot(m, "report_to");
    if (!k) return false;
    if (nrl_node_kind(k->node) != NRL_NODE_LIST)
        return strstr(source_text(m, k), name) || !strcmp(source_text(m, k), "all");
    for (size_t i = 0; i < nrl_node_size(k->node); i++)
        if (!strcmp(source_node_text(m->a, nrl_node_at(k->node, i)), name)) return true;
    return false;
}

static const char *and_from(migration *m, const char *from, const char *name)
{
    const source_key *k = slot(m, name);
    return k ? arena_printf(m->a, "%s%s%s", from, *from ? "; " : "", write_source(m, k)) : from;
}

static void build_loggers(migration *m)
{
    const char *out = "console, jsonl", *metric = slot_text(m, "metric_logger"), *from = "";
    const char *project = slot_text(m, "wandb_project"), *entity = slot_text(m, "wandb_entity");
    static const char *const slots[] = {"log_every",       "no_progress",       "report_to",     "metric_logger",
                                        "use_tensorboard", "use_wandb",         "wandb_project", "wandb_entity",
                                        "use_mlflow",      "mlflow_experiment", "mlflow_url"};
    double every = 1;
    slot_number(m, "log_every", &every);
    bool quiet = slot_is_true(m, "no_progress");
    if (every < 1) every = 1;
    if (every > 1 || quiet)
        out =
            arena_printf(m->a, "{name: console%s%s}, jsonl",
                         every > 1 ? arena_printf(m->a, ", every: %.0f", every) : "", quiet ? ", progress: false" : "");
    bool off = *slot_text(m, "use_wandb") && !slot_is_true(m, "use_wandb");
    if (reports_to(m, "tensorboard") || slot_is_true(m, "use_tensorboard") || strstr(metric, "TensorBoard"))
        out = arena_printf(m->a, "%s, tensorboard", out);
    if (reports_to(m, "wandb") || slot_is_true(m, "use_wandb") ||
        (*project && !off && !m->format->by_last_part && !slot(m, "report_to") && !*metric) || strstr(metric, "WandB"))
        out = !*project && !*entity
                  ? arena_printf(m->a, "%s, wandb", out)
                  : arena_printf(m->a, "%s, {name: wandb%s%s%s%s}", out, *project ? ", project: " : "",
                                 *project ? write_word(m->a, project) : "", *entity ? ", entity: " : "",
                                 *entity ? write_word(m->a, entity) : "");
    if (reports_to(m, "mlflow") || slot_is_true(m, "use_mlflow"))
        out =
            arena_printf(m->a, "%s, {name: mlflow%s%s%s%s}", out, *slot_text(m, "mlflow_url") ? ", url: " : "",
                         *slot_text(m, "mlflow_url") ? write_word(m->a, slot_text(m, "mlflow_url")) : "",
                         *slot_text(m, "mlflow_experiment") ? ", experiment: " : "",
                         *slot_text(m, "mlflow_experiment") ? write_word(m->a, slot_text(m, "mlflow_experiment")) : "");
    if (strstr(metric, "Comet"))
        write_remark(m, REMARK_SAME, slot(m, "metric_logger"), "`nrl describe loggers` lists the loggers");
    if (!strcmp(out, "console, jsonl")) return; /* the default */
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        from = and_from(m, from, slots[i]);
    write_line(m, "loggers", arena_printf(m->a, "[%s]", out), "%s", from);
}

/* ---- all ---- */

nrl_status build_config(migration *m)
{
    double max_length = 0;
    find_method(m);
    add_defaults(m);
    apply_keys(m);
    compare_slots(m);
    build_model(m);
    build_adapter(m);
    build_train_data(m);
    build_streaming(m);
    build_eval_data(m);
    build_length(m, &max_length);
    build_template(m);
    build_trained_tokens(m);
    build_packing(m);
    build_workers(m);
    build_algorithm(m);
    build_steps(m);
    build_batch(m, max_length);
    build_precision(m);
    build_recompute(m);
    build_optimizer(m);
    build_schedule(m);
    build_strategy(m);
    build_eval(m);
    build_saves(m);
    build_loggers(m);
    return NRL_OK;
}
