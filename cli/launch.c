/*
 * launch.c - `nrl launch`: runs the ranks of a run as processes of this machine, which may be one of
 * several. It starts nrl itself, so that it needs no shell, agent or library.
 */
#include "cli/launch_join.h"
#include "cli/verbs.h"
#include "cli/common/auto.h"
#include "cli/common/job_secret.h"
#include "cli/common/ranks.h"
#include "config/schema.h"
#include "config/tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 65536, PORT_OF_SEVERAL_NODES = 29500 };
static const double GRACE = 10, LAST_CLIENTS = 60, JOIN_WAIT = 30; /* seconds */

typedef struct {
    const char *n, *nodes, *hostfile, *node_rank, *address, *port, *store, *grace, *max_restarts, *join_wait;
} launch_flags;

/* ---- arguments ---- */

/* The arguments after "--" become the ranks' command; argv ends before "--". */
static nrl_status take_command(arena *a, int *argc, char **argv, char ***command)
{
    static const char *const verbs[] = {"run", "resume", "eval", "bench", "profile", "check", "env"};
    int at = 1;
    while (at < *argc && strcmp(argv[at], "--"))
        at++;
    if (at + 1 >= *argc)
        return nrl_fail(NRL_ERR_CONFIG, "missing command\nhint: nrl launch -n 2 -- run FILE [key=value ...]");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[at + 1], verbs[i])) continue;
        *command = arena_alloc(a, (size_t)(*argc - at + 1) * sizeof **command);
        (*command)[0] = arena_strdup(a, "nrl");
        memcpy(*command + 1, argv + at + 1, (size_t)(*argc - at - 1) * sizeof **command);
        argv[ *argc = at] = NULL;
        return NRL_OK;
    }
    if (!strcmp(argv[at + 1], "tune") || !strcmp(argv[at + 1], "plan"))
        return nrl_fail(NRL_ERR_CONFIG, "cannot launch '%s', which starts ranks itself\nhint: nrl %s FILE --ranks 2",
                        argv[at + 1], argv[at + 1]);
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot launch '%s'; expected run, resume, eval, bench, profile, "
                    "check or env, as in: nrl launch -n 2 -- run FILE",
                    argv[at + 1]);
}

static nrl_status take_flags(int *argc, char **argv, launch_flags *f)
{
    NRL_TRY(cli_take_value(argc, argv, "-n", &f->n));
    NRL_TRY(cli_take_value(argc, argv, "--nodes", &f->nodes));
    NRL_TRY(cli_take_value(argc, argv, "--hostfile", &f->hostfile));
    NRL_TRY(cli_take_value(argc, argv, "--node-rank", &f->node_rank));
    NRL_TRY(cli_take_value(argc, argv, "--address", &f->address));
    NRL_TRY(cli_take_value(argc, argv, "--port", &f->port));
    NRL_TRY(cli_take_value(argc, argv, "--store", &f->store));
    NRL_TRY(cli_take_value(argc, argv, "--grace", &f->grace));
    NRL_TRY(cli_take_value(argc, argv, "--max-restarts", &f->max_restarts));
    NRL_TRY(cli_take_value(argc, argv, "--join-wait", &f->join_wait));
    NRL_TRY(cli_expect(*argc, argv, 0, 0));
    if (f->store && (f->address || f->port))
        return nrl_fail(NRL_ERR_CONFIG, "--store and --address or --port: expected one of them");
    if (f->nodes && f->hostfile)
        return nrl_fail(NRL_ERR_CONFIG, "--nodes and --hostfile are both set; expected one of them");
    return NRL_OK;
}

static nrl_status read_number(const char *flag, const char *text, int64_t min, int64_t max, int32_t *out)
{
    char *end;
    if (!text) return NRL_OK;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < min || value > max)
        return nrl_fail(NRL_ERR_CONFIG, "%s: got '%s'; expected a number from %lld to %lld", flag, text, (long long)min,
                        (long long)max);
    *out = (int32_t)value;
    return NRL_OK;
}

static nrl_status refuse_ranks(const launch_flags *f)
{
    const char *by = ranks_launcher(cli_getenv);
    if (!by || f->node_rank) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "this process is already one of several ranks (%s), so `nrl launch` is not needed\n"
                    "hint: use `nrl run FILE`, or --node-rank if each process is to start the ranks of a node",
                    by);
}

/* ---- nodes ---- */

char **launch_argument(const launch *l)
{
    static const char *const alone[] = {"-q",     "-v",       "--quiet",  "--verbose",    "--json",
                                        "--full", "--memory", "--output", "--no-scripts", "--no-plugins-from-config"};
    char **word = l->command + 2;
    while (*word && **word == '-' && (*word)[1]) {
        bool has_value = !strchr(*word, '=') && word[1];
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
            has_value = has_value && strcmp(*word, alone[i]);
        word += has_value ? 2 : 1;
    }
    return word;
}

