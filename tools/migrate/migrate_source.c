/*
 * migrate_source.c - reads what is migrated: a YAML or JSON file, or a command line, as a flat list of keys such as
 * optimizer.kwargs.lr. Nothing is executed: of a shell script only the words are read.
 */
#include "migrate.h"
#include "base/file.h"
#include "base/json.h"
#include "base/scalar.h"
#include "base/yaml.h"
#include "cli/common/cli.h"
#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_WORDS = 4096, MAX_KEYS = 20000, MAX_ROUNDS = 8, MAX_NESTED = 32, MAX_TEXT = 4096 };

/* ---- the list of keys ---- */

source_key *source_find(const migration *m, const char *path)
{
    for (size_t i = 0; i < m->n_keys; i++)
        if (!strcmp(m->keys[i]->path, path)) return m->keys[i];
    return NULL;
}

source_key *source_add(migration *m, const char *path, const nrl_node *node)
{
    source_key *k = source_find(m, path);
    if (k) {
        k->node = node;
        return k;
    }
    if (m->n_keys == m->keys_room) {
        m->keys_room = m->keys_room ? m->keys_room * 2 : 64;
        m->keys = mem_realloc(m->keys, m->keys_room * sizeof *m->keys);
    }
    k = arena_alloc(m->a, sizeof *k);
    *k = (source_key){.path = path, .node = node};
    m->keys[m->n_keys++] = k;
    return k;
}

/* `<<` of YAML merges the keys of another map. */
static nrl_status flatten(migration *m, const char *prefix, const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *child = nrl_node_at(map, i);
        bool merges = !strcmp(nrl_node_key(map, i), "<<") && nrl_node_kind(child) == NRL_NODE_MAP;
        const char *path =
            merges ? prefix : arena_printf(m->a, "%s%s%s", prefix, *prefix ? "." : "", nrl_node_key(map, i));
        if (m->n_keys > MAX_KEYS)
            return nrl_fail(NRL_ERR_CONFIG, "%s: more than %d keys", nrl_node_place(child), MAX_KEYS);
        if (nrl_node_kind(child) == NRL_NODE_MAP && nrl_node_size(child))
            NRL_TRY(flatten(m, path, child));
        else if (!merges)
            source_add(m, path, nrl_node_kind(child) == NRL_NODE_MAP ? NULL : child);
    }
    return NRL_OK;
}

/* ---- words of a shell script ---- */

typedef struct {
    char **list;
    size_t n;
} shell_words;

static void word_end(shell_words *w, buffer *b, bool *open)
{
    if (*open && w->n < MAX_WORDS) w->list[w->n++] = buffer_take(b);
    *open = false;
}

/* Quotes, comments and continued lines; a new line ends nothing, because only the command with options counts. */
static void split_words(shell_words *w, const char *s)
{
    buffer b = {0};
    bool open = false;
    w->list = mem_alloc(MAX_WORDS * sizeof *w->list);
    for (char quote = 0; *s; s++) {
        if (*s == '\\' && s[1] == '\n' && quote != '\'')
            s++;
        else if (*s == '\\' && s[1] && quote != '\'')
            buffer_add(&b, ++s, 1), open = true;
        else if (quote ? *s == quote : *s == '\'' || *s == '"')
            quote = quote ? 0 : *s, open = true;
        else if (!quote && *s == '#' && !open)
            s += strcspn(s, "\n") - 1;
        else if (!quote && strchr(" \t\r\n;&|", *s))
            word_end(w, &b, &open);
        else
            buffer_add(&b, s, 1), open = true;
    }
    word_end(w, &b, &open);
    buffer_free(&b);
}

static void free_words(shell_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->list[i]);
    free(w->list);
}

/* ---- command lines ---- */

static const nrl_node *word_node(migration *m, const char *text)
{
    nrl_node *n = scalar_node(m->a, text, strlen(text));
    n->source = m->source;
    return n;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcasecmp(text + n - k, end);
}

