/*
 * fuzz_yaml.c - any bytes: a config is refused or read. The result passes through substitution and
 * the whole schema, and as YAML text it reads back as the same text.
 */
#include "config/config.h"
#include "config/schema.h"
#include "base/yaml.h"
#include <stdlib.h>
#include <string.h>

static const char *lookup(const char *name)
{
    return *name == 'A' ? "1e-3" : NULL;
}

static void write_and_read(arena *a, const nrl_node *map)
{
    nrl_node *again;
    char *once = yaml_write(map);
    nrl_status st = yaml_parse(a, "again", once, strlen(once), &again);
    if (st == NRL_OK) { /* a text larger than the limit is refused */
        char *twice = yaml_write(again);
        NRL_ASSERT(strcmp(once, twice), ==, 0);
        free(twice);
    } else {
        NRL_ASSERT(strlen(once), >, YAML_MAX_BYTES);
    }
    free(once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a = {0};
    config_problems problems = {0};
    static const char *const adapters[] = {"a"};
    const char *section;
    config_run run;
    nrl_node *root;
    if (yaml_parse(&a, "fuzz", (const char *)data, size, &root) == NRL_OK && root->kind == NRL_NODE_MAP) {
        write_and_read(&a, root);
        config_substitute(&a, &problems, root, lookup);
        config_fill(&a, &problems, root, &run);
        const nrl_node *folded = config_fold_adapter(&a, &problems, adapters, 1, root, &section);
        config_fill_adapter(&a, &problems, folded, section, &run);
        problems_report(&problems);
    }
    arena_free(&a);
    return 0;
}
