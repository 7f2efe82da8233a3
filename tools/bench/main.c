/*
 * main.c - `nrl bench`: speed, memory and time by phase of a config.
 */
#include "bench.h"
#include "cli/common/cli.h"

static nrl_status bench_verb(int argc, char **argv)
{
    return bench_measure(argc, argv, false);
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "bench", bench_verb);
}
