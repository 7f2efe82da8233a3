/*
 * plugin_options.c - fills a struct of options from rows and name=value arguments without checks:
 * for benchmarks only.
 */
#include "plugin_options.h"
#include <stdlib.h>
#include <string.h>

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
    case NRL_TYPE_INT:
        *(int64_t *)at = strtoll(text, NULL, 10);
        return true;
    case NRL_TYPE_F64:
        *(double *)at = strtod(text, NULL);
        return true;
    case NRL_TYPE_BOOL:
        *(bool *)at = strcmp(text, "true") == 0;
        return true;
    case NRL_TYPE_ENUM:
        *(int64_t *)at = choice_index(o->choices, text);
        return true;
    case NRL_TYPE_STR:
    case NRL_TYPE_PATH:
        *(const char **)at = text;
        return true;
    case NRL_TYPE_NODE:
        return true; /* NULL: who reads a node knows what is usual */
    default:
        return false;
    }
}

/* The value of a word "name=value" for this option; NULL = not set. */
static const char *word_of(const char *const *words, int n_words, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < n_words; i++)
        if (strncmp(words[i], name, n) == 0 && words[i][n] == '=') return words[i] + n + 1;
    return NULL;
}

void *plugin_options(const nrl_plugin *plugin, const char *const *words, int n_words)
{
    char *options = calloc(1, plugin->options_size ? plugin->options_size : 1);
    int used = 0;
    bool good = options != NULL;
    for (uint32_t i = 0; good && i < plugin->n_options; i++) {
        const nrl_option *o = option_at(plugin, i);
        const char *set = word_of(words, n_words, o->name), *text = set ? set : o->initial;
        used += set != NULL;
        good = text ? set_option(o, options, text) : o->type == NRL_TYPE_NODE;
    }
    if (good && used == n_words) return options;
    free(options);
    return NULL;
}
