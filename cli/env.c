/*
 * env.c - `nrl env`: machine and build, for a problem report. Opens no device.
 */
#include "base/json.h"
#include "cli/verbs.h"
#include "cli/common/ranks.h"
#include <nrl/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first "model name" of /proc/cpuinfo; other systems have none. */
static const char *cpu_name(arena *a)
{
    char line[512];
    const char *name = "unknown";
    FILE *in = fopen("/proc/cpuinfo", "r");
    while (in && fgets(line, sizeof line, in)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        name = arena_strndup(a, colon + 2, strcspn(colon + 2, "\n"));
        break;
    }
    if (in) fclose(in);
    return name;
}

static void add_machine(arena *a, nrl_node *map)
{
    struct utsname u;
    if (!uname(&u)) node_append_text(a, map, "system", arena_printf(a, "%s %s %s", u.sysname, u.release, u.machine));
    node_append_text(a, map, "cpu", cpu_name(a));
    node_set(a, map, "cores", node_int(a, sysconf(_SC_NPROCESSORS_ONLN)));
    int64_t bytes, left;
    nrl_host_memory(&bytes, &left);
    node_set(a, map, "memory_bytes", node_int(a, bytes));
}

static void add_folders(arena *a, nrl_node *map)
{
    size_t n;
    plugin_host *h = verbs_plugin_host(a);
    const char *const *folders = plugin_folders(h, &n);
    nrl_node *list = node_set(a, map, "plugin_folders", node_new(a, NRL_NODE_LIST));
    for (size_t i = 0; i < n; i++)
        node_append(a, list, NULL, node_text(a, folders[i]));
    plugin_host_destroy(h);
}

/* Shown if a launcher started this process as one of several. */
static nrl_status add_ranks(arena *a, nrl_node *map)
{
    nrl_rank_info p;
    NRL_TRY(ranks_read(a, cli_getenv, &p));
    if (!p.origin) return NRL_OK;
    nrl_node *place = node_set(a, map, "place", node_new(a, NRL_NODE_MAP));
    node_append_text(a, place, "launcher", p.origin);
    node_set(a, place, "rank", node_int(a, p.rank));
    node_set(a, place, "world_size", node_int(a, p.world));
    node_set(a, place, "local_rank", node_int(a, p.local_rank));
    node_set(a, place, "local_world_size", node_int(a, p.local_world));
    node_set(a, place, "threads", node_int(a, ranks_threads(cli_getenv, &p)));
    if (p.world == 1) return NRL_OK;
    node_append_text(a, place, "store", p.store);
    node_append_text(a, place, "store_holder", p.store_elsewhere ? "launcher" : "rank 0");
    node_append_text(a, place, "run_id", p.run_id);
    return NRL_OK;
}

static void print_lines(const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *n = nrl_node_at(map, i);
        char *text = json_write(n, 0);
        printf("%-15s %s\n", nrl_node_key(map, i), nrl_node_string(n, text));
        free(text);
    }
}

nrl_status cli_env(int argc, char **argv)
{
    arena a = {0};
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 0, 0));
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_append_text(&a, map, "nrl", NRL_VERSION);
    node_set(&a, map, "abi", node_int(&a, NRL_ABI));
    node_append_text(&a, map, "compiler", __VERSION__);
    add_machine(&a, map);
    node_append_text(&a, map, "json", json_library());
    add_folders(&a, map);
    nrl_status st = add_ranks(&a, map);
    char *text = json_write(map, 2);
    if (json)
        printf("%s\n", text);
    else
        print_lines(map);
    free(text);
    arena_free(&a);
    return st;
}
