/*
 * import.c - `nrl import DIR OUT`: reads a Hugging Face directory into checkpoint 0 of a run.
 */
#include "cli/common/experiment.h"
#include "run/inference_model.h"
#include <stdio.h>

static nrl_status import_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    source s;
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    experiment_environment(&a, &env);
    nrl_status st = source_open(argv[1], &env, &s);
    if (st == NRL_OK) {
        st = source_save(&s, argv[2]);
        if (st == NRL_OK) printf("wrote %s/checkpoints/step-00000000\n", argv[2]);
        source_close(&s);
    }
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "import", import_verb);
}
