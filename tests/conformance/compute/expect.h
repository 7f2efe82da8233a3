/*
 * expect.h - for the tests of the suites: a plugin that must pass, and one that must fail by a
 * rule.
 */
#ifndef CONFORMANCE_EXPECT_H
#define CONFORMANCE_EXPECT_H
#include "../conformance.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *rule; /* looked for; NULL = print failures */
    int found, other;
    char first[256]; /* another rule that failed */
} expectation;

static inline void expect_say(void *user, bool failed, const char *rule, const char *text)
{
    expectation *e = user;
    if (!failed) return;
    if (!e->rule) {
        printf("    %s: %s\n", rule, text);
    } else if (!strcmp(rule, e->rule)) {
        e->found++;
    } else {
        e->other++;
        snprintf(e->first, sizeof e->first, "%s: %s", rule, text);
    }
}

/* Whether what the suite found is what was expected; says so if not. */
static inline bool expect_met(const expectation *e, const conformance_report *r, const char *name)
{
    if (!e->rule) {
        printf("%s: %d checks, %d failed\n", name, r->checked, r->failed);
        return r->failed == 0 && r->checked > 0;
    }
    if (e->found) return true;
    printf("%s: broke no rule '%s'%s%s\n", name, e->rule, e->other ? ", but " : "", e->first);
    return false;
}

/* <plugin path>/<kind>/<name>.so, its table zero beyond what the plugin knows; false = not there.
 */
static inline bool expect_open(const char *kind, const char *name, void *fill, size_t size)
{
    const char *folder = getenv("NRL_PLUGIN_PATH");
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s.so", folder ? folder : ".", kind, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const nrl_plugin *(*entry)(void);
    if (library) *(void **)&entry = dlsym(library, "nrl_plugin_entry");
    if (!library || !entry) {
        printf("skipped: %s\n", dlerror());
        return false;
    }
    const nrl_plugin *p = entry();
    memset(fill, 0, size);
    memcpy(fill, p, p->size < size ? p->size : size);
    return true;
}

#endif
