/*
 * host.c - the search path, opening plugins, and the list of open plugins.
 */
#include "plugin/host.h"
#include "base/paths.h"
#include "base/buffer.h"
#include "config/config.h"
#include "base/suggest.h"
#include "base/elf.h"
#include "base/file.h"
#include "base/search.h"
#include "plugin/trials.h"
#include <math.h>
#include <nrl/backend.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_SECONDS 10 /* a library on a slow file system takes seconds */
enum { MAX_MANIFEST = 1 << 20 };

typedef struct open_plugin open_plugin;
struct open_plugin {
    plugin plugin;
    uint32_t kind;
    const char *identity; /* NULL = not asked for yet */
    open_plugin *next;
};

struct plugin_host {
    arena a;
    search_path search;
    open_plugin *open;
    const char *installed;    /* the directory of installed plugins; NULL = unknown */
    const char *user;         /* the directory of the user's plugins; NULL = none */
    const char *own;          /* the directory of nrl's own plugins, searched or not; NULL = unknown */
    const char *manifest;     /* its list, each line after a line's end; NULL = not read yet */
    double open_seconds;      /* how long opening a file may take */
    bool is_restricted;       /* only installed plugins and those in `allow` may be opened */
    const char *const *allow; /* [n_allow] */
    size_t n_allow, n_skipped;
    const char *const *folders; /* [n_folders] directories of the config */
    size_t n_folders;
};

/* Programs lie in <prefix>/bin, plugins in <prefix>/NRL_PLUGIN_SUBDIR. */
static const char *beside(plugin_host *h, const char *exe_dir)
{
    const char *slash = exe_dir ? strrchr(exe_dir, '/') : NULL;
    return slash ? arena_printf(&h->a, "%.*s/" NRL_PLUGIN_SUBDIR, (int)(slash - exe_dir), exe_dir) : NULL;
}

plugin_host *plugin_host_create(const char *path, const char *const *folders, size_t n_folders, const char *exe_dir)
{
    plugin_host *h = mem_alloc(sizeof *h);
    if (path) search_add_list(&h->search, &h->a, path);
    for (size_t i = 0; i < n_folders; i++)
        search_add(&h->search, &h->a, folders[i]);
    h->installed = beside(h, exe_dir);
    if (h->installed) search_add(&h->search, &h->a, h->installed);
    h->own = h->installed ? h->installed : beside(h, plugin_own_exe_dir(&h->a));
    h->open_seconds = OPEN_SECONDS;
    h->folders = folders;
    h->n_folders = n_folders;
    return h;
}

void plugin_host_destroy(plugin_host *h)
{
    if (!h) return;
    arena_free(&h->a);
    free(h);
}

const char *const *plugin_folders(const plugin_host *h, size_t *n)
{
    *n = h->search.n;
    return h->search.folders;
}

void plugin_host_restrict(plugin_host *h, const char *const *allow, size_t n)
{
    h->is_restricted = true;
    h->allow = allow;
    h->n_allow = n;
}

void plugin_host_skip(plugin_host *h, size_t n_folders)
{
    h->n_skipped = n_folders;
}

void plugin_host_add_user(plugin_host *h, const char *folder)
{
    size_t n = h->search.n;
    if (!folder || access(folder, F_OK)) return;
    search_add(&h->search, &h->a, folder);
    if (h->search.n == n) return; /* NRL_PLUGIN_PATH or the config has it too */
    h->user = h->search.folders[n];
    if (!n || !h->installed || !search_is_same_folder(h->search.folders[n - 1], h->installed)) return;
    const char *installed = h->search.folders[n - 1];
    h->search.folders[n - 1] = h->user;
    h->search.folders[n] = installed;
}

