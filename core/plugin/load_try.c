/*
 * load_try.c - plugin files and probes in a child process.
 */
#include "plugin/load.h"
#include "base/apart.h"

typedef struct {
    load_trial *list;
    load_describe *describe;
} trials;

/* In the child. */
static int32_t try_one(void *user, size_t i, char **text)
{
    const trials *all = user;
    const load_trial *t = &all->list[i];
    const nrl_plugin *table;
    arena a = {0};
    nrl_fail(NRL_OK, "%s", "");
    int32_t answer = t->ask ? t->ask(t->asked, t->user) : (int32_t)load_table(&a, t->path, t->kind, t->name, &table);
    *text = !t->ask && answer == NRL_OK && all->describe ? all->describe(table) : mem_strdup(nrl_error_text());
    arena_free(&a);
    return answer;
}

void load_try(arena *a, load_trial *list, size_t n, load_describe *describe, double seconds)
{
    trials all = {list, describe};
    apart_result *results = arena_alloc(a, (n + 1) * sizeof *results);
    apart_calls(a, try_one, &all, n, n && list->ask ? "in its probe" : "when it is opened", seconds, results);
    for (size_t i = 0; i < n; i++) {
        list[i].answer = results[i].answer;
        list[i].text = results[i].text;
        list[i].status = !results[i].returned ? NRL_ERR_PLUGIN : list[i].ask ? NRL_OK : (nrl_status)results[i].answer;
    }
}
