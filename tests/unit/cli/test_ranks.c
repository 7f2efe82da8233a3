/*
 * test_ranks.c - environments of launchers, complete and incomplete.
 */
#include "cli/common/ranks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The environment of a case: "NAME=value" words, NULL-ended. */
static const char *const *words;
static arena memory;

static const char *variable(const char *name)
{
    size_t n = strlen(name);
    for (const char *const *w = words; *w; w++)
        if (!strncmp(*w, name, n) && (*w)[n] == '=') return (*w)[n + 1] ? *w + n + 1 : NULL;
    return NULL;
}

#define ENVIRONMENT(...) (words = (const char *const[]){__VA_ARGS__, NULL})

static nrl_rank_info read_place(void)
{
    nrl_rank_info p;
    nrl_status st = ranks_read(&memory, variable, &p);
    if (st != NRL_OK) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
    return p;
}

static void assert_refused(const char *text)
{
    nrl_rank_info p;
    assert_int_equal(ranks_read(&memory, variable, &p), NRL_ERR_CONFIG);
    if (!strstr(nrl_error_text(), text)) fail_msg("'%s' is not in: %s", text, nrl_error_text());
}

static void assert_place(const nrl_rank_info *p, const char *origin, int rank, int world, int local_rank,
                         int local_world)
{
    assert_string_equal(p->origin, origin);
    assert_int_equal(p->rank, rank);
    assert_int_equal(p->world, world);
    assert_int_equal(p->local_rank, local_rank);
    assert_int_equal(p->local_world, local_world);
}

static int32_t port_of(const nrl_rank_info *p)
{
    return (int32_t)strtol(strrchr(p->store, ':') + 1, NULL, 10);
}

/* port 0: whichever */
static void assert_store(const nrl_rank_info *p, const char *address, int32_t port, bool elsewhere)
{
    assert_int_equal(strncmp(p->store, address, strlen(address)), 0);
    assert_int_equal(p->store[strlen(address)], ':');
    if (port) assert_int_equal(port_of(p), port);
    assert_int_equal(p->store_elsewhere, elsewhere);
}

static void without_a_launcher_there_is_one_rank(void **state)
{
    (void)state;
    ENVIRONMENT("HOME=/root", "RANK=", "MASTER_ADDR=node7");
    nrl_rank_info p = read_place();
    assert_null(p.origin);
    assert_int_equal(p.world, 1);
    assert_int_equal(p.local_world, 1);
}

static void torchrun_with_its_agents_store(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node1",
                "MASTER_PORT=29511", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2",
                "TORCHELASTIC_USE_AGENT_STORE=True");
    nrl_rank_info p = read_place();
    assert_place(&p, "torchrun", 5, 8, 1, 4);
    assert_store(&p, "node1", 29511, true);
    assert_string_equal(p.run_id, "none.2");
    assert_true(p.store_foreign);
}

static void variables_by_hand_need_no_local_ones_on_one_machine(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost");
    nrl_rank_info p = read_place();
    assert_place(&p, "torchrun", 1, 2, 1, 2);
    assert_store(&p, "localhost", 29500, false);
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=node1");
    assert_refused("torchrun: LOCAL_WORLD_SIZE is not set");
    ENVIRONMENT("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=node1", "LOCAL_WORLD_SIZE=2");
    assert_refused("torchrun: LOCAL_RANK is not set");
    ENVIRONMENT("RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=1");
    assert_refused("torchrun: MASTER_ADDR is not set");
}

static void open_mpi_on_one_host_needs_no_address(void **state)
{
    (void)state;
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1234", "PMIX_RANK=1", "SLURM_PROCID=0",
                "SLURM_NTASKS=1", "SLURM_STEP_ID=0", "SLURM_LOCALID=0");
    nrl_rank_info p = read_place();
    assert_place(&p, "Open MPI", 1, 2, 1, 2);
    assert_store(&p, "127.0.0.1", 0, false);
    assert_in_range(port_of(&p), 20000, 28999);
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                "OMPI_COMM_WORLD_LOCAL_SIZE=2");
    assert_refused("mpirun -x MASTER_ADDR=HOST");
}

static void mpich_and_its_kin(void **state)
{
    (void)state;
    ENVIRONMENT("PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2", "MASTER_ADDR=10.0.0.1",
                "MASTER_PORT=4000");
    nrl_rank_info p = read_place();
    assert_place(&p, "PMI", 2, 4, 0, 2);
    assert_store(&p, "10.0.0.1", 4000, false);
    ENVIRONMENT("PMI_RANK=2");
    assert_refused("PMI_RANK is set (2), but PMI_SIZE is not");
}

