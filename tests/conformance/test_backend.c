/*
 * test_backend.c - runs the backend suite on a file: test_backend FILE.so [--fails RULE]
 * [option=value ...]. With --fails the suite must fail by that rule; otherwise it must pass.
 */
#include "report.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 20 };

typedef struct {
    const char *expected; /* rule */
    int lines;
    bool seen;
} listener;

static void say(void *user, bool failed, const char *rule, const char *text)
{
    listener *l = user;
    if (failed && l->expected && strcmp(rule, l->expected) == 0) l->seen = true;
    if (l->lines++ < MOST_LINES) printf("%s: %s: %s\n", failed ? "FAILED" : "skipped", rule, text);
}

int main(int argc, char **argv)
{
    listener l = {0};
    if (argc < 2) return 2;
    int used = 2;
    if (argc > 3 && strcmp(argv[2], "--fails") == 0) {
        l.expected = argv[3];
        used = 4;
    }
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        printf("%s\n", dlerror());
        return 2;
    }
    const nrl_plugin *(*entry)(void);
    *(void **)&entry = dlsym(so, "nrl_plugin_entry");
    if (!entry || entry()->kind != NRL_KIND_BACKEND) return 2;
    conformance_report report = {.say = say, .user = &l, .n_settings = argc - used,
                                 .settings = (const char *const *)argv + used};
    conformance_backend((const nrl_backend *)(const void *)entry(), &report);
    printf("%d checks, %d failed\n", report.checked, report.failed);
    return l.expected ? !l.seen : report.failed != 0;
}
