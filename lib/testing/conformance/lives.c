/*
 * lives.c - see lives.h. The first instances may fill caches, so they are not counted.
 */
#include "lives.h"
#include "files.h"
#include <stdint.h>

enum {
    FIRST_LIVES = 4,
    MAX_ROUNDS = 12,
    N_LIVES = 64,
    MOST_BYTES = 8
}; /* bytes that an instance may leave, on average */

typedef struct {
    conformance_report *report;
    bool (*once)(void *user);
    void *user;
} lives;

/* The allocator's own caches make the memory in use rise until they are full. A leak makes it rise in every round. */
static void run_lives(void *user)
{
    const lives *l = user;
    for (int i = 0; i < FIRST_LIVES; i++)
        if (!l->once(l->user)) return;
    int descriptors = files_open_descriptors();
    int64_t least = INT64_MAX;
    int round = 0;
    for (; round < MAX_ROUNDS && least >= N_LIVES * MOST_BYTES; round++) {
        int64_t bytes = (int64_t)files_memory_in_use();
        for (int i = 0; i < N_LIVES; i++)
            if (!l->once(l->user)) return;
        int64_t more = (int64_t)files_memory_in_use() - bytes;
        if (more < least) least = more;
    }
    int more = files_open_descriptors() - descriptors;
    report_check(l->report, more <= 0, "nothing stays open", "%d descriptors more after %d instances", more,
                 round * N_LIVES);
    report_check(l->report, least < N_LIVES * MOST_BYTES, "close gives the memory back",
                 "%lld bytes more after %d instances", (long long)least, N_LIVES);
}

void lives_check(conformance_report *r, bool (*once)(void *user), void *user)
{
    lives l = {r, once, user};
    report_case(r, "instances come and go", run_lives, &l);
}

typedef struct {
    nrl_status (*create)(const void *options, void **self);
    void (*destroy)(void *self);
    const void *options;
} created;

static bool create_once(void *user)
{
    const created *c = user;
    void *self = NULL;
    if (c->create(c->options, &self) != NRL_OK) return false;
    if (c->destroy) c->destroy(self);
    return true;
}

void lives_check_created(conformance_report *r, nrl_status (*create)(const void *options, void **self),
                         void (*destroy)(void *self), const void *options)
{
    created c = {create, destroy, options};
    if (create) lives_check(r, create_once, &c);
}
