/*
 * reader.c - see reader.h.
 */
#include "tokens/reader.h"
#include <stdlib.h>

nrl_status data_reader_start(data_reader *r)
{
    const nrl_dataset_source source = {.size = sizeof source, .flags = r->flags, .path = r->path};
    return r->self ? NRL_OK : r->table->open(r->filled, &source, &r->self);
}

void data_reader_stop(data_reader *r)
{
    if (r->self) r->table->close(r->self);
    r->self = NULL;
}

void data_reader_close(data_reader *r)
{
    if (!r) return;
    data_reader_stop(r);
    arena_free(&r->memory);
    free(r);
}
