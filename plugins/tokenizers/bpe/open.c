/*
 * open.c - opens a tokenizer: finds, reads and hashes its files, and fills the info of an open
 * tokenizer.
 */
#include "base/file.h"
#include "base/json.h"
#include "cursor.h"
#include "load.h"
#include "new_tokens.h"
#include "regex.h"
#include "roles.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_FILE = 512 << 20, MAX_COMPANION = 64 << 20 };

static bpe_tokenizer *create(const char *source)
{
    bpe_tokenizer *tok = mem_alloc(sizeof *tok);
    tok->source = arena_strdup(&tok->memory, source);
    tok->bos = tok->pad = tok->unk = NRL_TOKEN_NONE;
    memset(tok->byte_ids, 0xff, sizeof tok->byte_ids);
    tok->hashing = XXH3_createState();
    XXH3_128bits_reset(tok->hashing);
    return tok;
}

void bpe_close(bpe_tokenizer *tok)
{
    if (!tok) return;
    for (size_t i = 0; i < tok->n_normal; i++)
        regex_destroy(tok->normal[i].pattern);
    for (size_t i = 0; i < tok->n_split; i++)
        regex_destroy(tok->split[i].pattern);
    XXH3_freeState(tok->hashing);
    vocab_free(&tok->words);
    merge_table_free(&tok->merges);
    trie_free(&tok->raw);
    trie_free(&tok->normalized);
    free(tok->added);
    arena_free(&tok->memory);
    free(tok);
}

/* The size is hashed too, so that moving a byte from one file to the next changes the hash. */
static void hash_bytes(bpe_tokenizer *tok, const char *bytes, size_t size)
{
    uint64_t n = size;
    XXH3_128bits_update(tok->hashing, &n, sizeof n);
    XXH3_128bits_update(tok->hashing, bytes, size);
}

