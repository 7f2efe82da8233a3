/*
 * ranks.c - reads a launcher's environment into an nrl_rank_info. Each launcher is one row of names;
 * other differences (addresses, Slurm's steps, torchrun's agent) have a function each.
 */
#include "cli/common/ranks.h"
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29500, MAX_WORLD = 1 << 20, MAX_PROCESSORS = 1 << 20 };
/* Ports of jobs that set none: below the range that systems assign themselves. */
enum { JOB_PORT_FIRST = 20000, JOB_PORTS = 9000 };

typedef struct {
    const char *origin;
    const char *rank, *world, *local_rank, *local_world; /* names of variables; NULL = none */
    const char *job[2];                                  /* identifies the job */
} launcher;

enum { OWN = 0, TORCHRUN, OPEN_MPI, HYDRA, MVAPICH, SLURM, N_LAUNCHERS };
static const launcher launchers[N_LAUNCHERS] = {
    [OWN] = {"nrl launch", "NRL_RANK", "NRL_WORLD_SIZE", "NRL_LOCAL_RANK", "NRL_LOCAL_WORLD_SIZE", {"NRL_RUN_ID"}},
    [TORCHRUN] = {"torchrun",
                  "RANK",
                  "WORLD_SIZE",
                  "LOCAL_RANK",
                  "LOCAL_WORLD_SIZE",
                  {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    [OPEN_MPI] = {"Open MPI",
                  "OMPI_COMM_WORLD_RANK",
                  "OMPI_COMM_WORLD_SIZE",
                  "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                  {"PMIX_NAMESPACE"}},
    [HYDRA] = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}},
    [MVAPICH] = {"MVAPICH",
                 "MV2_COMM_WORLD_RANK",
                 "MV2_COMM_WORLD_SIZE",
                 "MV2_COMM_WORLD_LOCAL_RANK",
                 "MV2_COMM_WORLD_LOCAL_SIZE",
                 {NULL}},
    [SLURM] = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

typedef struct {
    arena *a;
    ranks_variable variable;
    const launcher *from;
    nrl_rank_info *place;
} reader;

/* ---- single variables ---- */

static nrl_status read_number(const reader *r, const char *name, int64_t min, int64_t max, int32_t *out)
{
    const char *text = r->variable(name);
    char *end;
    if (!text) return nrl_fail(NRL_ERR_CONFIG, "%s: %s is not set", r->from->origin, name);
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s is '%s'; expected a number from %" PRId64 " to %" PRId64,
                        r->from->origin, name, text, min, max);
    *out = (int32_t)value;
    return NRL_OK;
}

/* Batch scripts and interactive shells of Slurm also have its variables, but are not tasks of a step: they
 * have no step number, or one that srun never assigns. */
static bool is_inside_step(ranks_variable variable)
{
    const char *step = variable("SLURM_STEP_ID");
    return step && strtoull(step, NULL, 10) < 0xfffffff0u;
}

/* `srun --mpi=pmi2` sets PMI_RANK and PMI_SIZE, but none of the variables that Hydra has in addition. */
static bool speaks(const launcher *l, ranks_variable variable)
{
    if (l == &launchers[SLURM]) return is_inside_step(variable) && variable(l->rank);
    if (l == &launchers[HYDRA] && is_inside_step(variable) && !variable(l->local_rank)) return false;
    return variable(l->rank) && variable(l->world);
}

static const launcher *find_launcher(ranks_variable variable)
{
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (speaks(&launchers[i], variable)) return &launchers[i];
    return NULL;
}

/* Job scripts often set one of torchrun's variables for other programs: harmless if a launcher sets the
 * same value, an error if there is no launcher. */
static nrl_status check_halves(ranks_variable variable, const launcher *from, const nrl_rank_info *place)
{
    for (int i = 0; i < N_LAUNCHERS; i++) {
        const launcher *l = &launchers[i];
        const char *rank = variable(l->rank), *world = variable(l->world);
        if (l == from || i == SLURM || i == OWN || (!rank && !world)) continue;
        if (!from)
            return nrl_fail(NRL_ERR_CONFIG, "%s is set (%s), but %s is not\nhint: set both, or neither",
                            rank ? l->rank : l->world, rank ? rank : world, rank ? l->world : l->rank);
        if (i != TORCHRUN) continue;
        if (rank && strtoll(rank, NULL, 10) != place->rank)
            return nrl_fail(NRL_ERR_CONFIG, "%s is %s, but %s's %s is %d", l->rank, rank, from->origin, from->rank,
                            place->rank);
        if (world && strtoll(world, NULL, 10) != place->world)
            return nrl_fail(NRL_ERR_CONFIG, "%s is %s, but %s's %s is %d", l->world, world, from->origin, from->world,
                            place->world);
    }
    return NRL_OK;
}

/* ---- this rank's place on its node ---- */

static int32_t slurm_local_world(const reader *r)
{
    const char *tasks = r->variable("SLURM_STEP_TASKS_PER_NODE"), *node = r->variable("SLURM_NODEID");
    if (!tasks) tasks = r->variable("SLURM_TASKS_PER_NODE");
    return tasks && node ? ranks_tasks_on(tasks, strtoll(node, NULL, 10)) : 0;
}

/* The number of ranks on this node, if no variable has it. */
static nrl_status guess_local_world(const reader *r)
{
    nrl_rank_info *p = r->place;
    p->local_world = r->from == &launchers[SLURM] ? slurm_local_world(r) : 0;
    if (p->local_world) return NRL_OK;
    if (p->world != 1 && !ranks_is_loopback(r->variable("MASTER_ADDR")))
        return nrl_fail(
            NRL_ERR_CONFIG, "%s: %s is not set, so the number of the %d ranks that share this node is unknown",
            r->from->origin, r->from->local_world ? r->from->local_world : "SLURM_STEP_TASKS_PER_NODE", p->world);
    p->local_world = p->world;
    return NRL_OK;
}

static nrl_status read_local(const reader *r)
{
    const launcher *l = r->from;
    nrl_rank_info *p = r->place;
    bool has_world = l->local_world && r->variable(l->local_world), has_rank = r->variable(l->local_rank);
    if (has_world)
        NRL_TRY(read_number(r, l->local_world, 1, p->world, &p->local_world));
    else
        NRL_TRY(guess_local_world(r));
    if (has_rank || p->local_world != p->world)
        NRL_TRY(read_number(r, l->local_rank, 0, MAX_WORLD, &p->local_rank));
    else
        p->local_rank = p->rank;
    if (p->local_rank < p->local_world && p->local_rank <= p->rank) return NRL_OK;
    if (p->local_rank > p->rank)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s is %d, more than %s, which is %d", l->origin, l->local_rank,
                        p->local_rank, l->rank, p->rank);
    return nrl_fail(NRL_ERR_CONFIG, "%s: %s is %d, but there are %d ranks on this node%s%s", l->origin, l->local_rank,
                    p->local_rank, p->local_world, has_world ? ", says " : "", has_world ? l->local_world : "");
}

