/*
 * complete.c - `nrl complete WORD...`: what may follow on a command line, for the completions of shells (cli/data). The
 * last word is the one that is being typed, maybe empty. One candidate a line, and a description after a tab; keys of
 * the config end in '='. Nothing is printed where a file is expected.
 */
#include "cli/verbs.h"
#include "config/schema.h"
#include "optim/options.h"
#include "run/weights/reference.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    arena a;
    const char *word; /* what is being typed */
} completion;

/* Prints a candidate that begins as the word does. */
static void offer(const completion *c, const char *candidate, const char *about)
{
    if (strncmp(candidate, c->word, strlen(c->word))) return;
    cli_page("%s%s%.60s\n", candidate, about && *about ? "\t" : "", about ? about : "");
}

static bool is_any(const char *word, const char *const *of)
{
    for (; *of; of++)
        if (!strcmp(word, *of)) return true;
    return false;
}

/* ---- verbs and flags ---- */

static void offer_verbs(completion *c)
{
    const char **names;
    for (size_t i = 0; i < cli_n_verbs; i++)
        if (cli_verbs[i].summary) offer(c, cli_verbs[i].name, cli_verbs[i].summary);
    offer(c, "help", "the verbs, or the arguments of a verb");
    size_t n = programs_list(&c->a, &names);
    for (size_t i = 0; i < n; i++)
        offer(c, names[i], "a program on PATH");
}

/* The flags in the usage of a verb, and the words of "inspect DIR" and the like. */
static void offer_usage(completion *c, const cli_verb *v, bool is_second)
{
    const char *at = v->usage;
    char before = ' ';
    for (; *at; before = *at++) {
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");
        if (*at == '-' && n > 1 && strchr(" [|\n", before) && *c->word == '-')
            offer(c, arena_strndup(&c->a, at, n), NULL);
        else if (is_second && *at >= 'a' && *at <= 'z' && (at == v->usage || (at - v->usage > 4 && before == ' ')))
            for (const char *word = at; *word >= 'a' && *word <= 'z'; word += strspn(word, "|")) {
                size_t size = strspn(word, "abcdefghijklmnopqrstuvwxyz");
                const char *name = arena_strndup(&c->a, word, size);
                if (strcmp(name, "nrl") && strcmp(name, v->name) && !strchr("=.", word[size] ? word[size] : ' '))
                    offer(c, name, NULL);
                word += size;
                if (*word != '|') break;
            }
        if (n > 1) at += n - 1;
    }
    if (*c->word == '-') offer(c, "--help", "the arguments of this verb");
}

/* ---- keys and values of the config ---- */

typedef void (*take_option)(completion *c, const char *key, const nrl_option *row);

static void each_row(completion *c, take_option take, const char *section, const nrl_option *rows, size_t n,
                     size_t stride)
{
    for (size_t i = 0; i < n; i++) {
        const nrl_option *row = option_row(rows, i, stride);
        take(c, arena_printf(&c->a, "%s%s%s", section, *section ? "." : "", row->name), row);
    }
}

/* The section in which the config has the options of a plugin. */
static const char *section_of(completion *c, const listed_plugin *p)
{
    static const struct {
        uint32_t kind;
        const char *section;
    } sections[] = {{NRL_KIND_ALGORITHM, "algorithm"},   {NRL_KIND_OPTIMIZER, "optimizer"},
                    {NRL_KIND_BACKEND, "backend"},       {NRL_KIND_PARALLEL, "parallel"},
                    {NRL_KIND_COLLECTIVE, "collective"}, {NRL_KIND_STORE, "store"},
                    {NRL_KIND_SCHEDULE, "schedule"}};
    if (p->kind->kind == NRL_KIND_ADAPTER) return arena_strdup(&c->a, p->name);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (sections[i].kind == p->kind->kind) return sections[i].section;
    return NULL;
}

