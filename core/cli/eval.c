/*
 * eval.c - `nrl eval FILE.yaml [key=value ...]`: the loss of a config's model over its data.eval.
 */
#include "base/json.h"
#include "cli/experiment.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_values(const nrl_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%-24s %.6g%s%s\n", values[i].name, values[i].value,
               strcmp(values[i].unit, "1") ? " " : "", strcmp(values[i].unit, "1") ? values[i].unit : "");
}

static void print_json(arena *a, const nrl_value *values, size_t n)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    for (size_t i = 0; i < n; i++) node_append(a, map, values[i].name, node_f64(a, values[i].value));
    char *text = json_write(map, 0);
    puts(text);
    free(text);
}

nrl_status cli_eval(int argc, char **argv)
{
    arena a = {0};
    run_environment env;
    run *r = NULL;
    const nrl_value *values;
    size_t n;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = env.no_output = env.evaluate_only = true;
    if (st == NRL_OK) st = experiment_open(&a, argc, argv, &env, &r);
    if (st == NRL_OK) st = run_evaluate(r, &values, &n);
    if (st == NRL_OK && experiment_speaks(&env) && json) print_json(&a, values, n);
    else if (st == NRL_OK && experiment_speaks(&env)) print_values(values, n);
    run_close(r);
    arena_free(&a);
    return st;
}
