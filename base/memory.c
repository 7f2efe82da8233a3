/*
 * memory.c - /proc/meminfo and the files of control groups, of both versions. What is missing limits
 * nothing.
 */
#include "base/memory.h"
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A hierarchy of groups: its mount, and its files. Version 1 says "no limit" by a number near 2^63. */
typedef struct {
    const char *controllers; /* as /proc/self/cgroup lists them */
    const char *mount, *limit, *usage, *cache;
} hierarchy;

static const hierarchy hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number behind `key` at the begin of a line; -1 where there is none ("max" is none). */
static int64_t number_in(const char *path, const char *key)
{
    char line[256];
    long long value = -1;
    size_t n = strlen(key);
    FILE *f = fopen(path, "re");
    while (f && value < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) || sscanf(line + n, "%lld", &value) != 1) value = -1;
    if (f) fclose(f);
    return value;
}

static int64_t number_of(const char *folder, const char *name, const char *key)
{
    char *path = mem_printf("%s/%s", folder, name);
    int64_t value = number_in(path, key);
    free(path);
    return value;
}

/* A number of bytes that a group gives its members. */
typedef int64_t (*group_number)(const hierarchy *h, const char *folder);

static int64_t limit_of(const hierarchy *h, const char *folder)
{
    int64_t limit = number_of(folder, h->limit, "");
    return limit < 0 ? INT64_MAX : limit;
}

/* Pages of files that nobody used lately make room. */
static int64_t room_in(const hierarchy *h, const char *folder)
{
    int64_t limit = number_of(folder, h->limit, ""), usage = number_of(folder, h->usage, "");
    int64_t cache = number_of(folder, "memory.stat", h->cache), used = usage - (cache > 0 ? cache : 0);
    if (limit < 0 || usage < 0) return INT64_MAX;
    if (used < 0) used = 0;
    return limit > used ? limit - used : 0;
}

/* The least of the group and those above it. A container may see its own group as the mount itself. */
static int64_t least_above(const hierarchy *h, group_number number, const char *root, const char *group)
{
    char *folder = mem_printf("%s%s%s", root, h->mount, group);
    size_t top = strlen(root) + strlen(h->mount);
    int64_t bytes = INT64_MAX;
    for (;;) {
        bytes = least(bytes, number(h, folder));
        char *slash = strrchr(folder + top, '/');
        if (!slash) break;
        *slash = 0;
    }
    free(folder);
    return bytes;
}

/* "4:memory:/user/7" or "0::/user/7": is it of this hierarchy? */
static const char *group_of(const hierarchy *h, char *line)
{
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return NULL;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    return strcmp(controllers + 1, h->controllers) ? NULL : group;
}

static int64_t least_of_groups(const char *root, const hierarchy *h, group_number number)
{
    char line[4096], *path = mem_printf("%s/proc/self/cgroup", root);
    int64_t bytes = INT64_MAX;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *group = group_of(h, line);
        if (group) bytes = least(bytes, least_above(h, number, root, group));
    }
    if (f) fclose(f);
    free(path);
    return bytes;
}

/* The machine's number by its key in /proc/meminfo, or less where groups have less. */
static int64_t least_of_all(const char *root, const char *key, group_number number)
{
    char *path = mem_printf("%s/proc/meminfo", root);
    int64_t kib = number_in(path, key), bytes = kib < 0 ? INT64_MAX : kib * 1024;
    free(path);
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
        bytes = least(bytes, least_of_groups(root, &hierarchies[i], number));
    return bytes;
}

int64_t memory_available(const char *root)
{
    return least_of_all(root, "MemAvailable:", room_in);
}

int64_t memory_total(const char *root)
{
    return least_of_all(root, "MemTotal:", limit_of);
}

const char *memory_limit_hint(char text[MEMORY_HINT])
{
    struct rlimit limit;
    *text = 0;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text, MEMORY_HINT,
                 "\nhint: this process may have %.0f MiB of addresses (ulimit -v), however much is free",
                 (double)limit.rlim_cur / (1 << 20));
    return text;
}
