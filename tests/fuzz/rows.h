/*
 * rows.h - any bytes as a data file: rows, formats, messages, tokens. The first byte selects single samples or pairs,
 * the template, and the handling of long rows. FUZZ_READER is the dataset plugin; FUZZ_OPTIONS, if defined, are its
 * options as JSON, one of which the second byte selects.
 */
#ifndef FUZZ_ROWS_H
#define FUZZ_ROWS_H
#include "base/arena.h"
#include "base/buffer.h"
#include "base/json.h"
#include "data/reader.h"
#include "tokens/build.h"
#include "support/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A tokenizer of single bytes, opened once. */
static const tokenizer *byte_tokenizer(void)
{
    static tokenizer *tok;
    if (tok) return tok;
    buffer b = {0};
    buffer_puts(&b, "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (int i = 0; i < 256; i++) {
        int c = i;
        bool self = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        if (!self) c = i <= 0x20 ? 0x100 + i : i == 0xad ? 0x143 : 0x121 + (i - 0x7f);
        buffer_print(&b, "%s\"\\u%04x\": %d", i ? "," : "", (unsigned)c, i);
    }
    buffer_puts(&b, "}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
                    "\"added_tokens\": [{\"id\": 256, \"content\": \"<|im_start|>\", \"special\": true},"
                    "{\"id\": 257, \"content\": \"<|im_end|>\", \"special\": true}]}");
    if (test_tokenizer_bytes("fuzz", b.text, b.size, &tok) != NRL_OK) abort();
    buffer_free(&b);
    return tok;
}

/* Each opened once; NULL where the tokenizer has not what it needs. */
static const chat_template *template_at(int i)
{
    static const char *const words[] = {"chatml", "plain", "mistral", "auto"};
    static const chat_template *templates[4];
    static bool tried[4];
    if (!tried[i] && test_template_open(words[i], byte_tokenizer(), &templates[i]) != NRL_OK) templates[i] = NULL;
    tried[i] = true;
    return templates[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    data_schema schema;
    bool pairs = data[0] & 1, labels = !pairs && data[0] & 64;
    if (data_schema_set(&schema, NULL, NULL, pairs, labels, !pairs && !labels) != NRL_OK) abort();
    data_build_options o = {.name = "fuzz", .schema = &schema};
    o.encode = (data_encode_options){.tokenizer = byte_tokenizer(),
                                     .vocab_size = 258,
                                     .template = template_at(data[0] >> 1 & 3),
                                     .max_length = data[0] & 8 ? 20 : 0,
                                     .overlong = data[0] >> 4 & 1  ? DATA_OVERLONG_TRUNCATE
                                                 : pairs || labels ? DATA_OVERLONG_DROP
                                                                   : DATA_OVERLONG_SPLIT,
                                     .train_on_all = data[0] & 32};
    char path[64];
    data_reader *reader;
    data_cache_writer *writer;
    data_cache cache = {0};
    static const char *const options[] = {FUZZ_OPTIONS};
    const size_t n_options = sizeof options / sizeof *options;
    const char *text = options[size > 1 ? data[1] % n_options : 0];
    arena memory = {0};
    nrl_node *node;
    if (json_parse(&memory, "options", text, strlen(text), &node) != NRL_OK) abort();
    const data_reader_choice choice = {.component = {.name = FUZZ_READER, .options = node}};
    const size_t skip = size > 1 && n_options > 1 ? 2 : 1;
    int fd = memfd_create("rows", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + skip, size - skip) != (ssize_t)(size - skip)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (data_reader_open(test_host(), &choice, path, 0, &reader) != NRL_OK) abort();
    if (data_cache_create(NULL, true, "fuzz", &writer) != NRL_OK) abort();
    if (data_build(&o, reader, writer, &cache) == NRL_OK)
        for (int64_t i = 0; i < cache.header->n_examples * cache.header->n_sides; i++)
            if (cache.index[i].n_trained < 1) abort();
    data_cache_close(&cache);
    data_reader_close(reader);
    close(fd);
    arena_free(&memory);
    return 0;
}

#endif
