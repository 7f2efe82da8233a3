/*
 * serve.c - see serve.h.
 */
#include "text/serve.h"

nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options)
{
    config_problems problems = {0};
    const config_component c = {
        .name = p->name, .at = choice->at, .options = choice->options, .resolved = choice->resolved};
    plugin_options(a, &problems, section, &c, NULL, p, options);
    return problems_report(&problems);
}