/* ---- where the ranks meet ---- */

static nrl_status no_address(const reader *r)
{
    static const char *const hints[N_LAUNCHERS] = {
        [OPEN_MPI] = ": mpirun -x MASTER_ADDR=HOST ...",
        [HYDRA] = ": mpiexec -genv MASTER_ADDR HOST ...",
    };
    const char *hint = hints[r->from - launchers];
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: MASTER_ADDR is not set, and the %d ranks are not all on one node\n"
                    "hint: set it to the host of rank 0, on every rank%s",
                    r->from->origin, r->place->world, hint ? hint : "");
}

/* The host of rank 0. */
static nrl_status read_address(const reader *r, const char **address)
{
    const char *list = r->variable("SLURM_STEP_NODELIST");
    const nrl_rank_info *p = r->place;
    *address = r->from == &launchers[OWN] ? NULL : r->variable("MASTER_ADDR");
    if (!*address && p->local_world == p->world) *address = "127.0.0.1";
    if (*address) return NRL_OK;
    if (r->from != &launchers[SLURM]) return no_address(r);
    if (!list) list = r->variable("SLURM_JOB_NODELIST");
    if (!list) return no_address(r);
    *address = ranks_first_host(r->a, list);
    if (!*address)
        return nrl_fail(NRL_ERR_CONFIG,
                        "Slurm: cannot read a host from the node list '%s'\n"
                        "hint: set MASTER_ADDR to the host of rank 0",
                        list);
    return NRL_OK;
}

/* Jobs that share a node must not share a store: without a configured port, the port is derived from the job's id. */
static int32_t job_port(const char *job)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *job; job++)
        hash = (hash ^ (uint8_t)*job) * 16777619u;
    return (int32_t)(JOB_PORT_FIRST + hash % JOB_PORTS);
}

