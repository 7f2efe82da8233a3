/*
 * common.c - shared by verbs: flags, the environment, printed pages.
 */
#include "base/escape.h"
#include "cli/common/cli.h"
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arguments ---- */

static void remove_arguments(int *argc, char **argv, int at, int n)
{
    for (int i = at; i + n <= *argc; i++)
        argv[i] = argv[i + n]; /* moves the final NULL too */
    *argc -= n;
}

bool cli_take_flag(int *argc, char **argv, const char *flag)
{
    for (int i = 1; i < *argc; i++)
        if (!strcmp(argv[i], flag)) {
            remove_arguments(argc, argv, i, 1);
            return true;
        }
    return false;
}

/* The index of "flag" or "flag=value"; argc if there is none. */
static int find_flag(int argc, char **argv, const char *flag)
{
    size_t n = strlen(flag);
    int i = 1;
    while (i < argc && (strncmp(argv[i], flag, n) || (argv[i][n] && argv[i][n] != '=')))
        i++;
    return i;
}

/* "1.5GiB"; a number alone is in bytes. */
nrl_status cli_take_size(int *argc, char **argv, const char *flag, int64_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    const char *text;
    char *end = NULL;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    double x = strtod(text, &end);
    for (size_t i = 0; end > text && i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].name) && x * units[i].bytes >= 1 && x * units[i].bytes < 0x1p62) {
            *bytes = (int64_t)(x * units[i].bytes);
            return NRL_OK;
        }
    return nrl_fail(NRL_ERR_CONFIG, "%s: expected a size such as 16GiB or 800MiB, found '%s'", flag, text);
}

nrl_status cli_take_values(int *argc, char **argv, const char *flag, const char **values, size_t most, size_t *n_values)
{
    size_t n = strlen(flag);
    *n_values = 0;
    for (int i = find_flag(*argc, argv, flag); i < *argc; i = find_flag(*argc, argv, flag)) {
        bool joined = argv[i][n] == '=';
        if (!joined && i + 1 >= *argc) return nrl_fail(NRL_ERR_CONFIG, "%s: missing value", flag);
        if (*n_values == most && most == 1) return nrl_fail(NRL_ERR_CONFIG, "%s: given twice", flag);
        if (*n_values == most) return nrl_fail(NRL_ERR_CONFIG, "%s: given more than %zu times", flag, most);
        values[(*n_values)++] = joined ? argv[i] + n + 1 : argv[i + 1];
        remove_arguments(argc, argv, i, joined ? 1 : 2);
    }
    return NRL_OK;
}

nrl_status cli_take_value(int *argc, char **argv, const char *flag, const char **value)
{
    size_t n;
    *value = NULL;
    return cli_take_values(argc, argv, flag, value, 1, &n);
}

nrl_status cli_expect(int argc, char **argv, int min, int max)
{
    for (int i = 1; i < argc; i++)
        if (*argv[i] == '-' && argv[i][1])
            return nrl_fail(NRL_ERR_CONFIG, "unknown flag '%s'\nhint: `nrl %s --help` shows the usage%s", argv[i],
                            argv[0], max < 0 ? "; config options are key=value, without dashes" : "");
    if (argc - 1 >= min && (max < 0 || argc - 1 <= max)) return NRL_OK;
    const cli_verb *verb = argc - 1 < min ? cli_find_verb(argv[0]) : NULL;
    return nrl_fail(NRL_ERR_CONFIG, "%s arguments\nhint: %s%s%s`nrl %s --help` shows the usage",
                    argc - 1 < min ? "missing" : "too many", verb ? "for example `nrl " : "", verb ? verb->example : "",
                    verb ? "`; " : "", argv[0]);
}

/* ---- environment ---- */

const char *cli_exe_dir(arena *a)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0 || n >= (ssize_t)sizeof path) return NULL;
    while (n > 1 && path[n - 1] != '/')
        n--;
    static const char libexec[] = "/" NRL_LIBEXEC_SUBDIR;
    size_t size = (size_t)n - 1, tail = sizeof libexec - 1;
    if (size > tail && !memcmp(path + size - tail, libexec, tail))
        return arena_printf(a, "%.*s/bin", (int)(size - tail), path);
    return arena_strndup(a, path, size);
}

nrl_status cli_read_input(arena *a, size_t most, char **text, size_t *size)
{
    char *read = NULL;
    size_t n = 0, room = 0;
    while (!feof(stdin) && !ferror(stdin) && n <= most) {
        if (n + 4096 > room) {
            room = 2 * room + 8192;
            read = mem_realloc(read, room);
        }
        n += fread(read + n, 1, room - n - 1, stdin);
    }
    const bool whole = feof(stdin) && !ferror(stdin);
    *size = n;
    *text = arena_strndup(a, read ? read : "", n);
    free(read);
    if (n > most) return nrl_fail(NRL_ERR_CONFIG, "standard input has more than %zu bytes", most);
    return whole ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "cannot read standard input to its end");
}

const char *cli_user_plugins(arena *a)
{
    const char *data = cli_getenv("XDG_DATA_HOME"), *home = cli_getenv("HOME");
    if (data && *data == '/') return arena_printf(a, "%s/nrl/plugins", data);
    return home && *home == '/' ? arena_printf(a, "%s/.local/share/nrl/plugins", home) : NULL;
}

const char *cli_getenv(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *cli_variable(const char *name)
{
    return getenv(name);
}

void cli_print(const char *text)
{
    if (isatty(STDOUT_FILENO))
        escape_print(stdout, text, strlen(text));
    else
        fputs(text, stdout);
}

void cli_page(const char *fmt, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, fmt);
    const int size = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    if (size < 0) return; /* out of memory for a line */
    escape_print(stdout, text, (size_t)size);
    free(text);
}
