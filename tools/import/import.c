/*
 * import.c - `nrl import DIR OUT`: reads a Hugging Face directory into checkpoint 0 of a run.
 */
#include "cli/common/experiment.h"
#include <nrl/inference.h>
#include <stdio.h>

static nrl_status import_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    experiment_environment(&a, &env);
    nrl_status st = nrl_import(argv[1], &env, argv[2]);
    if (st == NRL_OK) printf("wrote %s/checkpoints/step-00000000\n", argv[2]);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "import", import_verb);
}
