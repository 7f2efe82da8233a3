/*
 * reader.c - see reader.h.
 */
#include "data/reader.h"
#include "base/json.h"
#include <stdlib.h>
#include <sys/stat.h>

static int32_t reader_probe(const plugin *p, const void *source)
{
    return ((const nrl_dataset *)p->table)->probe(source);
}

/* Finds the plugin that the config names, or else the first whose probe is certain, or the most certain one. */
static nrl_status reader_find(plugin_host *host, const data_reader_choice *choice, const nrl_dataset_source *source,
                              const plugin **out)
{
    buffer asked = {0};
    if (choice->component.name) return plugin_open(host, NRL_KIND_DATASET, choice->component.name, out);
    /* The libraries of some readers take long to load. */
    *out = plugin_find(host, NRL_KIND_DATASET, NRL_PROBE_YES, reader_probe, source, &asked);
    nrl_status st = *out ? NRL_OK
                         : nrl_fail(NRL_ERR_CONFIG,
                                    "cannot read '%s': no dataset plugin recognises it; tried: %s\n"
                                    "hint: {path: PATH, reader: PLUGIN} selects the plugin",
                                    source->path, asked.text ? asked.text : "none is installed");
    buffer_free(&asked);
    return st;
}

bool data_reader_reads_folder(plugin_host *host, const data_reader_choice *choice, const char *path)
{
    const nrl_dataset_source source = {.size = sizeof source, .path = path};
    const plugin *p;
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode) && reader_find(host, choice, &source, &p) == NRL_OK &&
           plugin_ask(host, p, reader_probe, &source, NRL_PROBE_NO) >= NRL_PROBE_PERHAPS;
}

nrl_status data_reader_open(plugin_host *host, const data_reader_choice *choice, const char *path, uint32_t flags,
                            data_reader **out)
{
    const nrl_dataset_source source = {.size = sizeof source, .flags = flags, .path = path};
    const plugin *p;
    NRL_TRY(reader_find(host, choice, &source, &p));
    data_reader *r = mem_alloc(sizeof *r);
    config_problems problems = {0};
    config_component component = choice->component;
    component.name = p->name;
    component.resolved = node_new(&r->memory, NRL_NODE_MAP);
    plugin_options(&r->memory, &problems, "reader", &component, NULL, p, &r->filled);
    nrl_status st = problems_report(&problems);
    r->table = (const nrl_dataset *)p->table;
    r->path = path;
    r->flags = flags;
    if (st == NRL_OK) st = data_reader_start(r);
    if (st != NRL_OK) {
        arena_free(&r->memory);
        free(r);
        return st;
    }
    char *text = json_write(component.resolved, 0);
    r->plugin = arena_printf(&r->memory, "%s %s", p->name, p->table->version);
    r->options = arena_strdup(&r->memory, text);
    free(text);
    r->info = (nrl_dataset_info){.size = sizeof r->info, .rows = -1, .bytes = -1};
    r->table->info(r->self, &r->info);
    *out = r;
    return NRL_OK;
}