void plugin_host_limit(plugin_host *h, const char *seconds)
{
    char *end;
    double value = seconds && *seconds ? strtod(seconds, &end) : OPEN_SECONDS;
    if (seconds && *seconds && (*end || !(value > 0) || isinf(value)))
        nrl_warn("NRL_PLUGIN_TIMEOUT: expected a number of seconds above 0, got '%s'; using %d", seconds, OPEN_SECONDS);
    else
        h->open_seconds = value;
}

/* ---- permission ---- */
static bool is_allowed_text(const plugin_host *h, const char *text)
{
    for (size_t i = 0; i < h->n_allow; i++)
        if (!strcmp(h->allow[i], text)) return true;
    return false;
}

/* `path` is FOLDER/KIND/NAME.so. The check only reads the file and runs none of its code. */
static nrl_status check_allowed(plugin_host *h, const char *path)
{
    char hash[HASH_SHA256_TEXT];
    char *folder = arena_strdup(&h->a, path), *name = strrchr(folder, '/');
    *name++ = 0;
    name[strlen(name) - strlen(".so")] = 0;
    char *kind = strrchr(folder, '/');
    if (kind) *kind++ = 0;
    if (kind && h->installed && search_is_same_folder(folder, h->installed)) return NRL_OK;
    if (is_allowed_text(h, name) || (kind && is_allowed_text(h, arena_printf(&h->a, "%s/%s", kind, name))))
        return NRL_OK;
    NRL_TRY(hash_sha256_file(path, hash));
    if (is_allowed_text(h, arena_printf(&h->a, "sha256:%s", hash))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot open the plugin: plugins.allow contains neither its name nor its hash\n"
                    "hint: to allow exactly this file, add 'plugins.allow=[sha256:%s]'",
                    hash);
}

/* ---- one file ---- */

/* Whether the file is one of nrl's own plugins, which the build lists in MANIFEST beside them. */
static bool is_own(plugin_host *h, const char *path, const plugin_kind *kind, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t n = (size_t)(slash - path) - strlen(kind->folder) - 1;
    if (!h->own || !search_is_same_folder(arena_strndup(&h->a, path, n), h->own)) return false;
    if (!h->manifest) {
        char *text;
        size_t size;
        nrl_status st = file_read(arena_printf(&h->a, "%s/MANIFEST", h->own), MAX_MANIFEST, &text, &size);
        h->manifest = st == NRL_OK ? arena_printf(&h->a, "\n%s", text) : "";
        if (st == NRL_OK) free(text);
    }
    return strstr(h->manifest, arena_printf(&h->a, "\n%s/%s\n", kind->folder, name)) != NULL;
}

/* Checks what can be checked without running code of the file. */
static nrl_status check_file(plugin_host *h, const char *path)
{
    NRL_TRY(elf_check(path));
    return h->is_restricted ? check_allowed(h, path) : NRL_OK;
}

/* Files that are not nrl's own are tried in a child process first. */
static nrl_status load_checked(plugin_host *h, const char *path, const plugin_kind *kind, const char *name,
                               const nrl_plugin **table)
{
    nrl_status st = check_file(h, path);
    if (st == NRL_OK && !is_own(h, path, kind, name)) st = trial_open(path, kind, name, h->open_seconds);
    if (st == NRL_OK) st = load_table(&h->a, path, kind, name, table);
    if (st != NRL_OK) nrl_add_context("%s '%s' (%s)", kind->name, name, path);
    return st;
}

/* ---- by name ---- */

