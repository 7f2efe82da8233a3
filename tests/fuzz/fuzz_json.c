/*
 * fuzz_json.c - any bytes: JSON is refused, or it is written and reads back as the same text.
 */
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a = {0};
    nrl_node *node, *again;
    if (json_parse(&a, "fuzz", (const char *)data, size, &node) == NRL_OK) {
        char *once = json_write(node, 0);
        NRL_ASSERT(json_parse(&a, "again", once, strlen(once), &again), ==, NRL_OK);
        char *twice = json_write(again, 0);
        NRL_ASSERT(strcmp(once, twice), ==, 0);
        free(once);
        free(twice);
    }
    arena_free(&a);
    return 0;
}
