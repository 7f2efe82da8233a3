/*
 * plugins_install.c - `nrl plugins install`, `list` and `remove`: the plugins of a user, in
 * $XDG_DATA_HOME/nrl/plugins. A file is tried in a child process before it is copied; a directory
 * or an archive of sources is built with CMake.
 */
#include "base/disk.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/paths.h"
#include "cli/verbs.h"
#include "plugin/component.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 16, LOG_TAIL = 2000, MOST_OPEN = 16 };

typedef struct {
    arena a;
    const char *user;  /* the directory of the user's plugins */
    const char *stage; /* a temporary directory; NULL = not created yet */
    bool overwrite;
    size_t n; /* plugins installed */
} installation;

static nrl_status failed(const char *what, const char *path)
{
    return nrl_fail(errno == ENOSPC || errno == EDQUOT ? NRL_ERR_FULL : NRL_ERR_IO, "cannot %s %s: %s", what, path,
                    strerror(errno));
}

/* ---- directories ---- */

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

static nrl_status make_stage(installation *in)
{
    char *folder = arena_printf(&in->a, "%s/nrl-plugins-install-XXXXXX", file_temporary_folder());
    if (in->stage) return NRL_OK;
    if (!mkdtemp(folder)) return failed("create", folder);
    in->stage = folder;
    return NRL_OK;
}

static nrl_status find_user_folder(installation *in)
{
    in->user = cli_user_plugins(&in->a);
    return in->user
               ? NRL_OK
               : nrl_fail(NRL_ERR_CONFIG, "cannot find the directory of your plugins: neither XDG_DATA_HOME nor HOME "
                                          "is an absolute path");
}

/* ---- one file ---- */

static bool copy_bytes(int from, int to)
{
    char part[COPY_BYTES];
    ssize_t n;
    while ((n = read(from, part, sizeof part)) > 0)
        if (write(to, part, (size_t)n) != n) return false;
    return n == 0;
}

/* Copies to a temporary name and renames it, so that a run never sees half a file. */
static nrl_status copy_file(installation *in, const char *from, const char *to)
{
    const char *half = arena_printf(&in->a, "%s.%ld", to, (long)getpid());
    int source = open(from, O_RDONLY | O_CLOEXEC);
    if (source < 0) return failed("read", from);
    int copy = open(half, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0777);
    bool good = copy >= 0 && copy_bytes(source, copy) && fsync(copy) == 0;
    if (copy >= 0) good = close(copy) == 0 && good;
    close(source);
    if (good && !rename(half, to)) return NRL_OK;
    nrl_status st = failed("write", to);
    unlink(half);
    return st;
}