static void finish_hash(bpe_tokenizer *tok)
{
    XXH128_hash_t h = XXH3_128bits_digest(tok->hashing);
    tok->key[0] = h.low64;
    tok->key[1] = h.high64;
    snprintf(tok->hash, sizeof tok->hash, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

/* ---- the tokenizer's own file ---- */

static nrl_status load_bytes(bpe_tokenizer *tok, const char *source, const char *bytes, size_t size)
{
    size_t i = 0;
    while (i < size && strchr(" \t\r\n", bytes[i]) && bytes[i])
        i++;
    hash_bytes(tok, bytes, size);
    if (i < size && bytes[i] == '{') return load_json(tok, source, bytes, size);
    if (load_is_tiktoken(bytes, size)) return load_tiktoken(tok, source, bytes, size);
    return load_sentencepiece(tok, source, bytes, size);
}

static nrl_status load_file(bpe_tokenizer *tok, const char *path)
{
    char *bytes;
    size_t size;
    NRL_TRY(file_read(path, MAX_FILE, &bytes, &size));
    nrl_status st = load_bytes(tok, arena_strdup(&tok->memory, path), bytes, size);
    free(bytes);
    return st;
}

nrl_status bpe_open_memory(const char *source, const char *bytes, size_t size, bpe_tokenizer **out)
{
    bpe_tokenizer *tok = create(source);
    nrl_status st = load_bytes(tok, tok->source, bytes, size);
    if (st == NRL_OK) st = added_index(tok);
    if (st != NRL_OK) {
        bpe_close(tok);
        return st;
    }
    bpe_fill_named(tok);
    finish_hash(tok);
    *out = tok;
    return NRL_OK;
}

/* ---- files in a directory ---- */

static const char *path_in(bpe_tokenizer *tok, const char *name)
{
    return arena_printf(&tok->memory, "%s/%s", tok->folder, name);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Only these members are read: others may contain numbers that do not fit any integer type
 * (model_max_length is 1e30, written out). */
static const char *const wanted[] = {"added_tokens_decoder",
                                     "tokenizer_class",
                                     "bos_token",
                                     "eos_token",
                                     "pad_token",
                                     "unk_token",
                                     "sep_token",
                                     "cls_token",
                                     "mask_token",
                                     "additional_special_tokens",
                                     "extra_special_tokens",
                                     "add_bos_token",
                                     "add_eos_token",
                                     "chat_template",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "pad_token_id"};
enum { N_WANTED = sizeof wanted / sizeof *wanted };

static nrl_status parse_wanted(bpe_tokenizer *tok, const char *path, const char *text, size_t size, nrl_node **out)
{
    cursor_member members[N_WANTED] = {0};
    cursor c = {path, text, text, text + size};
    NRL_TRY(cursor_members(&c, wanted, N_WANTED, members, NULL));
    buffer small = {0};
    buffer_puts(&small, "{");
    for (int i = 0; i < N_WANTED; i++) {
        if (!members[i].text) continue;
        buffer_print(&small, "%s\"%s\":", small.size > 1 ? "," : "", wanted[i]);
        buffer_add(&small, members[i].text, members[i].size);
    }
    buffer_puts(&small, "}");
    nrl_status st = json_parse(&tok->memory, path, small.text, small.size, out);
    buffer_free(&small);
    return st == NRL_OK ? NRL_OK : json_parse(&tok->memory, path, text, size, out); /* with the lines of the file */
}

static nrl_status read_companion(bpe_tokenizer *tok, const char *name, bool hashed, bool whole, const nrl_node **out)
{
    const char *path = path_in(tok, name);
    char *text;
    size_t size;
    nrl_node *node = NULL;
    *out = NULL;
    if (!exists(path)) return NRL_OK;
    NRL_TRY(file_read(path, MAX_COMPANION, &text, &size));
    if (hashed) hash_bytes(tok, text, size);
    nrl_status st =
        whole ? json_parse(&tok->memory, path, text, size, &node) : parse_wanted(tok, path, text, size, &node);
    free(text);
    if (st == NRL_OK && nrl_node_kind(node) != NRL_NODE_MAP) st = nrl_fail(NRL_ERR_DATA, "%s: expected a map", path);
    *out = node;
    return st;
}

static nrl_status read_companions(bpe_tokenizer *tok, companions *c)
{
    NRL_TRY(read_companion(tok, "tokenizer_config.json", true, false, &c->config));
    NRL_TRY(read_companion(tok, "special_tokens_map.json", true, false, &c->special));
    NRL_TRY(read_companion(tok, "added_tokens.json", true, true, &c->added));
    NRL_TRY(read_companion(tok, "generation_config.json", true, false, &c->generation));
    return read_companion(tok, "config.json", false, false, &c->model);
}

static nrl_status load_pair_of(bpe_tokenizer *tok, const char *folder_vocab, const char *folder_merges,
                               const companions *c)
{
    char *vocab_bytes = NULL, *merges = NULL;
    size_t vocab_size = 0, merges_size = 0;
    nrl_status st;
    NRL_TRY_DONE(file_read(folder_vocab, MAX_FILE, &vocab_bytes, &vocab_size));
    NRL_TRY_DONE(file_read(folder_merges, MAX_FILE, &merges, &merges_size));
    hash_bytes(tok, vocab_bytes, vocab_size);
    hash_bytes(tok, merges, merges_size);
    st = load_pair(tok, folder_vocab, vocab_bytes, vocab_size, folder_merges, merges, merges_size,
                   nrl_node_string(nrl_node_find(c->config, "tokenizer_class"), NULL));
done:
    free(vocab_bytes);
    free(merges);
    return st;
}

/* "a/vocab.json" to "a/merges.txt", "a/x_vocab.json" to "a/x_merges.txt" and back; NULL if neither.
 */
static const char *other_of_pair(bpe_tokenizer *tok, const char *path, bool *is_vocab)
{
    static const char *const ends[2] = {"vocab.json", "merges.txt"};
    size_t n = strlen(path);
    for (int i = 0; i < 2; i++) {
        size_t m = strlen(ends[i]);
        if (n < m || strcmp(path + n - m, ends[i])) continue;
        *is_vocab = !i;
        const char *other = arena_printf(&tok->memory, "%.*s%s", (int)(n - m), path, ends[!i]);
        return exists(other) ? other : NULL;
    }
    return NULL;
}

static nrl_status load_folder(bpe_tokenizer *tok, const companions *c)
{
    static const char *const single[] = {"tokenizer.json", "tokenizer.model"};
    for (int i = 0; i < 2; i++)
        if (exists(path_in(tok, single[i]))) return load_file(tok, path_in(tok, single[i]));
    const char *words = path_in(tok, "vocab.json"), *merges = path_in(tok, "merges.txt");
    if (exists(words) && exists(merges)) return load_pair_of(tok, words, merges, c);
    return nrl_fail(NRL_ERR_IO,
                    "%s: found no tokenizer, expected tokenizer.json, tokenizer.model or "
                    "vocab.json with merges.txt",
                    tok->folder);
}

/* A file chat_template.jinja overrides tokenizer_config.json. */
static nrl_status read_jinja(bpe_tokenizer *tok, const char *name, const char **out)
{
    const char *path = path_in(tok, name);
    char *text;
    size_t size;
    if (!exists(path)) return NRL_OK;
    NRL_TRY(file_read(path, MAX_COMPANION, &text, &size));
    hash_bytes(tok, text, size);
    *out = arena_strndup(&tok->memory, text, size);
    free(text);
    return NRL_OK;
}

static nrl_status read_template(bpe_tokenizer *tok, const companions *c)
{
    const nrl_node *n = nrl_node_find(c->config, "chat_template");
    tok->chat_template = nrl_node_string(n, NULL);
    for (size_t i = 0; nrl_node_kind(n) == NRL_NODE_LIST && i < nrl_node_size(n); i++) {
        const nrl_node *entry = nrl_node_at(n, i), *text = nrl_node_find(entry, "template");
        const char *name = nrl_node_string(nrl_node_find(entry, "name"), "");
        if (!strcmp(name, "default")) tok->chat_template = nrl_node_string(text, NULL);
        if (!strcmp(name, "tool_use")) tok->tools_template = nrl_node_string(text, NULL);
    }
    tok->config = c->config;
    tok->special = c->special;
    NRL_TRY(read_jinja(tok, "chat_template.jinja", &tok->chat_template));
    return read_jinja(tok, "additional_chat_templates/tool_use.jinja", &tok->tools_template);
}

/* A tokenizer.json that is named as a file gives exactly its own ids (Tokenizer.from_file). A
 * directory, or a format that cannot contain added tokens, is completed from the files beside it
 * (AutoTokenizer). */
static nrl_status open_path(bpe_tokenizer *tok, const char *path, bool is_folder, const nrl_node *add_tokens)
{
    companions c = {0};
    bool is_vocab = true;
    NRL_TRY(read_companions(tok, &c));
    const char *pair = is_folder ? NULL : other_of_pair(tok, path, &is_vocab);
    if (is_folder)
        NRL_TRY(load_folder(tok, &c));
    else if (pair)
        NRL_TRY(load_pair_of(tok, is_vocab ? path : pair, is_vocab ? pair : path, &c));
    else
        NRL_TRY(load_file(tok, path));
    size_t n = strlen(path);
    bool complete = is_folder || n < 5 || strcmp(path + n - 5, ".json") || pair;
    if (complete) NRL_TRY(roles_add_tokens(tok, &c));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool is_json = is_folder ? exists(path_in(tok, "tokenizer.json")) : !strcmp(name, "tokenizer.json");
    NRL_TRY(new_tokens_add(tok, add_tokens, is_json));
    for (size_t i = 0; i < nrl_node_size(tok->new_tokens); i++) {
        const nrl_node *row = nrl_node_at(tok->new_tokens, i), *content = nrl_node_find(row, "content");
        hash_bytes(tok, nrl_node_string(content, ""), nrl_node_string_size(content));
        hash_bytes(tok, nrl_node_bool(nrl_node_find(row, "special"), false) ? "special" : "regular", 7);
    }
    NRL_TRY(added_index(tok));
    NRL_TRY(read_template(tok, &c));
    return roles_fill(tok, &c, complete, is_json);
}

static const char *folder_of(bpe_tokenizer *tok, const char *path, bool is_folder)
{
    size_t n = strlen(path);
    while (is_folder && n > 1 && path[n - 1] == '/')
        n--;
    if (is_folder) return arena_strndup(&tok->memory, path, n);
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(&tok->memory, path, (size_t)(slash - path)) : ".";
}

/* Checks the first bytes of a file: JSON, a line of base64, or a field of a SentencePiece model. */
static bool looks_right(const char *path)
{
    char head[4096];
    FILE *f = fopen(path, "rbe");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0, i = 0;
    if (f) fclose(f);
    while (i < n && strchr(" \t\r\n", head[i]) && head[i])
        i++;
    return i < n && (head[i] == '{' || head[0] == 0x0a || load_is_tiktoken(head, n));
}

int32_t bpe_probe(const char *path)
{
    static const char *const ends[] = {"tokenizer.json", "vocab.json", "merges.txt", ".model", ".tiktoken"};
    static const char *const files[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    struct stat info;
    if (stat(path, &info)) return NRL_PROBE_NO;
    if (S_ISDIR(info.st_mode)) {
        char name[4096];
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (snprintf(name, sizeof name, "%s/%s", path, files[i]) < (int)sizeof name && exists(name))
                return NRL_PROBE_YES;
        return NRL_PROBE_NO;
    }
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n >= strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i])) return NRL_PROBE_YES;
    return looks_right(path) ? NRL_PROBE_PERHAPS : NRL_PROBE_NO;
}

nrl_status bpe_open(const char *path, const nrl_node *add_tokens, bpe_tokenizer **out)
{
    struct stat info;
    if (stat(path, &info))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO,
                        "%s: %s, expected a tokenizer", path, strerror(errno));
    bpe_tokenizer *tok = create(path);
    tok->folder = folder_of(tok, path, S_ISDIR(info.st_mode));
    nrl_status st = open_path(tok, path, S_ISDIR(info.st_mode), add_tokens);
    if (st != NRL_OK) {
        bpe_close(tok);
        return st;
    }
    bpe_fill_named(tok);
    finish_hash(tok);
    *out = tok;
    return NRL_OK;
}
