/*
 * main.c - the program `nrl`: finds the verb, which is a function in this program or a program of its
 * own.
 */
#include "cli/verbs.h"
#include "base/other_names.h"
#include "base/suggest.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    cli_run_verb run;
} own_verbs[] = {
    {"run", cli_run},         {"check", cli_check},       {"launch", cli_launch},
    {"resume", cli_resume},   {"complete", cli_complete}, {"describe", cli_describe},
    {"plugins", cli_plugins}, {"env", cli_env},           {"version", cli_version},
};

static cli_run_verb find_own(const char *name)
{
    for (size_t i = 0; i < sizeof own_verbs / sizeof *own_verbs; i++)
        if (!strcmp(own_verbs[i].name, name)) return own_verbs[i].run;
    return NULL;
}

/* Verbs that `nrl help` lists by name alone, to fit a screen. */
static const char *const short_listed[] = {"cluster", "migrate", "profile", "tune", "plan",
                                           "import",  "upload",  "version", "watch"};

static bool is_short_listed(const char *verb)
{
    for (size_t i = 0; i < sizeof short_listed / sizeof *short_listed; i++)
        if (!strcmp(short_listed[i], verb)) return true;
    return false;
}

static void print_help(FILE *to)
{
    int width = 0;
    for (size_t i = 0; i < cli_n_verbs; i++)
        if ((int)strlen(cli_verbs[i].example) > width) width = (int)strlen(cli_verbs[i].example);
    fprintf(to, "nrl fine-tunes language models. Each command, with an example:\n");
    for (size_t i = 0; i < cli_n_verbs; i++)
        if (cli_verbs[i].summary && !is_short_listed(cli_verbs[i].name))
            fprintf(to, "  nrl %-*s  %s\n", width, cli_verbs[i].example, cli_verbs[i].summary);
    fprintf(to, "  and nrl");
    for (size_t i = 0; i < sizeof short_listed / sizeof *short_listed; i++)
        fprintf(to, "%s %s", i ? "," : "", short_listed[i]);
    fprintf(to, "\n");
    arena a = {0};
    const char **names;
    size_t n = programs_list(&a, &names);
    if (n) fprintf(to, "\nnrl-VERB on PATH:");
    for (size_t i = 0; i < n; i++)
        fprintf(to, " %s", names[i]);
    if (n) fprintf(to, "\n");
    arena_free(&a);
    fprintf(to, "\n"
                "key=value sets an option, see `nrl describe`. `nrl VERB --help` lists arguments.\n"
                "Exit codes: 0 success, 1 failure, 2 usage or config, 3 diverged, 4 rank lost,\n"
                "5 damaged checkpoint, 6 memory, 7 disk full, 65 data or model, 75, 130 stopped\n");
}

static nrl_status unknown_verb(const char *name)
{
    arena a = {0};
    const char **names;
    suggestion near = {.word = name};
    for (size_t i = 0; i < cli_n_verbs; i++)
        suggest_offer(&near, cli_verbs[i].name);
    size_t n = programs_list(&a, &names);
    for (size_t i = 0; i < n; i++)
        suggest_offer(&near, names[i]);
    nrl_status st;
    const char *known = other_names_find(&a, cli_exe_dir(&a), arena_printf(&a, "verb=%s", name), NULL);
    if (known)
        st = nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; %s", name, known);
    else if (near.best)
        st = nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; did you mean '%s'?", name, near.best);
    else if (strchr(name, '.'))
        st = nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; did you mean `nrl run %s`?", name, name);
    else
        st = nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'\nhint: `nrl help` lists the verbs", name);
    arena_free(&a);
    return st;
}

/* Runs before anything of the process is changed, because the program inherits the process. */
static nrl_status run_program(const char *name, char **argv)
{
    nrl_status st = programs_exec(name, argv);
    return st == NRL_ERR_CONFIG && !cli_find_verb(name) ? unknown_verb(name) : st;
}

int main(int argc, char **argv)
{
    if (!cli_reserve_descriptors()) {
        perror("error: standard input, output and error");
        return 1;
    }
    cli_prepare(&argc, argv);
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    bool asks_help = cli_is_help(argv[1]);
    if (asks_help && argc == 2) {
        signals_let_writes_fail();
        print_help(stdout);
        return cli_finish(NRL_OK);
    }
    const char *name = !strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") ? "version" : argv[asks_help ? 2 : 1];
    asks_help = asks_help || (argc > 2 && cli_is_help(argv[2]) && *argv[2] == '-');
    for (int i = 3; i < argc && strcmp(argv[i], "--"); i++) /* nrl run FILE --help; what follows "--" is another's */
        asks_help |= !strcmp(argv[i], "--help");
    cli_run_verb own = find_own(name);
    const cli_verb *v = cli_find_verb(name);
    if (asks_help && v) {
        signals_let_writes_fail();
        cli_print_verb_help(v);
        return cli_finish(NRL_OK);
    }
    if (own) {
        signals_let_writes_fail();
        return cli_finish(own(argc - 1, argv + 1));
    }
    if (!asks_help) return cli_finish(run_program(name, argv + 1));
    char help[] = "--help";
    return cli_finish(run_program(name, (char *[]){NULL, help, NULL}));
}