static void slurm_counts_inside_a_step_only(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=0", "SLURM_JOB_ID=77", "SLURM_STEP_ID=1",
                "SLURM_NODEID=3", "SLURM_STEP_TASKS_PER_NODE=2,1(x3)", "SLURM_JOB_NODELIST=gpu[09-12]",
                "SLURM_STEP_NODELIST=gpu[10-12]");
    nrl_rank_info p = read_place();
    assert_place(&p, "Slurm", 5, 6, 0, 1);
    assert_store(&p, "gpu10", 0, false);
    assert_string_equal(p.run_id, "77.1");
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=6", "SLURM_LOCALID=0", "SLURM_JOB_ID=77");
    assert_int_equal(read_place().world, 1); /* sbatch */
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=6", "SLURM_LOCALID=0", "SLURM_STEP_ID=4294967290");
    assert_int_equal(read_place().world, 1); /* an interactive shell */
    ENVIRONMENT("SLURM_PROCID=1", "SLURM_NTASKS=6", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1", "SLURM_STEP_ID=1",
                "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_JOB_NODELIST=c[1-2]", "MASTER_PORT=5000");
    p = read_place();
    assert_place(&p, "Slurm", 1, 2, 1, 2);
    assert_store(&p, "127.0.0.1", 5000, false);
}

static void slurms_pmi_is_slurm_and_not_mpich(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=1",
                "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2", "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=77.1");
    nrl_rank_info p = read_place();
    assert_place(&p, "Slurm", 1, 2, 1, 2);
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "SLURM_STEP_ID=1", "PMI_RANK=1", "PMI_SIZE=2",
                "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2");
    p = read_place();
    assert_place(&p, "PMI", 1, 2, 1, 2); /* mpiexec inside a step */
}

static void jobs_that_share_a_node_get_ports_of_their_own(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_JOB_ID=1",
                "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2");
    nrl_rank_info first = read_place();
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_JOB_ID=2",
                "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2");
    nrl_rank_info second = read_place();
    assert_string_not_equal(first.store, second.store);
}

static void a_job_has_its_launchers_id_or_the_users(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "NRL_RUN_ID=mine");
    assert_string_equal(read_place().run_id, "mine");
    ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "NRL_RUN_ID=mine", "TORCHELASTIC_RUN_ID=its",
                "TORCHELASTIC_RESTART_COUNT=2");
    assert_string_equal(read_place().run_id, "its.2");
}

static void the_first_launcher_in_order_is_believed(void **state)
{
    (void)state;
    ENVIRONMENT("NRL_RANK=0", "NRL_WORLD_SIZE=2", "NRL_LOCAL_RANK=0", "NRL_LOCAL_WORLD_SIZE=2",
                "NRL_STORE=127.0.0.1:4242", "NRL_STORE_HELD=1", "NRL_RUN_ID=x", "RANK=0", "WORLD_SIZE=2", "PMI_RANK=9",
                "PMI_SIZE=11");
    nrl_rank_info p = read_place();
    assert_place(&p, "nrl launch", 0, 2, 0, 2);
    assert_store(&p, "127.0.0.1", 4242, true);
    assert_false(p.store_foreign);
}

static void a_store_that_the_user_names_is_taken(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=node1",
                "TORCHELASTIC_USE_AGENT_STORE=True", "NRL_STORE=/shared/job7");
    nrl_rank_info p = read_place();
    assert_string_equal(p.store, "/shared/job7");
    assert_false(p.store_elsewhere || p.store_foreign);
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=fe80::1");
    p = read_place();
    assert_string_equal(p.store, "[fe80::1]:29500");
}

static void half_set_environments_name_the_variables(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=0");
    assert_refused("RANK is set (0), but WORLD_SIZE is not");
    ENVIRONMENT("WORLD_SIZE=2");
    assert_refused("WORLD_SIZE is set (2), but RANK is not");
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=0");
    assert_refused("OMPI_COMM_WORLD_SIZE is not");
    ENVIRONMENT("NRL_RANK=0", "NRL_WORLD_SIZE=2");
    assert_refused("nrl launch: NRL_LOCAL_WORLD_SIZE is not set");
}

