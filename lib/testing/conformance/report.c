/*
 * report.c - counting checks by rule.
 */
#include "report.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A case of a correct plugin takes about a second of processor time. A plugin does not return if a case takes
 * CASE_SECONDS of it, or while ALARM_SECONDS pass less than LEAST_SECONDS. On a busy machine a case may last longer.
 */
enum { CASE_SECONDS = 1800, ALARM_SECONDS = 300, LEAST_SECONDS = 3 };

static volatile sig_atomic_t at_begin, at_alarm; /* processor time when the case began, and when the alarm was set */

static int processor_seconds(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int)t.tv_sec;
}

static void on_alarm(int signal_number)
{
    const int now = processor_seconds();
    if (now - at_begin < CASE_SECONDS && now - at_alarm >= LEAST_SECONDS) {
        at_alarm = now;
        alarm(ALARM_SECONDS);
        return;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* ends the process when this function returns */
}

static void limit_time(void)
{
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, NULL);
    at_begin = at_alarm = processor_seconds();
    alarm(ALARM_SECONDS);
}

static conformance_rule *find_rule(conformance_report *r, const char *name)
{
    for (int64_t i = 0; i < r->n_rules; i++)
        if (!strcmp(r->rules[i].rule, name)) return &r->rules[i];
    NRL_ASSERT(r->n_rules, <, CONFORMANCE_MAX_RULES);
    NRL_ASSERT(strlen(name), <, sizeof r->rules[0].rule);
    conformance_rule *rule = &r->rules[r->n_rules++];
    snprintf(rule->rule, sizeof rule->rule, "%s", name);
    return rule;
}

bool(report_check)(conformance_report *r, bool holds, const char *rule_name, const char *fmt, ...)
{
    conformance_rule *rule = find_rule(r, rule_name);
    r->checked++;
    rule->checked++;
    if (holds) return true;
    r->failed++;
    if (rule->failed++) return false;
    va_list a;
    va_start(a, fmt);
    vsnprintf(rule->text, sizeof rule->text, fmt, a);
    va_end(a);
    return false;
}

bool(report_ok)(conformance_report *r, nrl_status st, const char *rule)
{
    return report_check(r, st == NRL_OK, rule, "status %d: %s", (int)st, nrl_error_text());
}

bool report_case(conformance_report *r, const char *rule, void (*run)(void *user), void *user)
{
    int state = 0;
    fflush(NULL); /* or the child would write the buffers a second time */
    pid_t child = fork();
    if (child == 0) {
        run(user);
        _exit(0);
    }
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (child < 0) return report_check(r, false, rule, "cannot start a process: %s", strerror(errno));
    if (WIFSIGNALED(state))
        return report_check(r, false, rule, "the plugin ended the process: %s", strsignal(WTERMSIG(state)));
    return report_check(r, !WEXITSTATUS(state), rule, "the plugin ended the process: exit code %d", WEXITSTATUS(state));
}

bool report_begin(conformance_report *r, const char *rule)
{
    int32_t i = r->n_cases++;
    NRL_ASSERT(i, <, CONFORMANCE_MAX_CASES);
    if (r->cases[i] != CASE_NEW) return false;
    r->cases[i] = CASE_RUNNING;
    r->current = i + 1;
    snprintf(r->rule, sizeof r->rule, "%s", rule);
    limit_time();
    return true;
}

bool report_end(conformance_report *r, conformance_case as)
{
    alarm(0);
    r->cases[r->current - 1] = (unsigned char)as;
    r->current = 0;
    return false;
}

void report_skip(conformance_report *r, const char *rule_name, const char *why)
{
    conformance_rule *rule = find_rule(r, rule_name);
    snprintf(rule->text, sizeof rule->text, "%s", why);
}

void report_merge(conformance_report *into, const conformance_report *from)
{
    for (int64_t i = 0; i < from->n_rules; i++) {
        const conformance_rule *more = &from->rules[i];
        conformance_rule *rule = find_rule(into, more->rule);
        if (!rule->failed && *more->text) memcpy(rule->text, more->text, sizeof rule->text);
        rule->checked += more->checked;
        rule->failed += more->failed;
    }
    into->checked += from->checked;
    into->failed += from->failed;
}
