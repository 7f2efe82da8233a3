/*
 * train_save.c - writes a trained vocabulary as tokenizer.json and tokenizer_config.json, as
 * Hugging Face's tokenizers and transformers read them. Ids: special tokens, the 256 bytes in the
 * order of their characters, then the merges in order of training.
 */
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "words.h"
#include "scan.h"
#include "train_parts.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The order of bytes in the vocabulary: by the character that stands for a byte. */
static void bytes_by_character(unsigned char order[256])
{
    int n = 0;
    for (int32_t c = 0; c <= 0x143; c++)
        if (char_to_byte(c) >= 0) order[n++] = (unsigned char)char_to_byte(c);
    NRL_ASSERT(n, ==, 256);
}

static void put_quoted(buffer *out, const char *text, size_t size)
{
    char *quoted = json_quote(text, size);
    buffer_puts(out, quoted);
    free(quoted);
}

static void put_token(const bpe_trainer *t, buffer *out, int32_t token)
{
    size_t size;
    const char *bytes = train_token_text(t, token, &size);
    buffer chars = {0};
    for (size_t i = 0; i < size; i++) {
        char c[4];
        buffer_add(&chars, c, utf8_write(byte_to_char((unsigned char)bytes[i]), c));
    }
    put_quoted(out, chars.text, chars.size);
    buffer_free(&chars);
}

static void put_added(const bpe_trainer *t, buffer *out)
{
    buffer_puts(out, "  \"added_tokens\": [");
    for (int32_t id = 0; id < t->special->words.n; id++) {
        size_t size;
        const char *text = vocab_text(&t->special->words, id, &size);
        buffer_print(out, "%s\n    {\"id\": %d, \"content\": ", id ? "," : "", id);
        put_quoted(out, text, size);
        buffer_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                         "\"normalized\": false, \"special\": true}");
    }
    buffer_puts(out, "],\n");
}

static void put_pre_tokenizer(const bpe_trainer *t, buffer *out)
{
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                     "\"trim_offsets\": true, \"use_regex\": ";
    buffer_puts(out, "  \"normalizer\": null,\n  \"pre_tokenizer\": ");
    if (t->pattern.kind == SPLIT_GPT2) {
        buffer_print(out, "%strue},\n", byte_level);
    } else {
        const char *pattern = t->pattern.max_digits == 1 ? scan_qwen2_pattern : scan_llama3_pattern;
        buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", "
                         "\"pattern\": {\"Regex\": ");
        put_quoted(out, pattern, strlen(pattern));
        buffer_print(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n    %sfalse}]},\n", byte_level);
    }
    buffer_print(out, "  \"post_processor\": null,\n  \"decoder\": %strue},\n", byte_level);
}

static void put_vocab(const bpe_trainer *t, buffer *out)
{
    unsigned char order[256];
    bytes_by_character(order);
    int32_t id = 0;
    for (; id < t->special->words.n; id++) {
        size_t size;
        const char *text = vocab_text(&t->special->words, id, &size);
        buffer_puts(out, id ? ", " : "");
        put_quoted(out, text, size);
        buffer_print(out, ": %d", id);
    }
    for (size_t i = 0; i < t->n_tokens; i++, id++) {
        buffer_puts(out, id ? ", " : "");
        put_token(t, out, i < 256 ? order[i] : (int32_t)i);
        buffer_print(out, ": %d", id);
    }
}

static void put_model(const bpe_trainer *t, buffer *out)
{
    buffer_puts(out, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                     "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                     "    \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
                     "    \"vocab\": {");
    put_vocab(t, out);
    buffer_puts(out, "},\n    \"merges\": [");
    for (size_t i = 256; i < t->n_tokens; i++) {
        buffer_puts(out, i > 256 ? ",\n      [" : "\n      [");
        put_token(t, out, t->tokens[i].left);
        buffer_puts(out, ", ");
        put_token(t, out, t->tokens[i].right);
        buffer_puts(out, "]");
    }
    buffer_puts(out, "]\n  }\n}\n");
}

/* The first special token ends texts, as <|endoftext|> does by the convention of GPT-2. */
static void put_config(const bpe_trainer *t, buffer *out)
{
    size_t size;
    const char *eos = vocab_text(&t->special->words, 0, &size);
    buffer_puts(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                     "  \"clean_up_tokenization_spaces\": false");
    if (eos) {
        buffer_puts(out, ",\n  \"eos_token\": ");
        put_quoted(out, eos, size);
    }
    buffer_puts(out, "\n}\n");
}

static const char *const train_names[] = {"tokenizer.json", "tokenizer_config.json"};

nrl_status train_check_folder(const bpe_trainer *t, const char *folder)
{
    nrl_status st = NRL_OK;
    for (int i = 0; i < 2 && st == NRL_OK; i++) {
        struct stat s;
        char *path = mem_printf("%s/%s", folder, train_names[i]);
        if (t->may_write) st = t->may_write(t->user, path);
        if (st == NRL_OK && !t->overwrite && !lstat(path, &s))
            st = nrl_fail(NRL_ERR_CONFIG,
                          "'%s' already holds a tokenizer\nhint: overwrite replaces it, another directory keeps both",
                          folder);
        free(path);
    }
    return st;
}

/* Writes a temporary file and renames it, so that readers find either the old or the new file,
 * complete. */
static nrl_status write_file(const char *folder, const char *name, const buffer *text)
{
    char *path = mem_printf("%s/%s", folder, name), *temporary = file_temporary_name(path, ".tmp");
    FILE *f = fopen(temporary, "wbex");
    bool ok = f && fwrite(text->text, 1, text->size, f) == text->size;
    if (f && fclose(f)) ok = false;
    if (ok && rename(temporary, path)) ok = false;
    nrl_status st = NRL_OK;
    if (!ok)
        st = nrl_fail(errno == ENOSPC || errno == EFBIG ? NRL_ERR_FULL : NRL_ERR_IO, "cannot write %s: %s", path,
                      strerror(errno));
    if (!ok) unlink(temporary);
    free(temporary);
    free(path);
    return st;
}

nrl_status train_save(const bpe_trainer *t, const char *folder)
{
    if (mkdir(folder, 0777) && errno != EEXIST)
        return nrl_fail(NRL_ERR_IO, "cannot create %s: %s", folder, strerror(errno));
    buffer json = {0}, config = {0};
    buffer_puts(&json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(t, &json);
    put_pre_tokenizer(t, &json);
    put_model(t, &json);
    put_config(t, &config);
    nrl_status st = write_file(folder, train_names[0], &json);
    if (st == NRL_OK) st = write_file(folder, train_names[1], &config);
    buffer_free(&json);
    buffer_free(&config);
    return st;
}