static nrl_status no_such_plugin(plugin_host *h, const plugin_kind *kind, const char *name)
{
    arena a = {0};
    const char **names, *all = "none", *where = "no directory", *hint = "";
    suggestion near = {.word = name};
    size_t n = plugin_names(h, &a, kind->kind, &names);
    for (size_t i = 0; i < n; i++) {
        suggest_offer(&near, names[i]);
        all = i ? arena_printf(&a, "%s, %s", all, names[i]) : names[i];
    }
    for (size_t i = 0; i < h->search.n; i++)
        where = i ? arena_printf(&a, "%s, %s", where, h->search.folders[i]) : h->search.folders[i];
    if (h->n_skipped)
        hint =
            arena_printf(&a, "\nhint: --no-plugins-from-config excludes %zu director%s of the config from the search",
                         h->n_skipped, h->n_skipped > 1 ? "ies" : "y");
    nrl_fail(NRL_ERR_CONFIG, "no %s '%.60s'%s%s%s\navailable: %s (in %s%s%s)%s", kind->name, name,
             near.best ? "; did you mean '" : "", near.best ? near.best : "", near.best ? "'?" : "", all, where,
             h->search.absent ? "; not a directory: " : "", h->search.absent ? h->search.absent : "", hint);
    arena_free(&a);
    return NRL_ERR_CONFIG;
}

static void warn_of_hidden(plugin_host *h, const plugin_kind *kind, const char *name, const char *path, size_t folder)
{
    const char *other = search_file(&h->search, &h->a, kind->folder, name, &folder);
    if (other) nrl_warn("two plugins have the name %s/%s: using %s, ignoring %s", kind->folder, name, path, other);
}

static open_plugin *find_entry(const plugin_host *h, uint32_t kind, const char *name)
{
    open_plugin *p = h->open;
    while (p && (p->kind != kind || strcmp(p->plugin.name, name)))
        p = p->next;
    return p;
}

static const plugin *find_open(const plugin_host *h, uint32_t kind, const char *name)
{
    const open_plugin *p = find_entry(h, kind, name);
    return p ? &p->plugin : NULL;
}

static const plugin *keep_open(plugin_host *h, const nrl_plugin *table, const char *path)
{
    open_plugin *p = arena_alloc(&h->a, sizeof *p), **at = &h->open; /* in the order of plugin_opened */
    while (*at &&
           ((*at)->kind < table->kind || ((*at)->kind == table->kind && strcmp((*at)->plugin.name, table->name) < 0)))
        at = &(*at)->next;
    *p = (open_plugin){{table, table->name, path}, table->kind, NULL, *at};
    *at = p;
    return &p->plugin;
}

nrl_status plugin_open(plugin_host *h, uint32_t kind_number, const char *name, const plugin **out)
{
    const plugin_kind *kind = plugin_kind_find(kind_number);
    NRL_ASSERT((kind != NULL), ==, true);
    *out = find_open(h, kind_number, name);
    if (*out) return NRL_OK;
    size_t folder = 0;
    const char *path = search_file(&h->search, &h->a, kind->folder, name, &folder);
    if (!path) return no_such_plugin(h, kind, name);
    const nrl_plugin *table;
    NRL_TRY(load_checked(h, path, kind, name, &table));
    warn_of_hidden(h, kind, name, path, folder + 1);
    *out = keep_open(h, table, path);
    return NRL_OK;
}

nrl_status plugin_open_candidate(plugin_host *h, uint32_t kind_number, const char *name, const plugin **out)
{
    const plugin_kind *kind = plugin_kind_find(kind_number);
    *out = find_open(h, kind_number, name);
    if (*out) return NRL_OK;
    nrl_status st = NRL_ERR_CONFIG;
    const char *path;
    for (size_t folder = 0; (path = search_file(&h->search, &h->a, kind->folder, name, &folder)); folder++) {
        const nrl_plugin *table;
        st = load_checked(h, path, kind, name, &table);
        if (st == NRL_OK) {
            *out = keep_open(h, table, path);
            warn_of_hidden(h, kind, name, path, folder + 1);
        }
        if (st == NRL_OK || st == NRL_ERR_CONFIG) return st; /* CONFIG: it is sound, and not allowed */
        if (trial_is_unreported(path)) nrl_warn("skipped a plugin that cannot be used: %s", nrl_error_text());
    }
    return st;
}

