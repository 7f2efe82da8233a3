/*
 * parallel.h - a plugin of a kind that has no suite.
 */
#ifndef WRONG_PARALLEL_H
#define WRONG_PARALLEL_H
#include <nrl/nrl.h>

#define WRONG(nm, rule)                                                                            \
    {                                                                                              \
        NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, #nm, "0", rule)                          \
    }
static const nrl_parallel wrong[] = {
    WRONG(untested, "nobody asks"),
};
#undef WRONG

#endif
