/*
 * main.c - `nrl plugins test FILE`: does this plugin keep the rules of its kind?
 * The suite runs in child processes, as a plugin under test may crash; the report lies in memory
 * that all see.
 */
#include "base/json.h"
#include "cli/common/cli.h"
#include "plugin/host.h"
#include "config/config.h"
#include "conformance.h"
#include "mesh/store.h"
#include "report.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_MODEL_CONFIG = 1 << 20 };

typedef struct {
    arena a;
    plugin_host *host;
    const plugin *plugin;
    const plugin_kind *kind;
    conformance_setup setup;
    conformance_report *report;
    int ended_by; /* the signal that ended the suite; 0 = none */
} plugin_test;

/* ---- what to test, and on what ---- */

static nrl_status fill_options(plugin_test *t, const plugin *p, const char *section, int n_words, char **words,
                               const void **options)
{
    config_problems problems = {0};
    nrl_node *map = node_new(&t->a, NRL_NODE_MAP);
    void *filled;
    for (int i = 0; i < n_words; i++)
        config_override(&t->a, &problems, map, words[i]);
    const config_component c = {.name = p->name, .options = map};
    plugin_options(&t->a, &problems, section, &c, NULL, p, &filled);
    *options = filled;
    return problems_report(&problems);
}

static nrl_status open_backend(plugin_test *t, const char *name)
{
    const plugin *p;
    if (!(conformance_needs(t->kind->kind) & SUITE_NEEDS_BACKEND)) return NRL_OK;
    NRL_TRY(plugin_open(t->host, NRL_KIND_BACKEND, name, &p));
    t->setup.backend = (const void *)p->table;
    return fill_options(t, p, "backend", 0, NULL, &t->setup.backend_options);
}

/* What the ranks of a strategy talk through. */
static nrl_status open_collective(plugin_test *t, const char *name)
{
    const plugin *p;
    if (!(conformance_needs(t->kind->kind) & SUITE_NEEDS_COLLECTIVE)) return NRL_OK;
    NRL_TRY(plugin_open(t->host, NRL_KIND_COLLECTIVE, name, &p));
    t->setup.collective = (const void *)p->table;
    return fill_options(t, p, "collective", 0, NULL, &t->setup.collective_options);
}

/* Where the ranks of a suite meet. */
static nrl_status open_store(plugin_test *t)
{
    store_kind kind;
    if (!(conformance_needs(t->kind->kind) & SUITE_NEEDS_STORE)) return NRL_OK;
    NRL_TRY(store_find(t->host, &t->a, SUITE_STORE_ADDRESS, NULL, &kind));
    t->setup.store = kind.table;
    t->setup.store_options = kind.options;
    return NRL_OK;
}

static nrl_status open_all(plugin_test *t, const char *file, int n_words, char **words, const char *backend,
                           const char *collective, const char *model_config)
{
    nrl_node *config;
    if (access(file, R_OK))
        return nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': %s; expected a plugin's file, NAME.so", file,
                        strerror(errno));
    t->host = plugin_host_create(cli_getenv("NRL_PLUGIN_PATH"), NULL, 0, cli_exe_dir(&t->a));
    plugin_host_limit(t->host, cli_getenv("NRL_PLUGIN_TIMEOUT"));
    NRL_TRY(plugin_open_file(t->host, file, &t->plugin));
    t->kind = plugin_kind_find(t->plugin->table->kind);
    if (!conformance_has_suite(t->kind->kind))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: there is no suite for the kind '%s' yet; it opens, and its options "
                        "are sound",
                        file, t->kind->name);
    NRL_TRY(fill_options(t, t->plugin, t->kind->name, n_words, words, &t->setup.options));
    if (model_config) {
        NRL_TRY(json_read_file(&t->a, model_config, MAX_MODEL_CONFIG, &config));
        t->setup.model_config = config;
    }
    NRL_TRY(open_store(t));
    NRL_TRY(open_collective(t, collective ? collective : "gloo"));
    return open_backend(t, backend ? backend : "cpu");
}

/* ---- the child ---- */

static void run_child(const plugin_test *t)
{
    int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, STDOUT_FILENO); /* loggers print there */
    conformance_run(t->plugin->table, &t->setup, t->report);
    _exit(0);
}

/* One process; its crash in a case is a failure of that case's rule, and another process goes on behind it. */
static nrl_status run_process(plugin_test *t, bool *more)
{
    int state = 0;
    conformance_report *r = t->report;
    r->n_cases = r->current = 0;
    *more = false;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return nrl_fail(NRL_ERR_IO, "cannot start a process: %s", strerror(errno));
    if (child == 0) run_child(t);
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return nrl_fail(NRL_ERR_IO, "waiting for the suite: %s", strerror(errno));
    bool crashed = WIFSIGNALED(state) || WEXITSTATUS(state);
    if (crashed && r->current) {
        r->cases[r->current - 1] = CASE_CRASHED;
        *more = true;
        if (WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM)
            report_check(r, false, r->rule, "the plugin does not return");
        else if (WIFSIGNALED(state))
            report_check(r, false, r->rule, "the plugin ended the process: %s", strsignal(WTERMSIG(state)));
        else
            report_check(r, false, r->rule, "the plugin ended the process: exit code %d", WEXITSTATUS(state));
    } else if (crashed) {
        t->ended_by = WIFSIGNALED(state) ? WTERMSIG(state) : SIGABRT; /* SIGABRT: the plugin called exit */
    }
    return NRL_OK;
}