static nrl_status ask_apart(plugin_host *h, const plugin *p, plugin_question *ask, const void *user, int32_t *answer)
{
    if (!is_own(h, p->path, plugin_kind_find(p->table->kind), p->name))
        return trial_ask(p, ask, user, h->open_seconds, answer);
    *answer = ask(p, user);
    return NRL_OK;
}

int32_t plugin_ask(plugin_host *h, const plugin *p, plugin_question *ask, const void *user, int32_t refused)
{
    int32_t answer;
    if (ask_apart(h, p, ask, user, &answer) == NRL_OK) return answer;
    nrl_add_context("%s '%s' (%s)", plugin_kind_find(p->table->kind)->name, p->name, p->path);
    if (trial_is_unreported(p->path)) nrl_warn("skipped a plugin that cannot be used: %s", nrl_error_text());
    return refused;
}

/* nrl_status */
static int32_t backend_probe(const plugin *p, const void *unused)
{
    const nrl_backend *b = (const nrl_backend *)p->table;
    (void)unused;
    return b->probe ? (int32_t)b->probe() : NRL_OK;
}

nrl_status plugin_probe(plugin_host *h, const plugin *backend, bool is_named)
{
    int32_t answer;
    if (!is_named) return (nrl_status)plugin_ask(h, backend, backend_probe, NULL, NRL_ERR_PLUGIN);
    nrl_status st = ask_apart(h, backend, backend_probe, NULL, &answer);
    if (st != NRL_OK) nrl_add_context("%s", backend->path);
    return st == NRL_OK ? (nrl_status)answer : st;
}

const plugin *plugin_find(plugin_host *h, uint32_t kind, int32_t enough, plugin_question *ask, const void *user,
                          buffer *asked)
{
    arena a = {0};
    const char **names;
    const plugin *p, *found = NULL;
    int32_t best = NRL_PROBE_NO;
    size_t n = plugin_names(h, &a, kind, &names);
    for (size_t i = 0; i < n && best < enough; i++) {
        if (plugin_open_candidate(h, kind, names[i], &p) != NRL_OK) {
            buffer_print(asked, "%s%s cannot be used: %s", asked->size ? "; " : "", names[i], nrl_error_text());
            continue;
        }
        buffer_print(asked, "%s%s", asked->size ? ", " : "", names[i]);
        int32_t answer = plugin_ask(h, p, ask, user, NRL_PROBE_NO);
        if (answer <= best) continue;
        best = answer;
        found = p;
    }
    arena_free(&a);
    return found;
}

/* The file is hashed once: what was opened stays, even if the file is replaced later. */
nrl_status plugin_identity(plugin_host *h, uint32_t kind, const char *name, arena *a, const char **text)
{
    char hash[HASH_TEXT];
    open_plugin *p = find_entry(h, kind, name);
    NRL_ASSERT((p != NULL), ==, true);
    if (!p->identity) {
        NRL_TRY(hash_file(p->plugin.path, hash));
        p->identity = arena_printf(&h->a, "%s, %s", p->plugin.table->version, hash);
    }
    *text = arena_strdup(a, p->identity);
    return NRL_OK;
}

bool plugin_is_own(plugin_host *h, uint32_t kind, const char *name)
{
    const open_plugin *p = find_entry(h, kind, name);
    return p && is_own(h, p->plugin.path, plugin_kind_find(kind), name);
}

/* ---- by file ---- */

/* The kind whose folder the file lies in, which `nrl run` would take it for; NULL: another folder. */
static const plugin_kind *kind_of_folder(plugin_host *h, const char *path)
{
    char *folder = arena_strdup(&h->a, path);
    *strrchr(folder, '/') = 0;
    const char *name = strrchr(folder, '/');
    const plugin_kind *k = plugin_kinds;
    while (name && k->kind && strcmp(k->folder, name + 1))
        k++;
    return name && k->kind ? k : NULL;
}

