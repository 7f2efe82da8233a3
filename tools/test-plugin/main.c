/*
 * main.c - `nrl plugins test FILE`: does this plugin keep the rules of its kind? Prints what nrl_conformance_test
 * finds.
 */
#include "base/json.h"
#include "cli/common/cli.h"
#include <nrl/conformance.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const nrl_node *map, const char *key)
{
    return nrl_node_string(nrl_node_find(map, key), "");
}

static int64_t count_failed(const nrl_node *rules)
{
    int64_t n = 0;
    for (size_t i = 0; i < nrl_node_size(rules); i++)
        n += nrl_node_int(nrl_node_find(nrl_node_at(rules, i), "failed"), 0) > 0;
    return n;
}

static void print_text(const nrl_node *result)
{
    const nrl_node *rules = nrl_node_find(result, "rules");
    const char *ended_by = text_of(result, "ended_by"), *last = "the first";
    int64_t all = 0;
    printf("%s %s %s: %s\n", text_of(result, "kind_name"), text_of(result, "name"), text_of(result, "version"),
           text_of(result, "summary"));
    for (size_t i = 0; i < nrl_node_size(rules); i++) {
        const nrl_node *rule = nrl_node_at(rules, i);
        const int64_t checks = nrl_node_int(nrl_node_find(rule, "checks"), 0);
        const int64_t failed = nrl_node_int(nrl_node_find(rule, "failed"), 0);
        last = text_of(rule, "rule");
        all += checks;
        printf("  %-8s %s\n", !checks ? "skipped" : failed ? "FAILED" : "ok", last);
        if (nrl_node_find(rule, "reason")) printf("  %-8s   %s\n", "", text_of(rule, "reason"));
        if (failed > 1) printf("  %-8s   and %" PRId64 " more of %" PRId64 " checks\n", "", failed - 1, checks);
    }
    if (*ended_by)
        printf("  %-8s the plugin does not end the process\n  %-8s   %s, after rule '%s'\n", "FAILED", "", ended_by,
               last);
    printf("%zu rules, %" PRId64 " failed (%" PRId64 " checks)\n", nrl_node_size(rules),
           count_failed(rules) + (*ended_by != 0), all);
}

static nrl_status result_status(const nrl_node *result)
{
    const nrl_node *rules = nrl_node_find(result, "rules");
    if (nrl_node_find(result, "ended_by"))
        return nrl_fail(NRL_ERR_PLUGIN, "%s '%s' ended the process: %s", text_of(result, "kind_name"),
                        text_of(result, "name"), text_of(result, "ended_by"));
    if (nrl_node_bool(nrl_node_find(result, "passed"), false)) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "%s '%s' breaks %" PRId64 " of %zu rules", text_of(result, "kind_name"),
                    text_of(result, "name"), count_failed(rules), nrl_node_size(rules));
}

static nrl_status test_plugin(int argc, char **argv)
{
    arena a = {0};
    const nrl_environment env = {.size = sizeof env,
                                 .plugin_path = cli_getenv("NRL_PLUGIN_PATH"),
                                 .user_plugins = cli_user_plugins(&a),
                                 .exe_dir = cli_exe_dir(&a),
                                 .variable = cli_getenv};
    nrl_conformance_request q = {.size = sizeof q, .folder = cli_getenv("TMPDIR")};
    nrl_node *result;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_take_value(&argc, argv, "--backend", &q.backend));
    NRL_TRY(cli_take_value(&argc, argv, "--collective", &q.collective));
    NRL_TRY(cli_take_value(&argc, argv, "--config", &q.model_config));
    NRL_TRY(cli_take_value(&argc, argv, "--path", &q.path));
    NRL_TRY(cli_take_value(&argc, argv, "--address", &q.address));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    q.file = argv[1];
    q.n_options = (uint32_t)argc - 2;
    q.options = (const char *const *)argv + 2;
    nrl_status st = nrl_conformance_test(&a, &env, &q, &result);
    if (st == NRL_OK) {
        if (json) {
            char *text = json_write(result, 2);
            printf("%s\n", text);
            free(text);
        } else {
            print_text(result);
        }
        st = result_status(result);
    }
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "test-plugin", test_plugin);
}
