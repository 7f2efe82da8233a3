/*
 * memory.c - reads /proc/meminfo and the files of control groups, versions 1 and 2. A missing file means no limit.
 */
#include "base/memory.h"
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A hierarchy of control groups: its mount point and file names. Version 1 writes "no limit" as a number near 2^63. */
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

/* Returns the number after `key` at the start of a line, or -1 if there is no number ("max" is not a number). */
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

static int64_t number_of(const char *dir, const char *name, const char *key)
{
    char *path = mem_printf("%s/%s", dir, name);
    int64_t value = number_in(path, key);
    free(path);
    return value;
}

/* Reads a number of bytes, such as the limit, from the directory of a group. */
typedef int64_t (*group_number)(const hierarchy *h, const char *dir);

static int64_t limit_of(const hierarchy *h, const char *dir)
{
    int64_t limit = number_of(dir, h->limit, "");
    return limit < 0 ? INT64_MAX : limit;
}

/* The kernel reclaims inactive file pages on demand, so they count as available. */
static int64_t room_in(const hierarchy *h, const char *dir)
{
    int64_t limit = number_of(dir, h->limit, ""), usage = number_of(dir, h->usage, "");
    int64_t cache = number_of(dir, "memory.stat", h->cache), used = usage - (cache > 0 ? cache : 0);
    if (limit < 0 || usage < 0) return INT64_MAX;
    if (used < 0) used = 0;
    return limit > used ? limit - used : 0;
}

/* Returns the smallest number of the group and the groups above it, up to the mount point: inside a container the
 * mount point itself may be the process's group. */
static int64_t least_above(const hierarchy *h, group_number number, const char *root, const char *group)
{
    char *dir = mem_printf("%s%s%s", root, h->mount, group);
    size_t top = strlen(root) + strlen(h->mount);
    int64_t bytes = INT64_MAX;
    for (;;) {
        bytes = least(bytes, number(h, dir));
        char *slash = strrchr(dir + top, '/');
        if (!slash) break;
        *slash = 0;
    }
    free(dir);
    return bytes;
}

/* Returns the group path of a line "4:memory:/user/7" or "0::/user/7", or NULL if the line is about another hierarchy.
 */
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

/* Returns the machine's number in /proc/meminfo, or the number of a control group if that is smaller. */
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
        snprintf(text, MEMORY_HINT, "\nhint: ulimit -v limits this process to %.0f MiB of address space",
                 (double)limit.rlim_cur / (1 << 20));
    return text;
}