static nrl_status install_file(installation *in, const char *path)
{
    const plugin *p;
    arena *a = &in->a;
    const nrl_environment env = {.size = sizeof env, .exe_dir = cli_exe_dir(a), .variable = cli_getenv};
    plugin_host *h = component_host(&env, NULL);
    nrl_status st = plugin_open_file(h, path, &p);
    if (st == NRL_OK) {
        const plugin_kind *kind = plugin_kind_find(p->table->kind);
        const char *folder = arena_printf(a, "%s/%s", in->user, kind->folder);
        const char *to = arena_printf(a, "%s/%s.so", folder, p->table->name);
        if (!in->overwrite && !access(to, F_OK))
            st = nrl_fail(NRL_ERR_CONFIG, "cannot install %s '%s': %s exists\nhint: --overwrite replaces it",
                          kind->name, p->table->name, to);
        errno = st == NRL_OK ? disk_make_path(folder) : 0;
        if (errno) st = failed("create", folder);
        if (st == NRL_OK) st = copy_file(in, path, to);
        if (st == NRL_OK) cli_page("%s %s %s: %s\n", kind->name, p->table->name, p->table->version, to);
        in->n += st == NRL_OK;
    }
    plugin_host_destroy(h);
    return st;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

static nrl_status install_files_of(installation *in, const char *folder)
{
    DIR *d = opendir(folder);
    nrl_status st = NRL_OK;
    for (const struct dirent *e; d && st == NRL_OK && (e = readdir(d));)
        if (*e->d_name != '.' && ends_in(e->d_name, ".so"))
            st = install_file(in, arena_printf(&in->a, "%s/%s", folder, e->d_name));
    if (d) closedir(d);
    return st;
}

/* Installs NAME.so and KIND/NAME.so of a directory. */
static nrl_status install_tree(installation *in, const char *folder)
{
    nrl_status st = install_files_of(in, folder);
    for (const plugin_kind *k = plugin_kinds; k->kind && st == NRL_OK; k++)
        st = install_files_of(in, arena_printf(&in->a, "%s/%s", folder, k->folder));
    return st;
}

/* ---- programs ---- */

/* Runs a program with its output in `log`; the end of the log is part of the error. */
static nrl_status run_program(installation *in, char *const *argv, const char *log)
{
    int state = 0;
    pid_t child = fork();
    if (child < 0) return nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(errno));
    if (child == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666), none = open("/dev/null", O_RDONLY);
        if (dup2(none, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
        setenv("LC_ALL", "C", 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return nrl_fail(NRL_ERR_IO, "cannot wait for %s: %s", argv[0], strerror(errno));
    if (WIFEXITED(state) && !WEXITSTATUS(state)) return NRL_OK;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 127)
        return nrl_fail(NRL_ERR_CONFIG, "cannot find the program '%s'", argv[0]);
    char *tail = arena_alloc(&in->a, LOG_TAIL + 1);
    FILE *f = fopen(log, "r");
    if (f && fseek(f, -LOG_TAIL, SEEK_END)) rewind(f);
    if (f && !fread(tail, 1, LOG_TAIL, f)) *tail = 0;
    if (f) fclose(f);
    return nrl_fail(NRL_ERR_PLUGIN, "%s failed:\n%s", argv[0], tail);
}

static nrl_status build(installation *in, const char *folder)
{
    arena *a = &in->a;
    NRL_TRY(make_stage(in));
    const char *exe = cli_exe_dir(a), *log = arena_printf(a, "%s/log", in->stage);
    char cmake[] = "cmake", s[] = "-S", b[] = "-B", type[] = "-DCMAKE_BUILD_TYPE=Release", flag[] = "--build";
    char *source = arena_strdup(a, folder), *to = arena_printf(a, "%s/build", in->stage);
    char *prefix = arena_printf(a, "-DCMAKE_PREFIX_PATH=%s/..", exe ? exe : ".");
    cli_page("building %s with cmake, which runs the commands in its CMakeLists.txt\n", folder);
    fflush(stdout);
    NRL_TRY(run_program(in, (char *[]){cmake, s, source, b, to, type, prefix, NULL}, log));
    NRL_TRY(run_program(in, (char *[]){cmake, flag, to, NULL}, log));
    return install_tree(in, arena_printf(a, "%s/plugins", to));
}

static nrl_status install_folder(installation *in, const char *folder)
{
    if (!access(arena_printf(&in->a, "%s/CMakeLists.txt", folder), R_OK)) return build(in, folder);
    return install_tree(in, folder);
}

/* ---- archives ---- */

static bool leaves(const char *name)
{
    if (*name == '/') return true;
    for (const char *at = name; at; at = strchr(at, '/'), at = at ? at + 1 : NULL)
        if (!strncmp(at, "..", 2) && (at[2] == '/' || !at[2])) return true;
    return false;
}

/* Checks the names in the archive, one per line: tar prints control characters escaped. */
static nrl_status check_names(const char *list)
{
    char *line = NULL;
    size_t room = 0;
    nrl_status st = NRL_OK;
    FILE *f = fopen(list, "r");
    if (!f) return failed("read", list);
    while (st == NRL_OK && getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (leaves(line)) st = nrl_fail(NRL_ERR_CONFIG, "cannot install the archive: '%s' is outside of it", line);
    }
    free(line);
    fclose(f);
    return st;
}

static const char *checked_root; /* nftw has no argument for state */

static int check_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
    char target[PATH_MAX];
    size_t n = strlen(checked_root);
    (void)at;
    if (type != FTW_SL && type != FTW_SLN) return S_ISREG(s->st_mode) || S_ISDIR(s->st_mode) ? 0 : 1;
    return !realpath(path, target) || strncmp(target, checked_root, n) || target[n] != '/';
}

/* Links must lead to files of the archive; all other entries are regular files and directories. */
static nrl_status check_links(const char *folder)
{
    char root[PATH_MAX];
    if (!realpath(folder, root)) return failed("read", folder);
    checked_root = root;
    int leads_out = nftw(root, check_entry, MOST_OPEN, FTW_PHYS);
    checked_root = NULL;
    if (!leads_out) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot install the archive: it contains a link that points outside, or a file "
                                    "that is neither a regular file nor a directory");
}

/* The only entry of `folder` if it is a directory that is not named like a kind of plugin, else
 * NULL. */
static const char *only_folder(arena *a, const char *folder)
{
    const char *found = NULL;
    size_t n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        const char *path = arena_printf(a, "%s/%s", folder, e->d_name);
        if (++n == 1 && !lstat(path, &s) && S_ISDIR(s.st_mode) && !plugin_kind_by_name(e->d_name)) found = path;
    }
    if (d) closedir(d);
    return n == 1 ? found : NULL;
}

static nrl_status install_archive(installation *in, const char *path)
{
    arena *a = &in->a;
    NRL_TRY(make_stage(in));
    const char *log = arena_printf(a, "%s/log", in->stage), *names = arena_printf(a, "%s/names", in->stage);
    char *to = arena_printf(a, "%s/archive", in->stage),
         *file = arena_strdup(a, paths_absolute(a, path)); /* tar takes HOST:FILE for another machine's */
    char tar[] = "tar", list[] = "-tf", take[] = "-xf", at[] = "-C", owner[] = "--no-same-owner";
    NRL_TRY(run_program(in, (char *[]){tar, list, file, NULL}, names));
    NRL_TRY(check_names(names));
    if (mkdir(to, 0777)) return failed("create", to);
    NRL_TRY(run_program(in, (char *[]){tar, take, file, at, to, owner, NULL}, log));
    NRL_TRY(check_links(to));
    const char *top = only_folder(a, to);
    return install_folder(in, top ? top : to);
}