/* The config that the ranks will read, or NULL: a script may create its own. */
static const char *config_file(const launch *l)
{
    const char *verb = l->command[1], *word = *launch_argument(l);
    if (!word || !strcmp(verb, "env")) return NULL;
    if (!strcmp(verb, "resume")) return arena_printf(l->a, "%s/config.yaml", experiment_run_of(l->a, word));
    return experiment_is_config(word) ? word : NULL;
}

/* *config is NULL if the ranks read none. */
static nrl_status read_config(launch *l, nrl_config **config)
{
    const char *file = config_file(l);
    *config = file ? nrl_config_create(l->a) : NULL;
    if (!file) return NRL_OK;
    NRL_TRY(nrl_config_read(*config, file));
    for (char **word = launch_argument(l) + 1; *word; word++)
        if (**word != '-' && strchr(*word, '=')) nrl_config_override(*config, *word);
    nrl_config_substitute(*config, cli_variable);
    return NRL_OK;
}

/* The core's part of that config, and its hosts in l->hosts; empty if the ranks read none. */
static nrl_status fill_config(launch *l, config_run *config)
{
    nrl_config *tree;
    const char *key;
    *config = (config_run){0};
    nrl_status st = read_config(l, &tree);
    if (st == NRL_OK && tree) {
        while ((key = nrl_config_auto(tree, 0))) /* chosen when the number of ranks is known */
            nrl_config_override(tree, arena_printf(l->a, "%s=null", key));
        config_fill(l->a, &tree->problems, tree->root, config);
        l->n_hosts = hosts_read(l->a, tree, &l->hosts);
        st = problems_report(&tree->problems);
    }
    nrl_config_destroy(tree);
    return st;
}

/* Reports the config's errors once here instead of in every rank. */
static nrl_status read_config_nodes(launch *l)
{
    config_run config;
    NRL_TRY(fill_config(l, &config));
    if (l->n_hosts) return launch_nodes_config(l->a, l->hosts, l->n_hosts, &l->nodes);
    return nrl_fail(NRL_ERR_CONFIG,
                    "number of ranks is unknown; expected -n N, --nodes LIST, --hostfile FILE, or launch.nodes "
                    "in the config");
}

/* MIN:MAX, which no list of hosts looks like. */
static bool is_range(const char *nodes)
{
    static const char digits[] = "0123456789";
    const size_t n = nodes ? strspn(nodes, digits) : 0;
    return n && nodes[n] == ':' && nodes[n + 1] && !nodes[n + 1 + strspn(nodes + n + 1, digits)];
}

/* Machines that find each other at --address; this one is a list of its own until they have. */
static nrl_status read_range(launch *l, const launch_flags *f, int32_t slots)
{
    const char *colon = strchr(f->nodes, ':');
    int32_t wait = (int32_t)JOIN_WAIT;
    NRL_TRY(
        read_number("--nodes", arena_strndup(l->a, f->nodes, (size_t)(colon - f->nodes)), 1, MAX_RANKS, &l->min_nodes));
    NRL_TRY(read_number("--nodes", colon + 1, l->min_nodes, MAX_RANKS, &l->max_nodes));
    NRL_TRY(read_number("--join-wait", f->join_wait, 0, 86400, &wait));
    l->join_wait = wait;
    if (!slots || !f->address || f->node_rank)
        return nrl_fail(NRL_ERR_CONFIG,
                        "--nodes %s: expected -n N (ranks of this machine), --address HOST (where the machines meet), "
                        "and no --node-rank",
                        f->nodes);
    return launch_nodes_words(l->a, "127.0.0.1", slots, &l->nodes);
}

static nrl_status read_nodes(launch *l, const launch_flags *f)
{
    int32_t slots = 0;
    NRL_TRY(read_number("-n", f->n, 1, MAX_RANKS, &slots));
    if (is_range(f->nodes)) return read_range(l, f, slots);
    if (f->join_wait) return nrl_fail(NRL_ERR_CONFIG, "--join-wait: expected only with --nodes MIN:MAX");
    if (f->nodes) return launch_nodes_words(l->a, f->nodes, slots, &l->nodes);
    if (f->hostfile) return launch_nodes_file(l->a, f->hostfile, slots, &l->nodes);
    if (!slots) return read_config_nodes(l);
    return launch_nodes_words(l->a, "127.0.0.1", slots, &l->nodes);
}

nrl_status launch_place(launch *l)
{
    int64_t world = 0;
    for (size_t i = 0; i < l->nodes.n; i++) {
        if (i == l->own) l->first_rank = (int32_t)world;
        world += l->nodes.list[i].slots;
    }
    if (world > INT32_MAX) return nrl_fail(NRL_ERR_CONFIG, "cannot start %lld ranks: too many", (long long)world);
    l->world = (int32_t)world;
    l->n_ranks = l->nodes.list[l->own].slots;
    l->ranks = arena_alloc(l->a, (size_t)l->n_ranks * sizeof *l->ranks);
    return NRL_OK;
}

