/*
 * frontends.h - frontends that break one rule each, with the rule that must detect it. The correct
 * one only accepts lines with the word "nothing".
 */
#ifndef WRONG_FRONTENDS_H
#define WRONG_FRONTENDS_H
#include <nrl/nrl.h>
#include <stdio.h>
#include <string.h>

static bool right_probe(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".nothing");
}

static bool greedy_probe(const char *path)
{
    return *path != 0;
}

static bool moody_probe(const char *path)
{
    static bool last;
    const char *dot = strrchr(path, '.');
    if (dot && dot[1]) return false;
    return last = !last;
}

static nrl_status right_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    char line[64];
    nrl_status st = NRL_OK;
    FILE *f = fopen(job->script, "rb");
    (void)options;
    (void)exit_code;
    if (!f) return nrl_fail(NRL_ERR_CONFIG, "%s: cannot be opened", job->script);
    while (st == NRL_OK && fgets(line, sizeof line, f))
        if (strcmp(line, "nothing\n")) st = nrl_fail(NRL_ERR_CONFIG, "%s: expected the word nothing", job->script);
    fclose(f);
    return st;
}

static nrl_status nameless_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    nrl_status st = right_run(options, job, exit_code);
    return st == NRL_OK ? st : nrl_fail(st, "it did not work");
}

static nrl_status blaming_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    nrl_status st = right_run(options, job, exit_code);
    if (st != NRL_OK) nrl_add_context("nrl");
    return st == NRL_OK ? st : NRL_ERR_BUG;
}

static nrl_status tolerant_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    FILE *f = fopen(job->script, "rb");
    if (!f) return NRL_OK;
    fclose(f);
    return right_run(options, job, exit_code);
}

static nrl_status remembering_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    static int n;
    nrl_status st = right_run(options, job, exit_code);
    if (st != NRL_OK) nrl_add_context("script %d", ++n);
    return st;
}

static const char *right_describe(void)
{
    return "  nothing     does nothing\n";
}

static const char *open_describe(void)
{
    return "  nothing     does nothing";
}

static const char *empty_describe(void)
{
    return "";
}

static const char *wide_describe(void)
{
    return "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 "
           "0123456789 more\n";
}

#define WRONG(nm, rule, p, r, d)                                                                                       \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_FRONTEND, nrl_frontend, #nm, "0", rule), .probe = p, .run = r, .describe = d         \
    }
static const nrl_frontend wrong[] = {
    WRONG(right, "nothing is wrong with it", right_probe, right_run, right_describe),
    WRONG(greedy, "a probe serves no config", greedy_probe, right_run, NULL),
    WRONG(moody, "a probe always gives the same answer", moody_probe, right_run, NULL),
    WRONG(nameless, "a failure names the script", right_probe, nameless_run, NULL),
    WRONG(blaming, "a mistake of the script is NRL_ERR_CONFIG", right_probe, blaming_run, NULL),
    WRONG(tolerant, "a missing script is an error", right_probe, tolerant_run, NULL),
    WRONG(remembering, "a script leaves no state behind", right_probe, remembering_run, NULL),
    WRONG(unended, "a page ends with a line's end", right_probe, right_run, open_describe),
    WRONG(wordless, "a page has text", right_probe, right_run, empty_describe),
    WRONG(wide, "a page fits a terminal", right_probe, right_run, wide_describe),
    WRONG(lacks_run, "run is NULL", right_probe, NULL, NULL),
};
#undef WRONG

#endif