static bool is_config_name(const char *word)
{
    return ends_in(word, ".yaml") || ends_in(word, ".yml") || ends_in(word, ".json");
}

/* What a word says by itself: the program, its verb, a script. */
static void read_bare_word(migration *m, const char *word, size_t *stage)
{
    static const char *const programs[][2] = {
        {"trl", "trl"}, {"llamafactory-cli", "llamafactory"}, {"axolotl", "axolotl"}, {"tune", "torchtune"}};
    const char *name = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(name, programs[i][0])) {
            *stage = 1;
            if (!m->format) m->format = trainer_find(programs[i][1]);
            return;
        }
    if (ends_in(name, ".py")) {
        *stage = 2;
        source_add(m, "launcher.script", word_node(m, arena_strndup(m->a, name, strlen(name) - 3)));
    } else if (*stage == 1 && m->format) {
        source_add(m, "launcher.verb", word_node(m, name));
        if (strcmp(name, "run")) *stage = 2;
    }
}

static bool is_assignment(const char *word)
{
    size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.");
    return n && word[n] == '=';
}

/* An option with all words up to the next option: several words are a list. */
static size_t read_option(migration *m, char **words, size_t n, bool of_launcher)
{
    char *name = arena_strdup(m->a, words[0] + 2), *equals = strchr(name, '=');
    const nrl_node *value = NULL;
    size_t used = 1;
    if (equals) *equals = 0;
    for (char *s = name; *s; s++)
        if (*s == '-') *s = '_';
    if (equals) {
        value = word_node(m, equals + 1);
    } else {
        nrl_node *list = node_new(m->a, NRL_NODE_LIST);
        while (used < n && strncmp(words[used], "--", 2) && !(of_launcher && used == 2) &&
               (used == 1 || !is_assignment(words[used])))
            node_append(m->a, list, NULL, (nrl_node *)word_node(m, words[used++]));
        value = used == 1 ? word_node(m, "true") : used == 2 ? word_node(m, words[1]) : list;
        if (used > 2) list->source = m->source;
    }
    source_add(m, arena_printf(m->a, "%s%s", of_launcher ? "launcher." : "", name), value);
    return used;
}

/* Files first, so that options on the line win. */
static nrl_status read_named_files(migration *m, char **words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *word = !strncmp(words[i], "--config=", 9) ? words[i] + 9 : words[i];
        bool follows = i && !strcmp(words[i - 1], "--config");
        bool of_launcher = i && (!strcmp(words[i - 1], "--config_file") || !strcmp(words[i - 1], "--config-file"));
        if (of_launcher || (!strncmp(words[i], "--", 2) && word == words[i]) || !is_config_name(word)) continue;
        if (follows || word != words[i] || (*words[i] != '-' && (!i || strncmp(words[i - 1], "--", 2))))
            NRL_TRY(source_read_file(m, word));
    }
    return NRL_OK;
}

/* The config of `accelerate`, if it is there. */
static void read_launcher_file(migration *m)
{
    source_key *k = source_find(m, "launcher.config_file");
    nrl_node *root;
    const char *path = k ? source_text(m, k) : NULL;
    if (path && yaml_read_file(m->a, path, &root) == NRL_OK && nrl_node_kind(root) == NRL_NODE_MAP &&
        flatten(m, "launcher", root) == NRL_OK)
        return;
    if (path) write_remark(m, REMARK_ASSUMED, k, "the file is not there; use --devices for the number of devices");
}