static nrl_status find_own(launch *l, const launch_flags *f)
{
    int32_t given = 0;
    NRL_TRY(read_number("--node-rank", f->node_rank, 0, (int64_t)l->nodes.n - 1, &given));
    l->own = (size_t)given;
    NRL_ASSERT((l->nodes.list != NULL), ==, true);
    if (!f->node_rank && l->nodes.n > 1) NRL_TRY(launch_nodes_own(&l->nodes, &l->own));
    return launch_place(l);
}

static bool has_other_machines(const launch *l)
{
    return l->nodes.n > 1 || l->max_nodes;
}

/* Adds the values that were chosen for `auto` to the command of the ranks. */
static nrl_status add_chosen(launch *l, nrl_config *config)
{
    const char *const *chosen;
    auto_request r = {.file = config_file(l),
                      .words = launch_argument(l) + 1,
                      .ranks = l->world,
                      .trains = strcmp(l->command[1], "eval") != 0};
    while (r.words[r.n_words])
        r.n_words++;
    for (char **word = l->command + 2; *word; word++)
        r.quiet |= !strcmp(*word, "-q") || !strcmp(*word, "--quiet");
    NRL_TRY(auto_choose(l->a, config, &r, &chosen));
    for (; *chosen; chosen++)
        launch_add_word(l, *chosen);
    return NRL_OK;
}

/* The ranks get values instead of `auto`, all the same ones. */
static nrl_status choose_settings(launch *l)
{
    nrl_config *config;
    if (l->world == 1 && !l->max_nodes) return NRL_OK; /* the rank chooses for itself */
    nrl_status st = read_config(l, &config);
    if (st == NRL_OK && config && nrl_config_auto(config, 0) && has_other_machines(l))
        st = nrl_fail(NRL_ERR_CONFIG,
                      "%s: auto is only supported for the ranks of one machine; expected a value\n"
                      "hint: `nrl plan` on one of them, with --save-machine and --machine, shows what fits",
                      nrl_config_auto(config, 0));
    else if (st == NRL_OK && config && nrl_config_auto(config, 0))
        st = add_chosen(l, config);
    nrl_config_destroy(config);
    return st;
}

/* The launchers of several nodes do not know each other; the user may set an id that they share. */
static const char *launch_run_id(const launch *l)
{
    const char *given = cli_getenv("NRL_RUN_ID");
    if (!has_other_machines(l)) return arena_printf(l->a, "%d-%lld", (int)getpid(), (long long)time(NULL));
    return given ? arena_strdup(l->a, given) : "";
}

static bool forgets(const char *resume)
{
    return resume && *resume && strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0;
}

/* A start that fails is continued with resume=auto, which would forget another checkpoint that the run began with. */
static nrl_status check_restartable(launch *l)
{
    static const char form[] = "--max-restarts: resume=%s; expected resume=auto or none\n"
                               "hint: `nrl import` starts a run from a checkpoint";
    config_run config;
    if (strcmp(l->command[1], "run") && strcmp(l->command[1], "resume"))
        return nrl_fail(NRL_ERR_CONFIG, "--max-restarts: `%s` does not train; expected run or resume", l->command[1]);
    for (char **word = l->command + 2; *word; word++)
        if (!strncmp(*word, "resume=", 7) && forgets(*word + 7)) return nrl_fail(NRL_ERR_CONFIG, form, *word + 7);
    /* mistakes in the config are reported later */
    const bool is_read = fill_config(l, &config) == NRL_OK;
    return is_read && forgets(config.resume) ? nrl_fail(NRL_ERR_CONFIG, form, config.resume) : NRL_OK;
}

static nrl_status read_flags(launch *l, const launch_flags *f)
{
    int32_t grace = (int32_t)GRACE; /* a save after a signal may take longer: it has no limit unless one is set */
    NRL_TRY(refuse_ranks(f));
    NRL_TRY(read_nodes(l, f));
    NRL_TRY(find_own(l, f));
    NRL_TRY(read_number("--grace", f->grace, 0, 86400, &grace));
    l->grace = grace;
    l->signal_grace = f->grace ? grace : -1;
    int32_t port = has_other_machines(l) ? PORT_OF_SEVERAL_NODES : 0;
    NRL_TRY(read_number("--port", f->port, 1, l->max_nodes ? 65534 : 65535, &port));
    const char *host = f->address ? f->address : l->nodes.list[0].address,
               *form = strchr(host, ':') ? "[%s]:%d" : "%s:%d";
    l->holds_store = !f->store && l->own == 0;
    if (l->max_nodes) l->meet_host = host;
    if (l->max_nodes) l->meet_at = arena_printf(l->a, form, host, port++); /* the ranks meet at the next port */
    l->store = f->store ? f->store : arena_printf(l->a, form, host, port);
    l->run_id = l->first_run_id = launch_run_id(l);
    l->newest = launch_newest(l);
    NRL_TRY(read_number("--max-restarts", f->max_restarts, 0, 1000, &l->max_restarts));
    return l->max_restarts ? check_restartable(l) : NRL_OK;
}