/* ---- the verbs ---- */

static nrl_status install(installation *in, const char *path)
{
    struct stat s;
    if (stat(path, &s)) return nrl_fail(NRL_ERR_CONFIG, "cannot install '%s': %s", path, strerror(errno));
    NRL_TRY(find_user_folder(in));
    if (S_ISDIR(s.st_mode))
        NRL_TRY(install_folder(in, path));
    else if (ends_in(path, ".so"))
        NRL_TRY(install_file(in, path));
    else
        NRL_TRY(install_archive(in, path));
    if (in->n) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot install '%s': it contains no plugin; expected NAME.so, KIND/NAME.so, or a CMakeLists.txt "
                    "that calls nrl_plugin",
                    path);
}

nrl_status cli_plugins_install(int argc, char **argv)
{
    installation in = {.overwrite = cli_take_flag(&argc, argv, "--overwrite")};
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    nrl_status st = install(&in, argv[2]);
    if (in.stage) nftw(in.stage, remove_entry, MOST_OPEN, FTW_DEPTH | FTW_PHYS);
    arena_free(&in.a);
    return st;
}

static nrl_node *entry_node(arena *a, const listed_plugin *e, const char *hash)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append_text(a, map, "kind", e->kind->folder);
    node_append_text(a, map, "name", e->name);
    if (!e->problem) node_append_text(a, map, "version", e->about.version);
    if (!e->problem) node_append_text(a, map, "summary", e->about.summary);
    if (e->problem) node_append_text(a, map, "problem", e->problem);
    node_append_text(a, map, "path", e->path);
    if (hash) node_append_text(a, map, "sha256", hash);
    return map;
}

static void print_entry(const listed_plugin *e, const char *hash)
{
    cli_page("%s/%s %s\n", e->kind->folder, e->name, e->problem ? "broken" : e->about.version);
    cli_page("  %s\n", e->problem ? e->problem : e->about.summary);
    if (hash) cli_page("  sha256:%s\n", hash);
}

nrl_status cli_plugins_list(int argc, char **argv)
{
    installation in = {0};
    arena *a = &in.a;
    listed_plugin *entries;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    NRL_TRY(find_user_folder(&in));
    plugin_host *h = plugin_host_create(in.user, NULL, 0, NULL);
    plugin_host_limit(h, cli_getenv("NRL_PLUGIN_TIMEOUT"));
    size_t n = verbs_plugin_list(h, a, &entries);
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < n; i++) {
        char hash[HASH_SHA256_TEXT];
        bool is_hashed = hash_sha256_file(entries[i].path, hash) == NRL_OK;
        if (json)
            node_append(a, list, NULL, entry_node(a, &entries[i], is_hashed ? hash : NULL));
        else
            print_entry(&entries[i], is_hashed ? hash : NULL);
    }
    char *text = json_write(list, 2);
    if (json) printf("%s\n", text);
    if (!json && !n) cli_page("no plugins in %s\n", in.user);
    free(text);
    plugin_host_destroy(h);
    arena_free(a);
    return NRL_OK;
}

/* `word` is NAME or KIND/NAME. */
static nrl_status find_installed(installation *in, const char *word, const char **path)
{
    const char *slash = strchr(word, '/'), *name = slash ? slash + 1 : word, *kinds = "";
    size_t n = 0;
    if (!*name || *name == '.' || strchr(name, '/'))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is not the name of a plugin; expected NAME or KIND/NAME", word);
    const plugin_kind *only = slash ? plugin_kind_by_name(arena_strndup(&in->a, word, (size_t)(slash - word))) : NULL;
    if (slash && !only) return nrl_fail(NRL_ERR_CONFIG, "'%s' does not begin with a kind of plugin", word);
    for (const plugin_kind *k = plugin_kinds; k->kind; k++) {
        struct stat s;
        const char *file = arena_printf(&in->a, "%s/%s/%s.so", in->user, k->folder, name);
        if ((only && k != only) || lstat(file, &s)) continue;
        kinds = arena_printf(&in->a, "%s%s%s/%s", kinds, n++ ? ", " : "", k->folder, name);
        *path = file;
    }
    if (n == 1) return NRL_OK;
    return n ? nrl_fail(NRL_ERR_CONFIG, "several plugins have the name '%s'; expected one of: %s", word, kinds)
             : nrl_fail(NRL_ERR_CONFIG,
                        "no plugin '%s' in %s\nhint: `nrl plugins list` shows the plugins that you installed", word,
                        in->user);
}

nrl_status cli_plugins_remove(int argc, char **argv)
{
    installation in = {0};
    const char *path = NULL;
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    nrl_status st = find_user_folder(&in);
    if (st == NRL_OK) st = find_installed(&in, argv[2], &path);
    if (st == NRL_OK) st = unlink(path) ? failed("remove", path) : NRL_OK;
    if (st == NRL_OK) cli_page("removed %s\n", path);
    arena_free(&in.a);
    return st;
}
