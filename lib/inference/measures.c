/*
 * measures.c - see measures.h. Times and memory come with every step; norms of the weights, and what ranks compare,
 * with every tenth one, because the first reads all weights and the second is an exchange of its own.
 */
#include "inference/measures.h"
#include "base/clock.h"
#include "inference/leaks.h"
#include "optim/clip.h"
#include "run/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SELDOM = 10, MEMORY_OF_NORMS = 100 };

static double value_of(const value_list *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (!strcmp(v->list[i].name, name)) return v->list[i].value;
    return NAN;
}

/* Seconds that all threads of this process computed. */
static double cpu_seconds(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u)) return NAN;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Of the machine, as free(1) counts: all that is not available to a new program. */
static bool host_memory(double *used, double *total)
{
    char line[128];
    double available = -1, kib;
    *total = -1;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f) && (*total < 0 || available < 0)) {
        if (sscanf(line, "MemTotal: %lf", &kib) == 1) *total = 1024 * kib;
        if (sscanf(line, "MemAvailable: %lf", &kib) == 1) available = 1024 * kib;
    }
    if (f) fclose(f);
    *used = *total - available;
    return *total > 0 && available >= 0;
}

/* The samples of the step that is over, on all ranks. */
static double n_samples(const session *se, int64_t step)
{
    const session_data *d = se->later.set ? &se->later : &se->train;
    const int64_t per_epoch = data_plan_steps_per_epoch(d->plan), batch = se->config.train.global_batch;
    int64_t n = 0;
    if ((step - 1 - d->begin) / session_updates(se) % per_epoch != per_epoch - 1) return (double)batch;
    for (int64_t i = 0; i < dataset_info(d->set)->n_parts;) {
        const dataset_part entry = dataset_entry_at(d->set, &i);
        n += data_plan_entry_examples(&entry);
    }
    n -= (per_epoch - 1) * batch; /* the last batch of an epoch */
    return (double)(n < batch ? n : batch);
}

/* The norm of all trained weights, and of the update if it was measured; a rank counts the elements that no lower rank
 * has too. */
static nrl_status add_norms(run *r, value_list *v)
{
    trainer *tr = &r->trainer;
    const nrl_mesh *mesh = r->session.mesh;
    double own[2] = {0, tr->moved}, sum = 0, moved = 0;
    double(*all)[2] = mem_alloc((size_t)nrl_mesh_world(mesh) * sizeof *all);
    nrl_slice *masters = mem_alloc((size_t)(tr->n_slices + 1) * sizeof *masters);
    for (int64_t i = 0; i < tr->n_slices; i++) {
        masters[i] = tr->slices[i];
        masters[i].grad = masters[i].master ? masters[i].master : masters[i].work; /* split16: rounded */
    }
    nrl_tensor *sums;
    nrl_status st = clip_queue(r->session.ctx, masters, tr->n_slices, &sums);
    if (st == NRL_OK) st = clip_add(r->session.ctx, sums, tr->slice_counts, &own[0]);
    if (st == NRL_OK) st = mesh_exchange(r->session.mesh, "norm of the weights", own, sizeof own, all);
    for (int32_t i = 0; i < nrl_mesh_world(mesh) && st == NRL_OK; i++)
        sum += all[i][0], moved += all[i][1];
    if (st == NRL_OK) values_add(v, "param_norm", "1", sqrt(sum));
    if (st == NRL_OK && !isnan(moved)) values_add(v, "update_norm", "1", sqrt(moved));
    free(masters);
    free(all);
    return st;
}

/* Least, mean and most of all ranks. */
static nrl_status add_ranks(run *r, value_list *v, double step_s, double wait_s)
{
    static const char *const names[2][3] = {{"rank_work_s_min", "rank_work_s_mean", "rank_work_s_max"},
                                            {"rank_wait_s_min", "rank_wait_s_mean", "rank_wait_s_max"}};
    const int32_t n = nrl_mesh_world(r->session.mesh);
    const double own[2] = {step_s - wait_s, wait_s};
    double(*all)[2] = mem_alloc((size_t)n * sizeof *all);
    nrl_status st = mesh_exchange(r->session.mesh, "times of the ranks", own, sizeof own, all);
    for (int k = 0; k < 2 && st == NRL_OK; k++) {
        double least = INFINITY, most = -INFINITY, sum = 0;
        for (int32_t i = 0; i < n; i++) {
            least = fmin(least, all[i][k]);
            most = fmax(most, all[i][k]);
            sum += all[i][k];
        }
        values_add(v, names[k][0], "s", least);
        values_add(v, names[k][1], "s", sum / n);
        values_add(v, names[k][2], "s", most);
    }
    free(all);
    return st;
}

measures *measures_of(nrl_run *r)
{
    if (!r->measured) r->measured = arena_alloc(&r->session.memory, sizeof(measures));
    return r->measured;
}

void measures_expect(nrl_run *r, int64_t step)
{
    r->trainer.measures_update = (step + 1) % SELDOM == 0 || step + 1 == r->session.total_steps;
}

nrl_status measures_add(nrl_run *r, nrl_run_event *e)
{
    session *se = &r->session;
    value_list *v = &r->trainer.values;
    measures *m = measures_of(r);
    const double now = clock_seconds(), cpu = cpu_seconds(), step_s = e->seconds;
    const double comm_s = value_of(v, "comm_fraction") * step_s;
    double used, total;
    values_add(v, "step_s", "s", step_s);
    values_add(v, "data_s", "s", value_of(v, "data_fraction") * step_s);
    values_add(v, "comm_s", "s", comm_s);
    values_add(v, "samples_per_s", "1/s", n_samples(se, e->step) / step_s);
    if (isfinite(e->grad_norm)) {
        const double decay = 1 - 1.0 / MEMORY_OF_NORMS;
        m->norm_sum = decay * m->norm_sum + e->grad_norm;
        m->norm_weight = decay * m->norm_weight + 1;
    }
    if (m->norm_weight > 0) values_add(v, "grad_norm_mean", "1", m->norm_sum / m->norm_weight);
    if (m->wall > 0 && now > m->wall) values_add(v, "cpu_percent", "%", 100 * (cpu - m->cpu) / (now - m->wall));
    m->wall = now;
    m->cpu = cpu;
    if (host_memory(&used, &total)) {
        values_add(v, "host_mem_bytes", "bytes", used);
        values_add(v, "host_mem_percent", "%", 100 * used / total);
    }
    if (!se->device.info.host_memory) {
        ctx_memory mem;
        ctx_memory_use(se->ctx, &mem);
        values_add(v, "device_mem_bytes", "bytes", (double)mem.live_bytes);
        values_add(v, "device_mem_reserved_bytes", "bytes", (double)mem.reserved_bytes);
        values_add(v, "device_mem_peak_bytes", "bytes", (double)mem.peak_bytes);
    }
    bool is_due = e->step % SELDOM == 0 || e->step == se->total_steps;
    const nrl_utilization *use = is_due ? nrl_ctx_backend_extension(se->ctx, "utilization") : NULL;
    const double share = use ? use->read(use->self) : NAN;
    if (!isnan(share)) values_add(v, "device_percent", "%", 100 * share);
    if (is_due) NRL_TRY(add_norms(r, v));
    measures_expect(r, e->step);
    r->trainer.moved = NAN;
    if (is_due && nrl_mesh_world(se->mesh) > 1) NRL_TRY(add_ranks(r, v, step_s, comm_s));
    nrl_status st = leaks_look(r, e);
    e->n_values = v->n;
    return st;
}