static nrl_status open_file(plugin_host *h, const char *path, const char *name, const plugin **out)
{
    const nrl_plugin *table;
    load_trial t = {.path = path, .name = name, .kind = kind_of_folder(h, path)};
    NRL_TRY(check_file(h, path));
    load_try(&h->a, &t, 1, NULL, h->open_seconds);
    if (t.status != NRL_OK) return nrl_fail(t.status, "%s", t.text);
    NRL_TRY(load_table(&h->a, path, t.kind, name, &table));
    *out = keep_open(h, table, path);
    return NRL_OK;
}

nrl_status plugin_open_file(plugin_host *h, const char *path, const plugin **out)
{
    const char *full = paths_absolute(&h->a, path), *base = strrchr(full, '/') + 1;
    size_t n = strlen(base);
    if (n < 4 || strcmp(base + n - 3, ".so"))
        return nrl_fail(NRL_ERR_PLUGIN, "'%s' is not a plugin file; expected NAME.so", path);
    nrl_status st = open_file(h, full, arena_strndup(&h->a, base, n - 3), out);
    if (st != NRL_OK) nrl_add_context("%s", path);
    return st;
}

/* ---- with options ---- */

void plugin_take_error(arena *a, config_problems *problems, nrl_status st, const char *section,
                       const config_component *c, const nrl_plugin *t)
{
    const char *text = nrl_error_text();
    const nrl_node *at = nrl_node_find(c->options, arena_strndup(a, text, strcspn(text, ":")));
    nrl_add_context("%s '%s'", section, t->name);
    problems_take_error(problems, st, at && at->source ? at : c->at);
}

void plugin_options(arena *a, config_problems *problems, const char *section, const config_component *c,
                    const option_part *core, const plugin *p, void **options)
{
    const nrl_plugin *t = p->table;
    *options = arena_alloc(a, t->options_size + 1); /* + 1: never NULL, even without options */
    option_part parts[2] = {{t->options, t->n_options, t->option_size, *options}};
    if (core) parts[1] = *core;
    size_t before = problems->n, n_parts = core ? 2 : 1;
    options_fill(a, problems, section, c->options, parts, n_parts);
    if (c->resolved) options_resolve(a, c->options, parts, n_parts, c->resolved);
    nrl_status st = problems->n > before || !t->check ? NRL_OK : t->check(*options);
    if (st != NRL_OK) plugin_take_error(a, problems, st, section, c, t);
}

nrl_status plugin_choice_options(arena *a, const char *section, const config_choice *choice, const plugin *p,
                                 void **options)
{
    config_problems problems = {0};
    const config_component c = {
        .name = p->name, .at = choice->at, .options = choice->options, .resolved = choice->resolved};
    plugin_options(a, &problems, section, &c, NULL, p, options);
    return problems_report(&problems);
}

void plugin_instance(plugin_host *h, arena *a, config_problems *problems, uint32_t kind, const char *section,
                     const config_component *c, const option_part *core, const plugin **out, void **options)
{
    *out = NULL;
    *options = NULL;
    if (!c->name) return;
    nrl_status st = plugin_open(h, kind, c->name, out);
    if (st != NRL_OK) {
        const char *known = problems_known_as(problems, a, section, c->name);
        if (*known) nrl_fail(NRL_ERR_CONFIG, "no %s '%.60s'%s", plugin_kind_find(kind)->name, c->name, known);
        nrl_add_context("%s", section);
        problems_take_error(problems, st, c->at);
        *out = NULL;
        return;
    }
    NRL_ASSERT((*out != NULL), ==, true);
    plugin_options(a, problems, section, c, core, *out, options);
}

/* ---- listing ---- */

size_t plugin_names(plugin_host *h, arena *a, uint32_t kind, const char ***names)
{
    return search_names(&h->search, a, plugin_kind_find(kind)->folder, names);
}