/* NRL_STORE, which any launcher may hand on, or a port of rank 0's host. */
static nrl_status read_store(const reader *r)
{
    nrl_rank_info *p = r->place;
    const char *given = r->variable("NRL_STORE"), *address;
    int32_t port = DEFAULT_PORT;
    if (given) {
        p->store = arena_strdup(r->a, given);
        return NRL_OK;
    }
    NRL_TRY(read_address(r, &address));
    if (r->from != &launchers[OWN] && r->variable("MASTER_PORT"))
        NRL_TRY(read_number(r, "MASTER_PORT", 1, 65535, &port));
    else if (r->from != &launchers[TORCHRUN] && *p->run_id)
        port = job_port(p->run_id);
    p->store = arena_printf(r->a, strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, port);
    return NRL_OK;
}

static void read_job(const reader *r)
{
    const char *id = r->variable(r->from->job[0] ? r->from->job[0] : "");
    const char *part = id && r->from->job[1] ? r->variable(r->from->job[1]) : NULL;
    if (!id) id = r->variable(launchers[OWN].job[0]); /* if the launcher sets none, the user may */
    r->place->run_id = !id ? "" : part ? arena_printf(r->a, "%s.%s", id, part) : arena_strdup(r->a, id);
}

static bool store_is_elsewhere(const reader *r)
{
    const char *agent = r->variable("TORCHELASTIC_USE_AGENT_STORE");
    if (r->variable("NRL_STORE")) return r->variable("NRL_STORE_HELD") != NULL;
    return r->from == &launchers[TORCHRUN] && agent && !strcmp(agent, "True");
}

/* ---- all together ---- */

static nrl_status read_place(const reader *r)
{
    const launcher *l = r->from;
    nrl_rank_info *p = r->place;
    const char *step_tasks = l == &launchers[SLURM] ? r->variable("SLURM_STEP_NUM_TASKS") : NULL;
    p->origin = l->origin;
    NRL_TRY(read_number(r, step_tasks ? "SLURM_STEP_NUM_TASKS" : l->world, 1, MAX_WORLD, &p->world));
    NRL_TRY(read_number(r, l->rank, 0, MAX_WORLD, &p->rank));
    if (p->rank >= p->world)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s is %d, but %s is %d: ranks count from 0", l->origin, l->rank, p->rank,
                        step_tasks ? "SLURM_STEP_NUM_TASKS" : l->world, p->world);
    NRL_TRY(read_local(r));
    if (p->world == 1) return NRL_OK; /* one rank needs no address */
    read_job(r);
    NRL_TRY(read_store(r));
    p->store_elsewhere = store_is_elsewhere(r);
    p->store_foreign = p->store_elsewhere && !r->variable("NRL_STORE");
    return NRL_OK;
}

nrl_status ranks_read(arena *a, ranks_variable variable, nrl_rank_info *place)
{
    *place = (nrl_rank_info){.world = 1, .local_world = 1, .run_id = ""};
    const reader r = {a, variable, find_launcher(variable), place};
    if (r.from) NRL_TRY(read_place(&r));
    NRL_TRY(check_halves(variable, r.from, place));
    return NRL_OK;
}

const char *ranks_launcher(ranks_variable variable)
{
    const launcher *l = find_launcher(variable);
    const char *world =
        l ? variable(l == &launchers[SLURM] && variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : l->world)
          : NULL;
    return world && strtoll(world, NULL, 10) > 1 ? l->origin : NULL;
}

bool ranks_is_loopback(const char *address)
{
    return address && (!strcmp(address, "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1"));
}

/* The processors that a process may use; 0 = unknown. The kernel refuses a set with less room than it has numbers. */
static int count_processors(pid_t process)
{
    int n = 0;
    for (size_t room = CPU_SETSIZE; !n && room <= MAX_PROCESSORS; room *= 2) {
        const size_t size = CPU_ALLOC_SIZE(room);
        cpu_set_t *set = CPU_ALLOC(room);
        if (set && !sched_getaffinity(process, size, set)) n = CPU_COUNT_S(size, set);
        CPU_FREE(set);
    }
    return n;
}

int32_t ranks_threads(ranks_variable variable, const nrl_rank_info *place)
{
    const char *granted =
        place->origin && place->origin == launchers[SLURM].origin ? variable("SLURM_CPUS_PER_TASK") : NULL;
    int n = count_processors(0);
    /* fewer than the launcher's own: these processors belong to this rank alone */
    bool bound = count_processors(getppid()) > n;
    if (!bound) n /= place->local_world;
    long most = granted ? strtol(granted, NULL, 10) : 0;
    if (most > 0 && most < n) n = (int)most;
    return n > 1 ? n : 1;
}
