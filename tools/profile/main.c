/*
 * main.c - `nrl profile`: time by operation of a config. The measurement is in ../bench.
 */
#include "tools/bench/bench.h"
#include "cli/common/cli.h"

static nrl_status profile_verb(int argc, char **argv)
{
    return bench_measure(argc, argv, true);
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "profile", profile_verb);
}
