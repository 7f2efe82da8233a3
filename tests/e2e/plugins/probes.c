/*
 * probes.c - a plugin that opens, and harms the process that calls its probe; IS_KIND selects the kind, ENDS the way.
 */
#include <nrl/nrl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { CRASH, LEAVE, HANG };

static int32_t end_the_process(void)
{
    const int way = ENDS;
    if (way == CRASH) raise(SIGSEGV);
    if (way == LEAVE) exit(0);
    for (;;)
        sleep(1000);
}

static void never(void)
{
    abort();
}

#define PLUGIN(KIND, T) NRL_PLUGIN_PLAIN(NRL_KIND_##KIND, T, PROBES_NAME, "0.1", "harms whoever calls its probe")
#define PROBE .probe = (void *)end_the_process /* of any kind: it does not look at its arguments */
#define NEVER(member) .member = (void *)never

#if defined(IS_datasets)
static const nrl_dataset table = {PLUGIN(DATASET, nrl_dataset),
                                  PROBE,
                                  NEVER(open),
                                  NEVER(close),
                                  NEVER(info),
                                  NEVER(next_range),
                                  NEVER(next_row),
                                  NEVER(close_range)};
#elif defined(IS_tokenizers)
static const nrl_tokenizer table = {PLUGIN(TOKENIZER, nrl_tokenizer),
                                    PROBE,
                                    NEVER(open),
                                    NEVER(close),
                                    NEVER(info),
                                    NEVER(encode),
                                    NEVER(decode),
                                    NEVER(decode_next),
                                    NEVER(token_id),
                                    NEVER(token_text)};
#elif defined(IS_templates)
static const nrl_template table = {PLUGIN(TEMPLATE, nrl_template), PROBE, NEVER(open), NEVER(close), NEVER(render)};
#elif defined(IS_formats)
static const nrl_format table = {PLUGIN(FORMAT, nrl_format),
                                 .holds = NRL_HOLDS_MODEL,
                                 PROBE,
                                 NEVER(open),
                                 NEVER(close),
                                 NEVER(info),
                                 NEVER(load),
                                 NEVER(n_tensors),
                                 NEVER(tensor),
                                 NEVER(read)};
#elif defined(IS_stores)
static const nrl_store_plugin table = {PLUGIN(STORE, nrl_store_plugin),
                                       PROBE,
                                       NEVER(open),
                                       NEVER(close),
                                       NEVER(set),
                                       NEVER(get),
                                       NEVER(set_once),
                                       NEVER(remove)};
#elif defined(IS_frontends)
static const nrl_frontend table = {PLUGIN(FRONTEND, nrl_frontend), PROBE, NEVER(run)};
#else
static const nrl_ops no_ops;
static const nrl_backend table = {PLUGIN(BACKEND, nrl_backend),
                                  .plugin.priority = 1000000,
                                  .ops = &no_ops,
                                  .delegate = "cpu",
                                  PROBE,
                                  NEVER(open),
                                  NEVER(close),
                                  NEVER(info),
                                  NEVER(alloc),
                                  NEVER(free),
                                  NEVER(copy)};
#endif
NRL_EXPORT(table)
