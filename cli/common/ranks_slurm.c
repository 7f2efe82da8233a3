/*
 * ranks_slurm.c - Slurm's two compressed lists: host names, and tasks on each node.
 */
#include "cli/common/ranks.h"
#include <stdlib.h>
#include <string.h>

/* "a[1-2]b[03,5],c": the text before a bracket, the first number of each bracket, the text after it. */
const char *ranks_first_host(arena *a, const char *nodelist)
{
    char *host = arena_alloc(a, strlen(nodelist) + 1);
    size_t n = 0;
    for (const char *p = nodelist; *p && *p != ','; p++) {
        if (*p != '[') {
            host[n++] = *p;
            continue;
        }
        size_t digits = strspn(p + 1, "0123456789");
        const char *close = strchr(p, ']');
        if (!digits || !close || !strchr("-,]", p[1 + digits])) return NULL;
        memcpy(host + n, p + 1, digits);
        n += digits;
        p = close;
    }
    return n && !strchr(host, ']') ? host : NULL;
}

int32_t ranks_tasks_on(const char *tasks_per_node, int64_t node)
{
    for (const char *p = tasks_per_node; *p;) {
        char *end;
        long tasks = strtol(p, &end, 10), times = 1;
        if (end == p || tasks < 1 || tasks > INT32_MAX) return 0;
        if (!strncmp(end, "(x", 2)) {
            times = strtol(end + 2, &end, 10);
            if (*end != ')' || times < 1) return 0;
            end++;
        }
        if (node < times) return (int32_t)tasks;
        node -= times;
        if (*end && *end != ',') return 0;
        p = *end ? end + 1 : end;
    }
    return 0;
}
