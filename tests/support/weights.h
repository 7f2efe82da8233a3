/*
 * weights.h - weights on disk for tests: in any format that recognises a path, with the plugins of
 * $NRL_PLUGIN_PATH.
 */
#ifndef SUPPORT_WEIGHTS_H
#define SUPPORT_WEIGHTS_H
#include "model/save.h"
#include "run/weights/origin.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* One host for the whole process. */
static inline const format_scope *test_formats(void)
{
    static format_scope scope;
    if (!scope.host) scope.host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    return &scope;
}

static inline nrl_status test_weights_open(const char *dir, weight_files **out)
{
    NRL_TRY(weights_open(test_formats(), NRL_HOLDS_MODEL, dir, out));
    nrl_status st = weights_load(*out);
    if (st != NRL_OK) weights_close(*out);
    return st;
}

static inline nrl_status test_weights_config(const char *dir, arena *a, const nrl_node **out)
{
    weight_files *w;
    NRL_TRY(weights_open(test_formats(), NRL_HOLDS_MODEL, dir, &w));
    nrl_status st = weights_config(w, a, out);
    weights_close(w);
    return st;
}

/* model_save in the format of Hugging Face directories, or if adapter_base is set (maybe to "") in
 * that of peft. */
static inline nrl_status test_save(const char *dir, const model *m, weights_source source, void *user, save_options o)
{
    uint32_t holds = o.adapter_base ? NRL_HOLDS_ADAPTER : NRL_HOLDS_MODEL;
    if (o.adapter_base && !*o.adapter_base) o.adapter_base = NULL;
    NRL_TRY(format_for_writing(test_formats(), holds, NULL, &o.format));
    return model_save(dir, m, source, user, &o);
}

/* An adapter on disk. */
typedef struct {
    weight_files *w;
    arena a;
    adapter_set set;
} test_adapter;

static inline void test_adapter_close(test_adapter *t)
{
    adapter_set_close(&t->set);
    weights_close(t->w);
    arena_free(&t->a);
    *t = (test_adapter){0};
}

static inline nrl_status test_adapter_open(const char *dir, test_adapter *out)
{
    *out = (test_adapter){0};
    NRL_TRY(weights_open(test_formats(), NRL_HOLDS_ADAPTER, dir, &out->w));
    nrl_status st = weights_load(out->w);
    if (st == NRL_OK) st = origin_adapter_set(out->w, test_formats()->host, &out->a, &out->set);
    if (st != NRL_OK) test_adapter_close(out);
    return st;
}

/* model_adapt with settings of lora: JSON text of its modules. */
static inline nrl_status test_adapt(model *m, arena *a, const char *modules)
{
    nrl_node *settings;
    adapter_set set;
    const char *text = arena_printf(a, "{\"adapter\":\"lora\",\"modules\":[%s]}", modules);
    NRL_TRY(json_parse(a, "settings", text, strlen(text), &settings));
    NRL_TRY(adapter_set_open(a, test_formats()->host, settings, &set));
    nrl_status st = model_adapt(m, &set);
    adapter_set_close(&set);
    return st;
}

#endif
