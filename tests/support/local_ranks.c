/*
 * local_ranks.c - one thread per rank, joined through a temporary directory.
 */
#include "support/local_ranks.h"
#include "support/local_collective.h"
#include "support/store.h"
#include <nrl/parallel.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

typedef struct {
    pthread_t thread;
    mesh_setup setup;
    nrl_status (*body)(nrl_mesh *mesh, int32_t rank, void *user);
    void *user;
    nrl_status status;
    char text[512];
} ranks_thread;

static void *run_rank(void *user)
{
    ranks_thread *t = user;
    nrl_mesh *mesh;
    t->status = mesh_open(&t->setup, &mesh);
    if (t->status == NRL_OK) {
        t->status = t->body(mesh, t->setup.place.rank, t->user);
        if (t->status != NRL_OK) {
            snprintf(t->text, sizeof t->text, "%s", nrl_error_text());
            mesh_report_failure(mesh, t->status, t->text);
        }
        mesh_close(mesh);
    } else {
        snprintf(t->text, sizeof t->text, "%s", nrl_error_text());
    }
    return NULL;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

nrl_status local_ranks_run(int32_t world, nrl_status (*body)(nrl_mesh *mesh, int32_t rank, void *user), void *user)
{
    const mesh_axis data = {"data", world, NRL_DIVIDES_BATCH};
    return local_ranks_run_axes(&data, 1, body, user);
}

nrl_status local_ranks_run_axes(const mesh_axis *axes, int32_t n_axes,
                                nrl_status (*body)(nrl_mesh *mesh, int32_t rank, void *user), void *user)
{
    ranks_thread threads[LOCAL_RANKS_MAX];
    char folder[] = "/tmp/nrl-ranks-XXXXXX";
    int32_t world = 1;
    for (int32_t i = 0; i < n_axes; i++)
        world *= axes[i].size;
    NRL_ASSERT(world, <=, LOCAL_RANKS_MAX);
    if (!mkdtemp(folder)) return nrl_fail(NRL_ERR_IO, "cannot make '%s'", folder);
    mesh_setup setup = {
        .collective = &local_collective,
        .store = test_store_kind("folder"),
        .timeout_init = 20,
        .timeout_step = 20,
        .fingerprint = "",
        .place = {.world = world, .local_world = world, .origin = "test", .store = folder, .run_id = ""},
        .n_axes = n_axes};
    memcpy(setup.axes, axes, (size_t)n_axes * sizeof *axes);
    for (int32_t r = 0; r < world; r++) {
        setup.place.rank = setup.place.local_rank = r;
        threads[r] = (ranks_thread){.setup = setup, .body = body, .user = user};
        NRL_ASSERT(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]), ==, 0);
    }
    for (int32_t r = 0; r < world; r++)
        pthread_join(threads[r].thread, NULL);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    for (int32_t r = 0; r < world; r++)
        if (threads[r].status != NRL_OK) return nrl_fail(threads[r].status, "rank %d: %s", r, threads[r].text);
    return NRL_OK;
}
