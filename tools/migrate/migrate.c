/*
 * migrate.c - `nrl migrate FILE`: writes a config of nrl from a config or a command line of another trainer. Called by
 * people who port a recipe; trains nothing, opens no model, and runs no code of what it reads.
 */
#include "migrate.h"
#include "base/other_names.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *from, *out, *devices, *algorithm, *list;
    bool json, overwrite;
} migrate_flags;

static nrl_status unknown_format(const char *name)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "'%s' is not one of: trl, transformers, llamafactory, axolotl, torchtune, nemo-rl, generic", name);
}

static nrl_status take_flags(int *argc, char **argv, migrate_flags *f)
{
    f->json = cli_take_flag(argc, argv, "--json");
    f->overwrite = cli_take_flag(argc, argv, "--overwrite");
    NRL_TRY(cli_take_value(argc, argv, "--from", &f->from));
    NRL_TRY(cli_take_value(argc, argv, "-o", &f->out));
    NRL_TRY(cli_take_value(argc, argv, "--devices", &f->devices));
    NRL_TRY(cli_take_value(argc, argv, "--algorithm", &f->algorithm));
    return cli_take_value(argc, argv, "--list", &f->list);
}

static nrl_status apply_flags(migration *m, const migrate_flags *f)
{
    static const char *const methods[] = {"sft", "pt",  "dpo",    "ipo",     "orpo", "simpo",
                                          "cpo", "kto", "reward", "distill", "grpo"};
    char *end = NULL;
    m->out = f->out;
    if (f->from && !(m->format = trainer_find(f->from))) return unknown_format(f->from);
    if (f->devices) m->devices = strtoll(f->devices, &end, 10);
    if (f->devices && (*end || m->devices < 1 || m->devices > 1 << 20))
        return nrl_fail(NRL_ERR_CONFIG, "--devices: '%s'; expected a number from 1 to %d", f->devices, 1 << 20);
    for (size_t i = 0; f->algorithm && i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i], f->algorithm)) m->method = methods[i];
    if (f->algorithm && !m->method)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "--algorithm: '%s' is not one of: sft, pt, dpo, ipo, orpo, simpo, cpo, kto, reward, distill, grpo",
            f->algorithm);
    return NRL_OK;
}

static nrl_status write_file(const char *path, const char *text, bool overwrite)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (overwrite ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0 && errno == EEXIST) return nrl_fail(NRL_ERR_CONFIG, "%s exists\nhint: --overwrite replaces it", path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f)) ok = false;
    if (ok) return NRL_OK;
    return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

/* The config, the template beside it, and what is said about them. */
static nrl_status write_all(const migration *m, const migrate_flags *f)
{
    char *yaml = write_yaml(m), *json = f->json ? write_json(m, yaml) : NULL;
    nrl_status st = m->out ? write_file(m->out, yaml, f->overwrite) : NRL_OK;
    if (st == NRL_OK && m->template_text && m->out) {
        size_t stem = strlen(m->out) - (strrchr(m->out, '.') ? strlen(strrchr(m->out, '.')) : 0);
        st = write_file(arena_printf(m->a, "%.*s.jinja", (int)stem, m->out), m->template_text, f->overwrite);
    }
    if (st == NRL_OK && json)
        printf("%s\n", json);
    else if (st == NRL_OK && !m->out)
        cli_print(yaml);
    if (st == NRL_OK && !json) write_remarks(m);
    free(yaml);
    free(json);
    NRL_TRY(st);
    if (m->out && !json) cli_page("wrote %s; next:\n  nrl check %s\n", m->out, m->out);
    fflush(stdout);
    size_t lost = write_count(m, REMARK_LOST);
    if (!lost) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%zu key%s or value%s that change%s numbers could not be mapped%s", lost,
                    lost == 1 ? "" : "s", lost == 1 ? "" : "s", lost == 1 ? "s" : "",
                    f->json ? "" : "; the config lists them under \"Not mapped\"");
}

static nrl_status read_source(migration *m, int argc, char **argv, char **words, size_t n_words)
{
    if (n_words) {
        m->source = "command line";
        NRL_TRY(source_read_words(m, words, n_words));
    } else {
        m->source = argv[1];
        NRL_TRY(source_read_file(m, argv[1]));
    }
    for (int i = 2; i < argc; i++)
        NRL_TRY(source_override(m, argv[i]));
    source_resolve(m);
    if (!m->n_keys) return nrl_fail(NRL_ERR_CONFIG, "%s has no keys", m->source);
    return source_recognise(m);
}

/* What follows "--" is a command line, whose options are not those of this verb. */
static void take_words(int *argc, char **argv, char ***words, size_t *n)
{
    int at = 1;
    while (at < *argc && strcmp(argv[at], "--"))
        at++;
    *words = argv + at + (at < *argc);
    *n = at < *argc ? (size_t)(*argc - at - 1) : 0;
    if (at < *argc) argv[at] = NULL;
    *argc = at;
}

static nrl_status migrate(migration *m, int argc, char **argv)
{
    migrate_flags flags = {0};
    char **words;
    size_t n_words;
    take_words(&argc, argv, &words, &n_words);
    NRL_TRY(take_flags(&argc, argv, &flags));
    if (flags.list) {
        NRL_TRY(cli_expect(argc, argv, 0, 0));
        const trainer *t = trainer_find(flags.list);
        if (!t) return unknown_format(flags.list);
        write_table(t, m->a);
        return NRL_OK;
    }
    NRL_TRY(cli_expect(argc, argv, n_words ? 0 : 1, n_words ? 0 : -1));
    m->exe_dir = cli_exe_dir(m->a);
    NRL_TRY(apply_flags(m, &flags));
    NRL_TRY(read_source(m, argc, argv, words, n_words));
    NRL_TRY(build_config(m));
    return write_all(m, &flags);
}

static nrl_status migrate_verb(int argc, char **argv)
{
    arena a = {0};
    migration m = {.a = &a};
    nrl_status st = migrate(&m, argc, argv);
    free(m.keys);
    free(m.lines);
    free(m.remarks);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "migrate", migrate_verb);
}
