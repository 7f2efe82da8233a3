/*
 * tokenizer_train.c - `nrl tokenizer train`: counts the words of files, trains, saves. A plain file
 * is one text, read in shards; with --jsonl each row is a text of its own.
 */
#include "base/inputs.h"
#include "base/node.h"
#include "cli/common/experiment.h"
#include "tokenizer_verb.h"
#include <errno.h>
#include <nrl/host.h>
#include <nrl/tokenizer.h>
#include <stdlib.h>
#include <string.h>

static nrl_status whole_number(const char *text, const char *name, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (!*text || *end || errno) return nrl_fail(NRL_ERR_CONFIG, "%s: '%s', expected a whole number", name, text);
    *out = v;
    return NRL_OK;
}

/* A plugin that trains, and what it has counted so far. */
typedef struct {
    nrl_component *plugin;
    const nrl_tokenizer *table;
    void *of_plugin;
} trainer;

/* Opens the plugin with that name; NULL: the first plugin in name order that can train. */
static nrl_status trainer_open(arena *a, const char *name, const nrl_train_tokenizer *what, trainer *t)
{
    nrl_environment env;
    experiment_environment(a, &env);
    const char *const *names = nrl_plugin_names(&env, NRL_KIND_TOKENIZER, a);
    for (const char *one = name ? name : *names; one; one = name ? NULL : *++names) {
        nrl_component *c;
        nrl_status st = nrl_component_open(&env, NRL_KIND_TOKENIZER, "tokenizer", node_text(a, one), &c);
        if (st != NRL_OK && !name) continue; /* another plugin may be able to train */
        if (st != NRL_OK) return st;
        t->table = (const nrl_tokenizer *)nrl_component_table(c);
        t->plugin = c;
        if (t->table->train_begin) return t->table->train_begin(nrl_component_options(c), what, &t->of_plugin);
        nrl_component_close(c);
        *t = (trainer){0};
    }
    return nrl_fail(NRL_ERR_CONFIG, "cannot train a tokenizer: %s%s",
                    name ? "no training support in plugin " : "no tokenizer plugin with training support is installed",
                    name ? name : "");
}

static void trainer_close(trainer *t)
{
    if (t->of_plugin) t->table->train_end(t->of_plugin);
    nrl_component_close(t->plugin);
}

static nrl_status trainer_add(trainer *t, const char *text, size_t size)
{
    return t->table->train_add(t->of_plugin, text, size);
}

/* A position near the end that does not split a word of the known patterns: before a space between
 * two visible ASCII characters. */
static size_t safe_cut(const char *text, size_t size)
{
    for (size_t i = size - 1; i > size / 2; i--)
        if (text[i - 1] == ' ' && i > 1 && text[i - 2] > ' ' && text[i] > ' ') return i - 1;
    size_t i = size;
    while (i > 1 && ((unsigned char)text[i - 1] & 0xc0) == 0x80)
        i--;
    return i > 1 ? i - 1 : size;
}

/* A plain text is counted whole, in shards of bounded size. */
static nrl_status count_file(trainer *t, cli_lines *s)
{
    char *text = mem_alloc(CLI_MAX_LINE);
    size_t n = 0, got;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && (got = fread(text + n, 1, CLI_MAX_LINE - n, s->file)) > 0) {
        n += got;
        if (n < CLI_MAX_LINE) continue;
        size_t cut = safe_cut(text, n);
        st = trainer_add(t, text, cut);
        memmove(text, text + cut, n - cut);
        n -= cut;
    }
    if (st == NRL_OK && ferror(s->file)) st = nrl_fail(NRL_ERR_IO, "cannot read %s: %s", s->name, strerror(errno));
    if (st == NRL_OK && n) st = trainer_add(t, text, n);
    free(text);
    return st;
}

static nrl_status count_rows(trainer *t, cli_lines *s)
{
    arena memory = {0};
    bool more = true;
    nrl_status st = NRL_OK;
    while (st == NRL_OK) {
        const nrl_node *text = NULL;
        st = cli_lines_next(s, &more);
        if (st != NRL_OK || !more) break;
        st = cli_row_member(s, &memory, "text", NRL_NODE_STRING, &text);
        if (st == NRL_OK) st = trainer_add(t, nrl_node_string(text, ""), nrl_node_string_size(text));
        arena_reset(&memory);
    }
    arena_free(&memory);
    return st;
}

static nrl_status count_files(const tokenizer_verb *a, trainer *t)
{
    for (int i = 0; i < a->n_files; i++) {
        cli_lines s;
        NRL_TRY(cli_lines_open(&s, a->files[i]));
        nrl_status st = a->jsonl ? count_rows(t, &s) : count_file(t, &s);
        cli_lines_close(&s);
        NRL_TRY(st);
    }
    return NRL_OK;
}

/* "a,b" to {"a", "b"}; the texts live in `list`. */
static const char **split_list(char *list, size_t *n)
{
    const char **parts = mem_alloc((strlen(list) + 1) * sizeof *parts);
    for (char *save = NULL, *part = strtok_r(list, ",", &save); part; part = strtok_r(NULL, ",", &save))
        parts[(*n)++] = part;
    return parts;
}

/* An input file must not be overwritten. */
static nrl_status may_write(void *texts, const char *path)
{
    return inputs_check_file(texts, path);
}

nrl_status cli_tokenizer_train(const tokenizer_verb *a)
{
    if (!a->vocab_size || !a->out) return nrl_fail(NRL_ERR_CONFIG, "tokenizer train: expected --vocab-size and --out");
    inputs texts = {0};
    nrl_train_tokenizer o = {
        .size = sizeof o, .pattern = a->pattern, .overwrite = a->overwrite, .may_write = may_write, .user = &texts};
    NRL_TRY(whole_number(a->vocab_size, "--vocab-size", &o.vocab_size));
    if (a->min_frequency) NRL_TRY(whole_number(a->min_frequency, "--min-frequency", &o.min_frequency));
    char *list = mem_strdup(a->special ? a->special : "<|endoftext|>");
    const char **special = split_list(list, &o.n_special);
    o.special = special;
    trainer t = {0};
    int64_t n = 0;
    arena memory = {0};
    for (int i = 0; i < a->n_files; i++)
        inputs_add(&texts, "a text", a->files[i]);
    nrl_status st = trainer_open(&memory, a->plugin, &o, &t);
    if (st == NRL_OK) st = count_files(a, &t);
    if (st == NRL_OK) st = t.table->train_save(t.of_plugin, a->out, &n);
    if (st == NRL_OK) {
        printf("%s: %lld tokens\n", a->out, (long long)n);
        if (n < o.vocab_size)
            nrl_warn("trained %lld of %lld tokens: no remaining pair occurs often enough", (long long)n,
                     (long long)o.vocab_size);
    }
    trainer_close(&t);
    arena_free(&memory);
    inputs_free(&texts);
    free(special);
    free(list);
    return st;
}