/* ---- running ---- */

/* From here on signals are held for launch_watch; the store's threads inherit this. */
static void hold_signals(launch *l)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGUSR1);
    sigaddset(&held, SIGCHLD);
    sigprocmask(SIG_BLOCK, &held, &l->mask);
    signal(SIGPIPE, SIG_IGN); /* write() returns an error */
}

static nrl_status open_store(launch *l, store_server **store)
{
    config_run config; /* whose mistakes are reported by the ranks, with those of its plugins */
    const config_component *named = fill_config(l, &config) == NRL_OK && config.store.name ? &config.store : NULL;
    NRL_TRY(store_find(l->host, l->a, l->store, named, &l->store_kind));
    if (!l->holds_store) return NRL_OK;
    const store_setup s = {.address = l->store,
                           .job = l->run_id,
                           .secret = l->secret,
                           .flags = has_other_machines(l) ? NRL_STORE_OTHER_MACHINES : 0};
    NRL_TRY(store_serve(&l->store_kind, &s, store));
    l->store = store_server_address(*store);
    return NRL_OK;
}

/* Ranks of other nodes may still send requests: waits for them, 20 ms at a time. */
static void close_store(const launch *l, store_server *store, bool failed)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int64_t turns = (int64_t)((failed ? l->grace : LAST_CLIENTS) * 50);
    if (!store) return;
    for (; l->nodes.n > 1 && turns > 0 && store_server_clients(store) > 0; turns--)
        nanosleep(&pause, NULL);
    store_server_close(store);
}

/* On one node the launcher makes a secret if the user set none; the launchers of several nodes would make
 * different ones. */
static nrl_status open_secret(launch *l)
{
    job_secret secret;
    NRL_TRY(job_secret_take(&secret));
    if (!secret.size && !has_other_machines(l)) job_secret_make(&secret);
    if (secret.size) NRL_TRY(job_secret_share(&secret, &l->secret_fd));
    l->secret = job_secret_key(l->a, &secret, l->run_id);
    return NRL_OK;
}

/* One start of all ranks. */
static nrl_status start_ranks(launch *l, const char *address, int *code)
{
    store_server *store = NULL;
    l->store = address;
    nrl_status st = open_store(l, &store);
    if (st == NRL_OK) st = launch_start(l);
    if (st == NRL_OK) st = launch_watch(l, code);
    close_store(l, store, st != NRL_OK || *code);
    return st;
}

static nrl_status run_ranks(launch *l, int *code)
{
    const char *address = l->store;
    hold_signals(l);
    NRL_TRY(open_secret(l));
    l->host = verbs_plugin_host(l->a);
    nrl_status st = l->max_nodes ? launch_meet(l, l->meet_host, l->meet_at) : NRL_OK;
    if (st == NRL_OK && l->meeting) st = launch_join(l);
    if (st == NRL_OK && !l->is_over) st = start_ranks(l, address, code);
    while (launch_may_restart(l, st, *code)) {
        *code = 0;
        st = launch_again(l);
        if (st == NRL_OK && !l->is_over) st = start_ranks(l, address, code);
    }
    launch_part(l);
    plugin_host_destroy(l->host);
    return st;
}

static nrl_status launch_ranks(launch *l, int argc, char **argv, int *code)
{
    launch_flags flags = {0};
    NRL_TRY(take_command(l->a, &argc, argv, &l->command));
    NRL_TRY(take_flags(&argc, argv, &flags));
    NRL_TRY(read_flags(l, &flags));
    NRL_TRY(choose_settings(l));
    return l->world == 1 && !l->max_restarts && !l->max_nodes ? launch_alone(l) : run_ranks(l, code);
}

nrl_status cli_launch(int argc, char **argv)
{
    arena a = {0};
    launch l = {.a = &a, .out.fd = STDOUT_FILENO, .err.fd = STDERR_FILENO, .secret_fd = -1};
    l.out.is_terminal = isatty(STDOUT_FILENO);
    l.err.is_terminal = isatty(STDERR_FILENO);
    int code = 0;
    nrl_status st = launch_ranks(&l, argc, argv, &code);
    buffer_free(&l.out.pending);
    buffer_free(&l.err.pending);
    arena_free(&a);
    if (st == NRL_OK && code) exit(code); /* the ranks' exit code, which a status cannot express */
    return st;
}