nrl_status source_read_words(migration *m, char **words, size_t n)
{
    size_t stage = 0; /* 0: launcher, 1: the program, 2: its options */
    bool launches = false;
    NRL_TRY(read_named_files(m, words, n));
    for (size_t i = 0; i < n;) {
        const char *word = words[i];
        launches |= !strcmp(word, "accelerate") || !strcmp(word, "torchrun") || !strcmp(word, "deepspeed") ||
                    (!strcmp(word, "tune") && i + 1 < n && !strcmp(words[i + 1], "run"));
        bool is_program = stage == 2 || (stage == 1 && !launches);
        if (!strncmp(word, "--", 2) && (!strcmp(word, "--config") || !strncmp(word, "--config=", 9)))
            i += strchr(word, '=') ? 1 : 2;
        else if (!strncmp(word, "--", 2) && word[2])
            i += read_option(m, words + i, n - i, !is_program);
        else if (is_assignment(word) && (stage || !strncmp(word, "CUDA_VISIBLE_DEVICES=", 21))) {
            NRL_TRY(source_override(m, word));
            i++;
        } else {
            if (*word != '-' && !is_config_name(word)) read_bare_word(m, word, &stage);
            i++;
        }
    }
    read_launcher_file(m);
    return NRL_OK;
}

/* ---- files ---- */

/* A comment, a variable or a program: not a map. */
static bool is_script(const char *path, const char *text)
{
    return ends_in(path, ".sh") || ends_in(path, ".bash") || ends_in(path, ".slurm") || !strncmp(text, "#!", 2);
}