static void each_option(completion *c, take_option take, const listed_plugin *plugins, size_t n_plugins)
{
    size_t n;
    const config_section *s = config_sections(&n);
    for (size_t i = 0; i < n; i++)
        each_row(c, take, s[i].name, s[i].rows, s[i].n_rows, sizeof *s[i].rows);
    each_row(c, take, "algorithm", reference_rows, reference_n_rows, sizeof *reference_rows);
    each_row(c, take, "algorithm", teacher_rows, teacher_n_rows, sizeof *teacher_rows);
    each_row(c, take, "optimizer", optim_rows, optim_n_rows, sizeof *optim_rows);
    for (size_t i = 0; i < n_plugins; i++) {
        const char *section = plugins[i].problem || plugins[i].hidden_by ? NULL : section_of(c, &plugins[i]);
        if (section)
            each_row(c, take, section, plugins[i].about.options, plugins[i].about.n_options, sizeof(nrl_option));
    }
}

static void take_key(completion *c, const char *key, const nrl_option *row)
{
    offer(c, arena_printf(&c->a, "%s=", key), row->help);
}

/* "train.precision=b": the choices of the option. */
static void take_value(completion *c, const char *key, const nrl_option *row)
{
    size_t n = strlen(key);
    if (strncmp(c->word, key, n) || c->word[n] != '=') return;
    const char *choices = row->type == NRL_TYPE_BOOL ? "true|false" : row->type == NRL_TYPE_ENUM ? row->choices : "";
    for (const char *at = choices; *at; at += at[strcspn(at, "|")] ? strcspn(at, "|") + 1 : strcspn(at, "|"))
        offer(c, arena_printf(&c->a, "%s=%.*s", key, (int)strcspn(at, "|"), at), NULL);
}

static void offer_config(completion *c, const listed_plugin *plugins, size_t n)
{
    if (!strchr(c->word, '=')) {
        each_option(c, take_key, plugins, n);
        return;
    }
    each_option(c, take_value, plugins, n);
    for (size_t i = 0; i < n; i++) { /* optimizer=adamw */
        const char *section = plugins[i].problem ? NULL : section_of(c, &plugins[i]);
        if (plugins[i].kind->kind == NRL_KIND_ADAPTER) section = "adapter";
        if (section) offer(c, arena_printf(&c->a, "%s=%s", section, plugins[i].name), plugins[i].about.summary);
    }
}

static void offer_names(completion *c, const listed_plugin *plugins, size_t n)
{
    size_t n_sections;
    const config_section *s = config_sections(&n_sections);
    for (size_t i = 0; i < n_sections; i++)
        if (*s[i].name) offer(c, s[i].name, s[i].help);
    offer(c, "schedule", "the learning rate over time");
    offer(c, "formats", "row formats, and plugins for model files");
    for (size_t i = 0; i < n; i++)
        if (!plugins[i].problem) offer(c, plugins[i].name, plugins[i].about.summary);
}

nrl_status cli_complete(int argc, char **argv)
{
    static const char *const with_config[] = {"run",     "check", "resume", "eval",   "bench",
                                              "profile", "tune",  "plan",   "launch", NULL};
    completion c = {.word = argc > 1 ? argv[argc - 1] : ""};
    const char *verb = argc > 2 ? argv[1] : NULL;
    const cli_verb *v = verb ? cli_find_verb(verb) : NULL;
    if (!verb || (argc == 3 && !strcmp(verb, "help"))) {
        offer_verbs(&c);
    } else if (v && (*c.word == '-' || !is_any(verb, with_config))) {
        if (strcmp(verb, "describe") || *c.word == '-') offer_usage(&c, v, argc == 3);
    }
    bool is_describe = verb && !strcmp(verb, "describe"), is_config = verb && is_any(verb, with_config) && argc > 3;
    if ((is_describe || is_config) && *c.word != '-') {
        listed_plugin *plugins;
        plugin_host *host = verbs_plugin_host(&c.a);
        size_t n = verbs_plugin_list(host, &c.a, &plugins);
        if (is_describe)
            offer_names(&c, plugins, n);
        else
            offer_config(&c, plugins, n);
        plugin_host_destroy(host);
    }
    arena_free(&c.a);
    return NRL_OK;
}
