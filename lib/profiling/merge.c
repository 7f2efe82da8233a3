/*
 * merge.c - the timelines of all ranks in one file, with the times of rank 0's clock.
 */
#include "base/clock.h"
#include "mesh/store.h"
#include "profiling/clock.h"
#include "profiling/internal.h"
#include "run/internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What each rank reports about its part. */
typedef struct {
    int64_t size; /* of the text; -1: there is none */
    double offset, round_trip;
} part;

static double host_clock(void *unused)
{
    (void)unused;
    return clock_seconds();
}

/* This rank's events, on rank 0's clock. *text stays NULL if there are none. */
static nrl_status own_part(run *r, part *own, char **text)
{
    const nrl_mesh *mesh = r->session.mesh;
    const profile *p = r->session.ctx->profile;
    char host[256] = "", name[320];
    double zero = p ? p->began : clock_seconds();
    NRL_TRY(ctx_profile_read(r->session.ctx));
    if (nrl_mesh_world(mesh) > 1)
        NRL_TRY(clock_compare(mesh_store(mesh), "profile clock", nrl_mesh_rank(mesh), nrl_mesh_world(mesh), host_clock,
                              NULL, &own->offset, &own->round_trip));
    NRL_TRY(mesh_broadcast(r->session.mesh, "the beginning of a trace", 0, &zero, sizeof zero));
    if (gethostname(host, sizeof host - 1)) *host = '\0';
    snprintf(name, sizeof name, "rank %d (%s, pid %d)", (int)nrl_mesh_rank(mesh), host, (int)getpid());
    *text = p && p->trace ? trace_text(p->trace, nrl_mesh_rank(mesh), name, zero - own->offset) : NULL;
    own->size = *text ? (int64_t)strlen(*text) : -1;
    return NRL_OK;
}

static void put_header(FILE *f, const part *all, int32_t n)
{
    fputs("{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"clock_offset_s\":[", f);
    for (int32_t i = 0; i < n; i++)
        fprintf(f, "%s%.9f", i ? "," : "", all[i].offset);
    fputs("],\"clock_round_trip_s\":[", f);
    for (int32_t i = 0; i < n; i++)
        fprintf(f, "%s%.9f", i ? "," : "", all[i].round_trip);
    fputs("]},\n\"traceEvents\":[\n", f);
}

/* All ranks send their parts in turn; f is NULL on ranks other than 0. */
static nrl_status gather(nrl_mesh *mesh, const part *all, char *own, FILE *f)
{
    for (int32_t i = 0; i < nrl_mesh_world(mesh); i++) {
        char *text = i == nrl_mesh_rank(mesh) ? own : mem_try((size_t)all[i].size, "the trace of another rank");
        nrl_status st = text ? NRL_OK : NRL_ERR_MEMORY;
        if (st == NRL_OK && i) st = mesh_broadcast(mesh, "a trace", i, text, (size_t)all[i].size);
        if (st == NRL_OK && f) fprintf(f, "%s%.*s", i ? ",\n" : "", (int)all[i].size, text);
        if (text != own) free(text);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static nrl_status write_parts(nrl_mesh *mesh, const part *all, char *own, const char *path)
{
    const bool writes = nrl_mesh_rank(mesh) == 0;
    FILE *f = writes ? fopen(path, "we") : NULL;
    int32_t problem = writes && !f ? errno : 0;
    NRL_TRY(mesh_broadcast(mesh, "the file of a trace", 0, &problem, sizeof problem));
    if (problem) return nrl_fail(NRL_ERR_IO, "cannot write %s: %s", path, strerror(problem));
    if (f) put_header(f, all, nrl_mesh_world(mesh));
    nrl_status st = gather(mesh, all, own, f);
    if (!f) return st;
    fputs("\n]}\n", f);
    bool failed = ferror(f) != 0;
    errno = 0;
    if (fclose(f) || failed)
        st = st == NRL_OK ? nrl_fail(NRL_ERR_IO, "cannot write %s: %s", path, errno ? strerror(errno) : "I/O error")
                          : st;
    return st;
}

nrl_status nrl_run_trace_write(nrl_run *r, const char *path, int64_t *n_dropped)
{
    NRL_TRY(hooks_check_call(&r->hooks, "write a trace"));
    nrl_mesh *mesh = r->session.mesh;
    const int32_t n = nrl_mesh_world(mesh);
    part own = {0}, *all = mem_alloc((size_t)n * sizeof *all);
    char *text = NULL;
    nrl_status st = own_part(r, &own, &text);
    if (st == NRL_OK) st = mesh_exchange(mesh, "the sizes of traces", &own, sizeof own, all);
    for (int32_t i = 0; i < n && st == NRL_OK; i++)
        if (all[i].size < 0)
            st = nrl_fail(NRL_ERR_CONFIG,
                          "cannot write a trace: the profile of rank %d was started without NRL_PROFILE_TRACE, or ran "
                          "out of memory for it",
                          (int)i);
    if (st == NRL_OK) st = write_parts(mesh, all, text, path);
    if (n_dropped) *n_dropped = st == NRL_OK ? trace_n_dropped(r->session.ctx->profile->trace) : 0;
    free(text);
    free(all);
    return run_end_call(r, st);
}
