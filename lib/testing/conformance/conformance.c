/*
 * conformance.c - nrl_conformance_test: opens the plugin and what its suite needs, and runs the suite in child
 * processes, because a plugin under test may crash. The report is in memory that they share.
 */
#include "base/json.h"
#include "config/config.h"
#include "mesh/store.h"
#include "plugin/component.h"
#include "suite.h"
#include "report.h"
#include <nrl/conformance.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_MODEL_CONFIG = 1 << 20 };

typedef struct {
    arena *a;
    plugin_host *host;
    const plugin *plugin;
    const plugin_kind *kind;
    conformance_setup setup;
    conformance_report *report;
    int ended_by; /* the signal that ended the suite; 0 = none */
} plugin_test;

/* ---- what to test, and on what ---- */

static nrl_status fill_options(plugin_test *t, const plugin *p, const char *section, uint32_t n_words,
                               const char *const *words, const void **options)
{
    config_problems problems = {0};
    nrl_node *map = node_new(t->a, NRL_NODE_MAP);
    void *filled;
    for (uint32_t i = 0; i < n_words; i++)
        config_override(t->a, &problems, map, words[i]);
    const config_component c = {.name = p->name, .options = map};
    plugin_options(t->a, &problems, section, &c, NULL, p, &filled);
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
    NRL_TRY(store_find(t->host, t->a, SUITE_STORE_ADDRESS, NULL, &kind));
    t->setup.store = kind.table;
    t->setup.store_options = kind.options;
    return NRL_OK;
}

static nrl_status open_all(plugin_test *t, const nrl_environment *env, const nrl_conformance_request *q)
{
    nrl_node *config;
    if (q->path && access(q->path, R_OK))
        return nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': %s; expected a file that the plugin reads", q->path,
                        strerror(errno));
    if (access(q->file, R_OK))
        return nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': %s; expected a plugin's file, NAME.so", q->file,
                        strerror(errno));
    t->setup.path = q->path;
    t->setup.address = q->address;
    t->host = component_host(env, NULL);
    NRL_TRY(plugin_open_file(t->host, q->file, &t->plugin));
    t->kind = plugin_kind_find(t->plugin->table->kind);
    if (!conformance_has_suite(t->kind->kind))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: there is no suite for the kind '%s' yet; it opens, and its options "
                        "are sound",
                        q->file, t->kind->name);
    NRL_TRY(fill_options(t, t->plugin, t->kind->name, q->n_options, q->options, &t->setup.options));
    if (q->model_config) {
        NRL_TRY(json_read_file(t->a, q->model_config, MAX_MODEL_CONFIG, &config));
        t->setup.model_config = config;
    }
    NRL_TRY(open_store(t));
    NRL_TRY(open_collective(t, q->collective ? q->collective : "gloo"));
    return open_backend(t, q->backend ? q->backend : "cpu");
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

static nrl_status run_in_folder(plugin_test *t, const char *place)
{
    char *folder = arena_printf(t->a, "%s/nrl-plugins-test-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(folder)) return nrl_fail(NRL_ERR_IO, "cannot make '%s': %s", folder, strerror(errno));
    t->setup.folder = folder;
    nrl_status st = run_suite(t);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return st;
}

/* ---- what was found ---- */

static nrl_node *result_node(const plugin_test *t)
{
    arena *a = t->a;
    const conformance_report *r = t->report;
    const nrl_plugin *p = t->plugin->table;
    nrl_node *root = node_new(a, NRL_NODE_MAP), *rules = node_new(a, NRL_NODE_LIST);
    node_append_text(a, root, "kind", t->kind->folder);
    node_append_text(a, root, "kind_name", t->kind->name);
    node_append_text(a, root, "name", p->name);
    node_append_text(a, root, "version", p->version);
    node_append_text(a, root, "summary", p->summary);
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
    return root;
}

nrl_status nrl_conformance_test(nrl_arena *memory, const nrl_environment *env, const nrl_conformance_request *request,
                                nrl_node **result)
{
    nrl_environment given = {0};
    nrl_conformance_request q = {0};
    memcpy(&given, env, env->size < sizeof given ? env->size : sizeof given);
    memcpy(&q, request, request->size < sizeof q ? request->size : sizeof q);
    plugin_test t = {.a = memory};
    t.report = mmap(NULL, sizeof *t.report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t.report == MAP_FAILED) return nrl_fail(NRL_ERR_MEMORY, "no memory for the report");
    nrl_status st = open_all(&t, &given, &q);
    if (st == NRL_OK) st = run_in_folder(&t, q.folder);
    if (st == NRL_OK) *result = result_node(&t);
    plugin_host_destroy(t.host);
    munmap(t.report, sizeof *t.report);
    return st;
}
