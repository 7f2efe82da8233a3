/*
 * serve.c - see serve.h. Plugins after one that is certain are not opened.
 */
#include "text/serve.h"

const plugin *serve_find(plugin_host *host, uint32_t kind, serve_probe probe, const void *source, buffer *asked)
{
    arena a = {0};
    const char **names;
    const plugin *p, *found = NULL;
    size_t n = plugin_names(host, &a, kind, &names);
    int32_t best = NRL_PROBE_NO;
    for (size_t i = 0; i < n && best < NRL_PROBE_YES; i++) {
        if (plugin_open_candidate(host, kind, names[i], &p) != NRL_OK) {
            buffer_print(asked, "%s%s cannot be used: %s", asked->size ? "; " : "", names[i], nrl_error_text());
            continue;
        }
        buffer_print(asked, "%s%s", asked->size ? ", " : "", names[i]);
        int32_t sure = probe(p, source);
        if (sure <= best) continue;
        best = sure;
        found = p;
    }
    arena_free(&a);
    return found;
}

nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options)
{
    config_problems problems = {0};
    const config_component c = {
        .name = p->name, .at = choice->at, .options = choice->options, .resolved = choice->resolved};
    plugin_options(a, &problems, section, &c, NULL, p, options);
    return problems_report(&problems);
}
