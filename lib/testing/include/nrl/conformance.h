/*
 * conformance.h - for tests of plugins: checks a plugin file by the rules for every plugin of its kind, as
 * `nrl plugins test` does. The function is in libnrl-testing (pkg-config nrl-testing, CMake nrl::libnrl-testing).
 *
 *     nrl_arena *memory = nrl_arena_create();
 *     const nrl_environment env = {.size = sizeof env};
 *     const nrl_conformance_request request = {.size = sizeof request, .file = "build/plugins/losses/mine.so"};
 *     nrl_node *result;
 *     nrl_status st = nrl_conformance_test(memory, &env, &request, &result);
 *     bool good = st == NRL_OK && nrl_node_bool(nrl_node_find(result, "passed"), false);
 *     nrl_arena_destroy(memory);
 *
 * A suite calls the plugin's table as the core does and compares the results with plain reference code. It runs in
 * child processes, so that a plugin may crash, hang or end the process: that is a failure of a rule. Growth: the caller
 * sets `size` of a struct to its sizeof.
 */
#ifndef NRL_CONFORMANCE_H
#define NRL_CONFORMANCE_H
#include <nrl/node.h>
#include <nrl/run.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t size;
    uint32_t n_options;
    const char *file;           /* the plugin, NAME.so */
    const char *const *options; /* [n_options] of the plugin under test, "KEY=VALUE"; others have their defaults */
    const char *backend;        /* that algorithms, optimizers, models and strategies compute on; NULL = "cpu" */
    const char *collective;     /* between the ranks of a strategy; NULL = "gloo" */
    const char *model_config;   /* file, a config.json of a few thousand parameters; NULL = one with the common keys */
    const char *path;           /* a tokenizer, the text of a template or rows, for the plugin; NULL = none */
    const char *address;        /* of the store under test; NULL: the suite tries some */
    const char *folder;         /* where the suite makes a directory that it removes in the end; NULL = "/tmp" */
} nrl_conformance_request;

/* Of the environment only plugin_path, exe_dir, user_plugins and variable are used. Fills *result, in `memory`:
 *   kind, kind_name  the folder of the plugin's kind, "algorithms", and one of the kind, "algorithm"
 *   name, version, summary, path  of the plugin
 *   rules     a list of {rule, checks, failed, reason} in the order of their first checks. `checks` is 0 if the rule
 *             was skipped; `reason` says why, or is the text of the first failure
 *   ended_by  the signal by which the plugin ended the suite; missing if it did not
 *   passed    whether no rule is broken
 * Broken rules are not an error. NRL_ERR_CONFIG: a file, a name or an option of the request is wrong;
 * NRL_ERR_PLUGIN: the plugin cannot be opened. [main] */
NRL_API nrl_status nrl_conformance_test(nrl_arena *memory, const nrl_environment *env,
                                        const nrl_conformance_request *request, nrl_node **result);

#ifdef __cplusplus
}
#endif
#endif