static nrl_status read_text(migration *m, const char *path, char *text, size_t size)
{
    nrl_node *root = NULL;
    const char *first = text + strspn(text, " \t\r\n");
    if (is_script(path, text)) {
        shell_words w = {0};
        split_words(&w, text);
        nrl_status st = source_read_words(m, w.list, w.n);
        free_words(&w);
        return st;
    }
    if (ends_in(path, ".py"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: a Python script is not read\nhint: nrl migrate -- PROGRAM --option value ... reads a "
                        "command line; YAML and JSON files are read too",
                        path);
    if (*first == '{' || *first == '[') {
        NRL_TRY(json_parse(m->a, path, text, size, &root) == NRL_OK ? NRL_OK
                                                                    : nrl_fail(NRL_ERR_CONFIG, "%s", nrl_error_text()));
    } else {
        NRL_TRY(yaml_parse(m->a, path, text, size, &root));
    }
    if (nrl_node_kind(root) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected a map of keys, found a %s", nrl_node_place(root),
                        node_kind_name(nrl_node_kind(root)));
    return flatten(m, "", root);
}

nrl_status source_read_file(migration *m, const char *path)
{
    char *text;
    size_t size;
    nrl_status st = file_read(path, YAML_MAX_BYTES, &text, &size);
    if (st == NRL_ERR_MEMORY) return st;
    if (st != NRL_OK) return nrl_fail(NRL_ERR_CONFIG, "%s", nrl_error_text());
    st = read_text(m, arena_strdup(m->a, path), text, size);
    free(text);
    return st;
}

nrl_status source_override(migration *m, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    nrl_node *value;
    if (!equals || equals == assignment)
        return nrl_fail(NRL_ERR_CONFIG, "'%s': expected KEY=VALUE with a key of the file", assignment);
    if (strchr(equals, '$')) return NRL_OK; /* a variable of the shell */
    NRL_TRY(yaml_parse_value(m->a, "command line", equals + 1, &value));
    char *path = arena_strndup(m->a, assignment, (size_t)(equals - assignment));
    if (nrl_node_kind(value) == NRL_NODE_MAP) return flatten(m, path, value);
    source_add(m, path, value);
    return NRL_OK;
}

/* ---- values ---- */

const char *source_node_text(arena *a, const nrl_node *n)
{
    if (!n || nrl_node_kind(n) == NRL_NODE_NULL || nrl_node_kind(n) == NRL_NODE_LIST) return "";
    if (nrl_node_kind(n) == NRL_NODE_STRING) return nrl_node_string(n, "");
    if (n->text) return n->text;
    if (nrl_node_kind(n) == NRL_NODE_BOOL) return nrl_node_bool(n, false) ? "true" : "false";
    if (nrl_node_kind(n) == NRL_NODE_INT) return arena_printf(a, "%lld", (long long)nrl_node_int(n, 0));
    return arena_printf(a, "%.15g", nrl_node_f64(n, 0));
}

const char *source_text(const migration *m, const source_key *k)
{
    return source_node_text(m->a, k ? k->node : NULL);
}

bool source_is_null(const source_key *k)
{
    if (!k || !k->node || nrl_node_kind(k->node) == NRL_NODE_NULL) return true;
    if (nrl_node_kind(k->node) == NRL_NODE_LIST) return !nrl_node_size(k->node);
    const char *text = nrl_node_string(k->node, "x");
    return !*text || !strcasecmp(text, "none") || !strcmp(text, "null");
}

typedef struct {
    const char *at;
    int depth;
    bool bad;
} formula;

static double read_sum(formula *f);

static double read_atom(formula *f)
{
    char digits[64];
    size_t n = 0;
    while (isspace((unsigned char)*f->at))
        f->at++;
    if (*f->at == '(' && ++f->depth < MAX_NESTED) {
        f->at++;
        double x = read_sum(f);
        if (*f->at != ')') f->bad = true;
        f->at += *f->at == ')';
        while (isspace((unsigned char)*f->at))
            f->at++;
        f->depth--;
        return x;
    }
    for (const char *s = f->at; n + 1 < sizeof digits; s++) {
        bool sign = (*s == '+' || *s == '-') && (!n || digits[n - 1] == 'e' || digits[n - 1] == 'E');
        if (*s == '_' && n && isdigit((unsigned char)s[1])) continue;
        if (!sign && !isdigit((unsigned char)*s) && *s != '.' && !(n && (*s == 'e' || *s == 'E'))) {
            f->at = s;
            break;
        }
        digits[n++] = *s;
    }
    digits[n] = 0;
    char *end;
    double x = strtod(digits, &end);
    if (!n || *end) f->bad = true;
    while (isspace((unsigned char)*f->at))
        f->at++;
    return x;
}

static double read_power(formula *f)
{
    double x = read_atom(f);
    if (f->bad || f->at[0] != '*' || f->at[1] != '*' || ++f->depth >= MAX_NESTED) return x;
    f->at += 2;
    x = pow(x, read_power(f));
    f->depth--;
    return x;
}

static double read_product(formula *f)
{
    double x = read_power(f);
    while (!f->bad && (*f->at == '*' || *f->at == '/')) {
        bool divides = *f->at++ == '/';
        double y = read_power(f);
        x = divides ? x / y : x * y;
    }
    return x;
}

static double read_sum(formula *f)
{
    double x = read_product(f);
    while (!f->bad && (*f->at == '+' || *f->at == '-')) {
        bool minus = *f->at++ == '-';
        double y = read_product(f);
        x = minus ? x - y : x + y;
    }
    return x;
}

bool source_number(const char *text, double *x)
{
    formula f = {.at = text};
    if (!*text || strlen(text) > 256) return false;
    double value = read_sum(&f);
    if (f.bad || *f.at || !isfinite(value)) return false;
    *x = value;
    return true;
}

/* ---- ${...} of OmegaConf ---- */

/* The value of what is between the braces; NULL = unknown. `from`: the path of the key, for ${.sibling}. */
static const char *resolve_one(migration *m, const char *from, const char *inside)
{
    static const struct {
        const char *name;
        char operator;
    } sums[] = {{"mul:", '*'}, {"multiply:", '*'}, {"div:", '/'}, {"add:", '+'}, {"sub:", '-'}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        size_t n = strlen(sums[i].name);
        const char *comma = strchr(inside, ',');
        double x;
        if (strncmp(inside, sums[i].name, n) || !comma) continue;
        const char *text = arena_printf(m->a, "(%.*s) %c (%s)", (int)(comma - inside - (ptrdiff_t)n), inside + n,
                                        sums[i].operator, comma + 1);
        return source_number(text, &x) ? arena_printf(m->a, "%.15g", x) : NULL;
    }
    if (*inside == '.') { /* one dot: beside this key; each further dot is one section up */
        size_t length = strlen(from);
        for (; *inside == '.'; inside++) {
            while (length && from[length - 1] != '.')
                length--;
            length -= length > 0;
        }
        inside = arena_printf(m->a, "%.*s%s%s", (int)length, from, length ? "." : "", inside);
    }
    const source_key *k = source_find(m, inside);
    return !k || (k->node && nrl_node_kind(k->node) == NRL_NODE_LIST) ? NULL : source_text(m, k);
}

/* The text with its innermost ${...} replaced; NULL = none is left, or none can be. */
static const char *resolve_text(migration *m, const char *from, const char *text)
{
    const char *begin = NULL, *end = NULL;
    for (const char *s = text; *s && !end; s++) {
        if (s[0] == '$' && s[1] == '{') begin = s;
        if (*s == '}' && begin) end = s;
    }
    if (!end || strlen(text) > MAX_TEXT) return NULL;
    const char *value = resolve_one(m, from, arena_strndup(m->a, begin + 2, (size_t)(end - begin) - 2));
    if (!value) return NULL;
    return arena_printf(m->a, "%.*s%s%s", (int)(begin - text), text, value, end + 1);
}

void source_resolve(migration *m)
{
    for (size_t i = 0; i < m->n_keys; i++) {
        source_key *k = m->keys[i];
        const char *text = k->node && nrl_node_kind(k->node) == NRL_NODE_STRING ? nrl_node_string(k->node, "") : "";
        const char *next = text, *last = text;
        for (int round = 0; round < MAX_ROUNDS && (next = resolve_text(m, k->path, next)) != NULL; round++)
            last = next;
        if (last == text || !k->node) continue;
        nrl_node *n = scalar_node(m->a, last, strlen(last));
        n->source = k->node->source;
        n->line = k->node->line;
        n->column = k->node->column;
        k->node = n;
    }
}

/* ---- recognising the trainer ---- */

static bool has_any(const migration *m, const char *const *patterns)
{
    for (; *patterns; patterns++)
        for (size_t i = 0; i < m->n_keys; i++)
            if (!fnmatch(*patterns, m->keys[i]->path, 0)) return true;
    return false;
}

nrl_status source_recognise(migration *m)
{
    static const struct {
        const char *name;
        const char *keys[12];
    } signs[] = {
        {"torchtune", {"_component_", "*._component_"}},
        {"nemo-rl",
         {"policy.model_name", "policy.train_global_batch_size", "policy.dtensor_cfg.*", "policy.megatron_cfg.*"}},
        {"axolotl", {"base_model", "sequence_len"}},
        {"llamafactory",
         {"stage", "finetuning_type", "cutoff_len", "lora_target", "pref_beta", "dataset_dir", "val_size",
          "plot_loss"}},
        {"trl",
         {"dataset_name", "dataset_mixture.*", "dataset_mixer.*", "use_peft", "max_prompt_length",
          "assistant_only_loss", "loss_type", "dataset_text_field", "beta"}},
        {"transformers",
         {"model_name_or_path", "per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type",
          "save_total_limit"}},
        {"generic",
         {"training.*", "trainer.*", "distributed.*", "scheduler.*", "optim.*", "learning_rate", "batch_size",
          "*.learning_rate", "*.batch_size", "*.lr"}},
    };
    static const char *const own[] = {"train.global_batch", "data.train", "train.micro_batch_tokens", NULL};
    if (m->format) return NRL_OK;
    if (source_find(m, "optimizer.lr") && has_any(m, own))
        return nrl_fail(NRL_ERR_CONFIG, "%s is a config of nrl\nhint: nrl check %s", m->source, m->source);
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !m->format; i++)
        if (has_any(m, signs[i].keys)) m->format = trainer_find(signs[i].name);
    if (m->format) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: no known trainer has these keys\nhint: --from trl, transformers, llamafactory, torchtune, "
                    "axolotl, nemo-rl or generic",
                    m->source);
}
