/*
 * frontend.c - rules for every frontend, whatever its language: it leaves configs alone, names the
 * script in each failure, keeps nothing between scripts, and has a page that can be printed.
 */
#include "suites.h"
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4096, MOST_COLUMNS = 110 };

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static void frontend_check_probe(const nrl_frontend *table, conformance_report *r)
{
    static const char *const configs[] = {"sft.yaml", "folder/sft.yml", "config.json"};
    static const char *const odd[] = {"", ".", "/", "a", "a.", "a.b/c", "\xff\xfe", "nowhere/at/all.x"};
    if (!table->probe) {
        report_skip(r, "a probe serves no config", "it has no probe");
        return;
    }
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        report_check(r, !table->probe(configs[i]), "a probe serves no config", "%s is served", configs[i]);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        bool first = table->probe(odd[i]), again = table->probe(odd[i]);
        report_check(r, first == again, "a probe always gives the same answer", "'%s'", odd[i]);
    }
}

/* A text that is not a program in any language: control characters, an unclosed quote, a lone
 * bracket. */
static bool frontend_write_broken(char *path, size_t room, const char *folder)
{
    static const char text[] = "\x01\x02 ]]) \"never closed\n\x7f)(\n";
    snprintf(path, room, "%s/broken.script", folder);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool written = fwrite(text, 1, sizeof text - 1, f) == sizeof text - 1;
    return !fclose(f) && written;
}

static nrl_status frontend_run(const nrl_frontend *table, const conformance_setup *setup, const char *path, int *code)
{
    const nrl_environment env = {.size = sizeof env,
                                 .variable = no_variable,
                                 .quiet = true,
                                 .check_only = true,
                                 .script = path,
                                 .script_hash = "00000000000000000000000000000000",
                                 .frontend = "conformance"};
    static const char *const words[] = {"a.b=1", "word"};
    const nrl_frontend_job job = {
        .size = sizeof job, .script = path, .words = words, .n_words = 2, .environment = &env};
    *code = -1;
    nrl_fail(NRL_OK, "%s", "");
    return table->run(setup->options, &job, code);
}

static void frontend_check_failures(const nrl_frontend *table, const conformance_setup *setup, conformance_report *r)
{
    char path[MAX_PATH], first[512];
    int code;
    snprintf(path, sizeof path, "%s/nowhere.script", setup->folder);
    nrl_status st = frontend_run(table, setup, path, &code);
    report_check(r, st != NRL_OK, "a missing script is an error", "it was run");
    report_check(r, st == NRL_OK || strstr(nrl_error_text(), "nowhere.script"), "a failure names the script", "'%s'",
                 nrl_error_text());
    if (!report_check(r, frontend_write_broken(path, sizeof path, setup->folder), "the suite can write a script", "%s",
                      path))
        return;
    st = frontend_run(table, setup, path, &code);
    snprintf(first, sizeof first, "%s", nrl_error_text());
    report_check(r, st == NRL_ERR_CONFIG, "a mistake of the script is NRL_ERR_CONFIG", "status %d: %s", (int)st, first);
    report_check(r, strstr(first, "broken.script") != NULL, "a failure names the script", "'%s'", first);
    nrl_status again = frontend_run(table, setup, path, &code);
    report_check(r, again == st && !strncmp(first, nrl_error_text(), sizeof first - 1),
                 "a script leaves no state behind", "at first '%s', then '%s'", first, nrl_error_text());
}

static void frontend_check_page(const nrl_frontend *table, conformance_report *r)
{
    const char *page = table->describe ? table->describe() : NULL;
    if (!table->describe) {
        report_skip(r, "a page ends with a line's end", "it has no page");
        return;
    }
    if (!report_check(r, page && *page, "a page has text", "%s", page ? "it is empty" : "it is NULL")) return;
    report_check(r, page[strlen(page) - 1] == '\n', "a page ends with a line's end", "it ends with '%c'",
                 page[strlen(page) - 1]);
    for (const char *line = page; *line; line += strcspn(line, "\n") + 1) {
        size_t n = strcspn(line, "\n");
        if (!report_check(r, n <= MOST_COLUMNS, "a page fits a terminal", "a line has %zu columns", n) || !line[n])
            break;
    }
}

void conformance_frontend(const nrl_frontend *table, const conformance_setup *setup, conformance_report *r)
{
    REPORT_CASE(r, "a probe serves no config") frontend_check_probe(table, r);
    REPORT_CASE(r, "a failure names the script") frontend_check_failures(table, setup, r);
    REPORT_CASE(r, "a page has text") frontend_check_page(table, r);
}
