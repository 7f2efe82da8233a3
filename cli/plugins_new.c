/*
 * plugins_new.c - `nrl plugins new KIND NAME DIR`: creates a plugin that builds, runs and is tested,
 * from the installed skeletons. Never overwrites a file.
 */
#include "base/buffer.h"
#include "base/file.h"
#include "cli/verbs.h"
#include <ctype.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SKELETON = 1 << 20, MAX_NAME = 60 };

typedef struct {
    arena a;
    const plugin_kind *kind;
    const char *name, *folder, *skeletons;
    const char *bin; /* the directory of this program */
} beginning;

/* ---- arguments ---- */

/* The name is a file name, a C identifier, a CMake target and a word in configs. */
static nrl_status check_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (!islower((unsigned char)*name) || name[n] || n > MAX_NAME)
        return nrl_fail(NRL_ERR_CONFIG, "name '%.80s': expected at most %d of a-z, 0-9 and _, starting with a letter",
                        name, MAX_NAME);
    if (!strcmp(name, "nrl") || !strncmp(name, "nrl_", 4))
        return nrl_fail(NRL_ERR_CONFIG, "name '%s': names that begin with nrl are reserved", name);
    return NRL_OK;
}

static bool exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

/* The file of a kind's skeleton: its name up to a space. */
static const char *skeleton_of(beginning *b, const plugin_kind *k)
{
    return arena_printf(&b->a, "%s/%.*s.c", b->skeletons, (int)strcspn(k->name, " "), k->name);
}

/* Every kind has a skeleton. */
static nrl_status find_skeleton(beginning *b, const char *word)
{
    b->kind = plugin_kind_by_name(word);
    const char *all = "";
    for (const plugin_kind *k = plugin_kinds; k->kind; k++)
        all = arena_printf(&b->a, "%s%s%.*s", all, *all ? ", " : "", (int)strcspn(k->name, " "), k->name);
    if (!b->kind) return nrl_fail(NRL_ERR_CONFIG, "'%s' is not a kind of plugin; expected one of: %s", word, all);
    if (exists(skeleton_of(b, b->kind))) return NRL_OK;
    return nrl_fail(NRL_ERR_IO,
                    "cannot create a plugin: no skeletons in %s\n"
                    "hint: the headers include them (package libnrl-dev, or `cmake --install`)",
                    b->skeletons);
}

/* ---- files ---- */

/* Replaces @NAME@ and @KIND@ in `text`. */
static void fill_in(const beginning *b, const char *text, buffer *out)
{
    const char *at;
    while ((at = strchr(text, '@')) != NULL) {
        buffer_add(out, text, (size_t)(at - text));
        text = at + 6;
        if (!strncmp(at, "@NAME@", 6)) {
            buffer_puts(out, b->name);
        } else if (!strncmp(at, "@KIND@", 6)) {
            buffer_puts(out, b->kind->name);
        } else {
            buffer_add(out, at, 1);
            text = at + 1;
        }
    }
    buffer_puts(out, text);
}

static nrl_status failed(const char *path)
{
    return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

static nrl_status write_file(const char *path, const buffer *text)
{
    FILE *file = fopen(path, "wx"); /* x: fails if the file exists */
    if (!file) return failed(path);
    bool good = fwrite(text->text, 1, text->size, file) == text->size;
    good = fclose(file) == 0 && good;
    return good ? NRL_OK : failed(path);
}

static nrl_status copy_file(const beginning *b, const char *from, const char *to)
{
    char *text;
    size_t size;
    buffer filled = {0};
    NRL_TRY(file_read(from, MAX_SKELETON, &text, &size));
    fill_in(b, text, &filled);
    free(text);
    nrl_status st = write_file(to, &filled);
    buffer_free(&filled);
    if (st == NRL_OK) printf("%s\n", to);
    return st;
}

static nrl_status write_all(beginning *b)
{
    const char *from[] = {skeleton_of(b, b->kind), arena_printf(&b->a, "%s/CMakeLists.txt", b->skeletons),
                          arena_printf(&b->a, "%s/README.md", b->skeletons)};
    const char *to[] = {arena_printf(&b->a, "%s/%s.c", b->folder, b->name),
                        arena_printf(&b->a, "%s/CMakeLists.txt", b->folder),
                        arena_printf(&b->a, "%s/README.md", b->folder)};
    for (int i = 0; i < 3; i++)
        if (exists(to[i])) return nrl_fail(NRL_ERR_CONFIG, "'%s' already exists; nothing was written", to[i]);
    if (mkdir(b->folder, 0777) && errno != EEXIST) return failed(b->folder);
    for (int i = 0; i < 3; i++)
        NRL_TRY(copy_file(b, from[i], to[i]));
    return NRL_OK;
}

/* CMake finds an nrl whose program is on PATH by itself. */
static void print_next(beginning *b)
{
    const char *d = b->folder, *path = cli_getenv("PATH");
    const bool is_on_path = path && strstr(arena_printf(&b->a, ":%s:", path), arena_printf(&b->a, ":%s:", b->bin));
    const char *prefix =
        is_on_path ? "" : arena_printf(&b->a, " -DCMAKE_PREFIX_PATH=%s", dirname(arena_strdup(&b->a, b->bin)));
    printf("build it:  cmake -S %s -B %s/build%s && cmake --build %s/build\n"
           "test it:   ctest --test-dir %s/build --output-on-failure\n"
           "find it:   NRL_PLUGIN_PATH=%s/build/plugins %s%snrl describe %s\n",
           d, d, prefix, d, d, d, is_on_path ? "" : b->bin, is_on_path ? "" : "/", b->name);
}

nrl_status cli_plugins_new(int argc, char **argv)
{
    beginning b = {0};
    NRL_TRY(cli_expect(argc, argv, 4, 4));
    const char *exe = cli_exe_dir(&b.a);
    b.name = argv[3];
    b.folder = argv[4];
    b.bin = exe ? exe : ".";
    b.skeletons = arena_printf(&b.a, "%s/../" NRL_SKELETONS, b.bin);
    nrl_status st = check_name(b.name);
    if (st == NRL_OK) st = find_skeleton(&b, argv[2]);
    if (st == NRL_OK) st = write_all(&b);
    if (st == NRL_OK) print_next(&b);
    arena_free(&b.a);
    return st;
}
