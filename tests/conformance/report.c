/*
 * report.c - counting checks; options at their defaults.
 */
#include "report.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool report_check(conformance_report *r, bool holds, const char *rule, const char *fmt, ...)
{
    r->checked++;
    if (holds) return true;
    r->failed++;
    char text[1024];
    va_list a;
    va_start(a, fmt);
    vsnprintf(text, sizeof text, fmt, a);
    va_end(a);
    if (r->say) r->say(r->user, true, rule, text);
    return false;
}

void report_skip(conformance_report *r, const char *rule, const char *why)
{
    if (r->say) r->say(r->user, false, rule, why);
}

static const nrl_option *option_at(const nrl_plugin *p, uint32_t i)
{
    return (const nrl_option *)((const char *)p->options + (size_t)i * p->option_size);
}

/* Index of `text` in "a|b|c". */
static int64_t choice_index(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (int64_t i = 0; choices; i++) {
        if (strncmp(choices, text, n) == 0 && (choices[n] == '|' || choices[n] == 0)) return i;
        choices = strchr(choices, '|');
        if (choices) choices++;
    }
    return 0;
}

/* Writes `text` as the option's value. */
static bool set_option(const nrl_option *o, char *options, const char *text)
{
    void *at = options + o->offset;
    switch (o->type) {
    case NRL_TYPE_INT: *(int64_t *)at = strtoll(text, NULL, 10); return true;
    case NRL_TYPE_F64: *(double *)at = strtod(text, NULL); return true;
    case NRL_TYPE_BOOL: *(bool *)at = strcmp(text, "true") == 0; return true;
    case NRL_TYPE_ENUM: *(int64_t *)at = choice_index(o->choices, text); return true;
    case NRL_TYPE_STR:
    case NRL_TYPE_PATH: *(const char **)at = text; return true;
    case NRL_TYPE_NODE: return true; /* NULL: who reads a node knows what is usual */
    default: return false;
    }
}

/* The value of a setting "name=value" for this option; NULL = not set. */
static const char *setting_of(const conformance_report *r, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < r->n_settings; i++)
        if (strncmp(r->settings[i], name, n) == 0 && r->settings[i][n] == '=')
            return r->settings[i] + n + 1;
    return NULL;
}

void *plugin_options(conformance_report *r, const nrl_plugin *plugin)
{
    char *options = calloc(1, plugin->options_size ? plugin->options_size : 1);
    int used = 0;
    for (uint32_t i = 0; options && i < plugin->n_options; i++) {
        const nrl_option *o = option_at(plugin, i);
        const char *set = setting_of(r, o->name), *text = set ? set : o->initial;
        used += set != NULL;
        bool fine = text ? set_option(o, options, text) : o->type == NRL_TYPE_NODE;
        if (report_check(r, fine, "options have defaults", "option '%s' needs a value", o->name))
            continue;
        free(options);
        return NULL;
    }
    report_check(r, used == r->n_settings, "settings name options", "%d of %d are unknown",
                 r->n_settings - used, r->n_settings);
    return options;
}

bool set_int_option(const nrl_plugin *plugin, void *options, const char *name, int64_t value)
{
    for (uint32_t i = 0; i < plugin->n_options; i++) {
        const nrl_option *o = option_at(plugin, i);
        if (o->type != NRL_TYPE_INT || strcmp(o->name, name) != 0) continue;
        *(int64_t *)(void *)((char *)options + o->offset) = value;
        return true;
    }
    return false;
}