static void numbers_that_contradict_are_refused(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1");
    assert_refused("RANK is 2, but WORLD_SIZE is 2");
    ENVIRONMENT("RANK=one", "WORLD_SIZE=2");
    assert_refused("RANK is 'one'; expected a number");
    ENVIRONMENT("RANK=-1", "WORLD_SIZE=2");
    assert_refused("RANK is '-1'");
    ENVIRONMENT("RANK=0", "WORLD_SIZE=99999999999999999999");
    assert_refused("WORLD_SIZE is '99999999999999999999'");
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=a");
    assert_refused("LOCAL_RANK is 1, but there are 1 ranks on this node, says LOCAL_WORLD_SIZE");
    ENVIRONMENT("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=a");
    assert_refused("LOCAL_RANK is 2, more than RANK, which is 1");
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=a");
    assert_refused("LOCAL_WORLD_SIZE is '3'; expected a number from 1 to 2");
    ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=70000");
    assert_refused("MASTER_PORT is '70000'");
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                "OMPI_COMM_WORLD_LOCAL_SIZE=2", "WORLD_SIZE=4");
    assert_refused("WORLD_SIZE is 4, but Open MPI's OMPI_COMM_WORLD_SIZE is 2");
}

static void a_host_list_begins_with_its_first_host(void **state)
{
    static const char *const cases[][2] = {
        {"node7", "node7"},
        {"a,b", "a"},
        {"node[3-9]", "node3"},
        {"node[007-009,12],gpu1", "node007"},
        {"r[1-2]n[04,08]x", "r1n04x"},
        {"node[12]", "node12"},
        {"gpu-a[1,3].local", "gpu-a1.local"},
    };
    static const char *const broken[] = {"", ",", "node[", "node[]", "node[a]", "node[1", "node1]", "node[1x2]"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ranks_first_host(&memory, cases[i][0]), cases[i][1]);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_null(ranks_first_host(&memory, broken[i]));
    ENVIRONMENT("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_NODEID=1",
                "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_NODELIST=node[");
    assert_refused("cannot read a host from the node list 'node['");
}

static void tasks_of_a_node_are_counted_through_repetitions(void **state)
{
    (void)state;
    assert_int_equal(ranks_tasks_on("2(x3),1", 0), 2);
    assert_int_equal(ranks_tasks_on("2(x3),1", 2), 2);
    assert_int_equal(ranks_tasks_on("2(x3),1", 3), 1);
    assert_int_equal(ranks_tasks_on("2(x3),1", 4), 0);
    assert_int_equal(ranks_tasks_on("4", 0), 4);
    assert_int_equal(ranks_tasks_on("4(x", 0), 0);
    assert_int_equal(ranks_tasks_on("x", 0), 0);
    assert_int_equal(ranks_tasks_on("-1", 0), 0);
}

static void ranks_share_processors_but_have_one_each(void **state)
{
    (void)state;
    nrl_rank_info alone = {.local_world = 1}, many = {.local_world = 1 << 20};
    ENVIRONMENT("HOME=/root");
    assert_true(ranks_threads(variable, &alone) >= 1);
    assert_int_equal(ranks_threads(variable, &many), 1);
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_NODEID=0",
                "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_NODELIST=a,b", "SLURM_CPUS_PER_TASK=1");
    nrl_rank_info granted = read_place();
    assert_int_equal(ranks_threads(variable, &granted), 1);
}

static int forget(void **state)
{
    (void)state;
    arena_free(&memory);
    memory = (arena){0};
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_a_launcher_there_is_one_rank, forget),
        cmocka_unit_test_teardown(torchrun_with_its_agents_store, forget),
        cmocka_unit_test_teardown(variables_by_hand_need_no_local_ones_on_one_machine, forget),
        cmocka_unit_test_teardown(open_mpi_on_one_host_needs_no_address, forget),
        cmocka_unit_test_teardown(mpich_and_its_kin, forget),
        cmocka_unit_test_teardown(slurm_counts_inside_a_step_only, forget),
        cmocka_unit_test_teardown(slurms_pmi_is_slurm_and_not_mpich, forget),
        cmocka_unit_test_teardown(jobs_that_share_a_node_get_ports_of_their_own, forget),
        cmocka_unit_test_teardown(a_job_has_its_launchers_id_or_the_users, forget),
        cmocka_unit_test_teardown(the_first_launcher_in_order_is_believed, forget),
        cmocka_unit_test_teardown(a_store_that_the_user_names_is_taken, forget),
        cmocka_unit_test_teardown(half_set_environments_name_the_variables, forget),
        cmocka_unit_test_teardown(numbers_that_contradict_are_refused, forget),
        cmocka_unit_test_teardown(a_host_list_begins_with_its_first_host, forget),
        cmocka_unit_test_teardown(tasks_of_a_node_are_counted_through_repetitions, forget),
        cmocka_unit_test_teardown(ranks_share_processors_but_have_one_each, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