static nrl_status run_suite(plugin_test *t)
{
    nrl_status st;
    bool more;
    do
        st = run_process(t, &more);
    while (st == NRL_OK && more);
    return st;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

static nrl_status run_in_folder(plugin_test *t)
{
    const char *place = cli_getenv("TMPDIR");
    char *folder = arena_printf(&t->a, "%s/nrl-plugins-test-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(folder)) return nrl_fail(NRL_ERR_IO, "cannot make '%s': %s", folder, strerror(errno));
    t->setup.folder = folder;
    nrl_status st = run_suite(t);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return st;
}

/* ---- what was found ---- */

static int64_t count_failed(const conformance_report *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_rules; i++)
        n += r->rules[i].failed > 0;
    return n;
}

static const char *last_rule(const conformance_report *r)
{
    return r->n_rules ? r->rules[r->n_rules - 1].rule : "the first";
}

static void print_text(const plugin_test *t)
{
    const conformance_report *r = t->report;
    const nrl_plugin *p = t->plugin->table;
    printf("%s %s %s: %s\n", t->kind->name, p->name, p->version, p->summary);
    for (int64_t i = 0; i < r->n_rules; i++) {
        const conformance_rule *rule = &r->rules[i];
        const char *word = !rule->checked ? "skipped" : rule->failed ? "FAILED" : "ok";
        printf("  %-8s %s\n", word, rule->rule);
        if (*rule->text) printf("  %-8s   %s\n", "", rule->text);
        if (rule->failed > 1)
            printf("  %-8s   and %" PRId64 " more of %" PRId64 " checks\n", "", rule->failed - 1, rule->checked);
    }
    if (t->ended_by)
        printf("  %-8s the plugin does not end the process\n  %-8s   %s, after rule '%s'\n", "FAILED", "",
               strsignal(t->ended_by), last_rule(r));
    printf("%" PRId64 " rules, %" PRId64 " failed (%" PRId64 " checks)\n", r->n_rules,
           count_failed(r) + (t->ended_by != 0), r->checked);
}

static void print_json(plugin_test *t)
{
    arena *a = &t->a;
    const conformance_report *r = t->report;
    nrl_node *root = node_new(a, NRL_NODE_MAP), *rules = node_new(a, NRL_NODE_LIST);
    node_append_text(a, root, "kind", t->kind->folder);
    node_append_text(a, root, "name", t->plugin->name);
    node_append_text(a, root, "path", t->plugin->path);
    for (int64_t i = 0; i < r->n_rules; i++) {
        nrl_node *rule = node_new(a, NRL_NODE_MAP);
        node_append_text(a, rule, "rule", r->rules[i].rule);
        node_set(a, rule, "checks", node_int(a, r->rules[i].checked));
        node_set(a, rule, "failed", node_int(a, r->rules[i].failed));
        if (*r->rules[i].text) node_append_text(a, rule, "reason", r->rules[i].text);
        node_append(a, rules, NULL, rule);
    }
    node_set(a, root, "rules", rules);
    if (t->ended_by) node_append_text(a, root, "ended_by", strsignal(t->ended_by));
    node_set(a, root, "passed", node_bool(a, !r->failed && !t->ended_by));
    char *text = json_write(root, 2);
    printf("%s\n", text);
    free(text);
}

static nrl_status verdict(const plugin_test *t)
{
    if (t->ended_by)
        return nrl_fail(NRL_ERR_PLUGIN, "%s '%s' ended the process: %s", t->kind->name, t->plugin->name,
                        strsignal(t->ended_by));
    if (t->report->failed)
        return nrl_fail(NRL_ERR_PLUGIN, "%s '%s' breaks %" PRId64 " of %" PRId64 " rules", t->kind->name,
                        t->plugin->name, count_failed(t->report), t->report->n_rules);
    return NRL_OK;
}

static nrl_status test_plugin(int argc, char **argv)
{
    plugin_test t = {0};
    const char *backend, *collective, *model_config, *path, *address;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_take_value(&argc, argv, "--backend", &backend));
    NRL_TRY(cli_take_value(&argc, argv, "--collective", &collective));
    NRL_TRY(cli_take_value(&argc, argv, "--config", &model_config));
    NRL_TRY(cli_take_value(&argc, argv, "--path", &path));
    NRL_TRY(cli_take_value(&argc, argv, "--address", &address));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    if (path && access(path, R_OK))
        return nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': %s; expected a file that the plugin reads", path,
                        strerror(errno));
    t.setup.path = path;
    t.setup.address = address;
    t.report = mmap(NULL, sizeof *t.report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t.report == MAP_FAILED) return nrl_fail(NRL_ERR_MEMORY, "no memory for the report");
    nrl_status st = open_all(&t, argv[1], argc - 2, argv + 2, backend, collective, model_config);
    if (st == NRL_OK) st = run_in_folder(&t);
    if (st == NRL_OK) {
        if (json)
            print_json(&t);
        else
            print_text(&t);
        st = verdict(&t);
    }
    plugin_host_destroy(t.host);
    arena_free(&t.a);
    munmap(t.report, sizeof *t.report);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "test-plugin", test_plugin);
}