bool plugin_is_default(plugin_host *h, uint32_t kind, const char *name)
{
    bool found = false;
    for (size_t at = 0; !found && search_file(&h->search, &h->a, plugin_kind_find(kind)->folder, name, &at); at++) {
        found = (h->installed && search_is_same_folder(h->search.folders[at], h->installed)) ||
                (h->user && search_is_same_folder(h->search.folders[at], h->user));
        for (size_t i = 0; i < h->n_folders; i++)
            found = found || search_is_same_folder(h->search.folders[at], h->folders[i]);
    }
    return found;
}

size_t plugin_defaults(plugin_host *h, arena *a, uint32_t kind, const plugin ***list)
{
    const char **names;
    size_t n = 0, count = plugin_names(h, a, kind, &names);
    *list = arena_alloc(a, (count + 1) * sizeof **list);
    for (size_t i = 0; i < count; i++) {
        const plugin *p;
        if (!plugin_is_default(h, kind, names[i]) || plugin_open_candidate(h, kind, names[i], &p) != NRL_OK ||
            p->table->priority <= 0)
            continue;
        size_t at = n++;
        for (; at > 0 && (*list)[at - 1]->table->priority < p->table->priority; at--)
            (*list)[at] = (*list)[at - 1];
        (*list)[at] = p;
    }
    return n;
}

/* Opens nrl's own plugins here, and all others in a child process. */
static void list_open(plugin_host *h, arena *a, load_describe *describe, plugin_entry *entries, size_t n)
{
    load_trial *trials = arena_alloc(a, (n + 1) * sizeof *trials);
    plugin_entry **tried = arena_alloc(a, (n + 1) * sizeof *tried);
    size_t n_trials = 0;
    for (plugin_entry *e = entries; e < entries + n; e++) {
        const nrl_plugin *table;
        nrl_status st = check_file(h, e->path);
        if (st == NRL_OK && !is_own(h, e->path, e->kind, e->name)) {
            trials[n_trials] = (load_trial){.path = e->path, .name = e->name, .kind = e->kind};
            tried[n_trials++] = e;
            continue;
        }
        if (st == NRL_OK) st = load_table(a, e->path, e->kind, e->name, &table);
        char *text = st == NRL_OK && describe ? describe(table) : NULL;
        if (st != NRL_OK) e->problem = arena_strdup(a, nrl_error_text());
        if (text) e->description = arena_strdup(a, text);
        free(text);
    }
    load_try(a, trials, n_trials, describe, h->open_seconds);
    for (size_t i = 0; i < n_trials; i++)
        *(trials[i].status == NRL_OK ? &tried[i]->description : &tried[i]->problem) = trials[i].text;
}

size_t plugin_list(plugin_host *h, arena *a, load_describe *describe, plugin_entry **entries)
{
    size_t n = 0, room = 0;
    const char **names, *path;
    for (const plugin_kind *k = plugin_kinds; k->kind; k++)
        room += search_names(&h->search, a, k->folder, &names) * h->search.n;
    *entries = arena_alloc(a, room * sizeof **entries);
    for (const plugin_kind *k = plugin_kinds; k->kind; k++) {
        size_t count = search_names(&h->search, a, k->folder, &names);
        for (size_t i = 0; i < count && n + h->search.n <= room; i++) {
            plugin_entry *first = *entries + n; /* the first file of a name is in use and hides the others */
            for (size_t at = 0; (path = search_file(&h->search, a, k->folder, names[i], &at)); at++, n++)
                (*entries)[n] =
                    (plugin_entry){k, names[i], path, NULL, NULL, *entries + n > first ? first->path : NULL};
        }
    }
    list_open(h, a, describe, *entries, n);
    return n;
}

size_t plugin_opened(const plugin_host *h, arena *a, const nrl_plugin ***list)
{
    size_t n = 0;
    for (const open_plugin *p = h->open; p; p = p->next)
        n++;
    *list = arena_alloc(a, (n + 1) * sizeof **list);
    n = 0;
    for (const open_plugin *p = h->open; p; p = p->next)
        (*list)[n++] = p->plugin.table;
    return n;
}
