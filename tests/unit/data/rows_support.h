/*
 * rows_support.h - the rows of a dataset plugin as one text, for tests of such plugins.
 */
#ifndef TESTS_DATA_ROWS_SUPPORT_H
#define TESTS_DATA_ROWS_SUPPORT_H
#include "data/reader.h"
#include "unit/data/support.h"

/* "line:JSON" of each row, each with a line end; an error is the last line, with the folder of the test left out.
 * `options` is JSON, or NULL. */
static inline char *rows_read(fixture *f, const char *reader_name, const char *options, const char *path)
{
    data_reader *reader = NULL;
    data_reader_choice choice = {.component.name = reader_name};
    void *range = NULL;
    buffer out = {0};
    if (options) choice.component.options = support_json(f, options);
    nrl_status st = data_reader_open(test_host(), &choice, path, 0, &reader);
    while (st == NRL_OK && (st = reader->table->next_range(reader->self, &range)) == NRL_OK && range) {
        const nrl_node *row = NULL;
        do {
            arena a = {0};
            st = reader->table->next_row(range, &a, &row);
            if (st == NRL_OK && row) {
                char *json = json_write(row, 0);
                buffer_print(&out, "%u:%s\n", row->line, json);
                free(json);
            }
            arena_free(&a);
        } while (st == NRL_OK && row);
        reader->table->close_range(range);
    }
    if (st != NRL_OK) {
        const char *text = nrl_error_text(), *at = strstr(text, f->dir);
        buffer_add(&out, text, at ? (size_t)(at - text) : strlen(text));
        if (at) buffer_puts(&out, at + strlen(f->dir) + 1);
        buffer_puts(&out, "\n");
    }
    data_reader_close(reader);
    return buffer_take(&out);
}

/* The rows of a file with these bytes begin with `expected`. */
static inline void rows_expect(fixture *f, const char *reader_name, const char *options, const char *name,
                               const void *bytes, size_t size, const char *expected)
{
    char *path = mem_printf("%s/%s", f->dir, name);
    support_write_bytes(path, bytes, size);
    char *got = rows_read(f, reader_name, options, path);
    if (strncmp(got, expected, strlen(expected)) != 0 || (!*expected && *got))
        fail_msg("got:\n%.2000s\nexpected:\n%.2000s", got, expected);
    free(got);
    free(path);
}

#endif
