/*
 * bench_records.c - the cost of the values of a step's record that training does not need: processor time of the
 * service that measures them, and of the norm of updates, which is taken inside every tenth step. Prints one JSON
 * object.
 *
 *     bench_records FILE.yaml [key=value ...]        at least 41 steps; one thread gives the best figures
 */
#include <math.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 4096, WARM_UP = 10, SELDOM = 10 };

static struct {
    double before, last, measured;
    int n, n_plain, n_due;
    double plain[MOST], due[MOST]; /* processor seconds of a step without the service */
} cost;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static nrl_status measure(nrl_run *run, nrl_run_event *e)
{
    const double begin = cpu_seconds(), step = begin - cost.last;
    nrl_status st = nrl_inference_services()->measure(run, e);
    cost.last = cpu_seconds();
    if (e->step <= WARM_UP || cost.n == MOST) return st;
    cost.n++;
    cost.measured += cost.last - begin;
    if (e->step % SELDOM == 0)
        cost.due[cost.n_due++] = step;
    else
        cost.plain[cost.n_plain++] = step;
    return st;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, int n)
{
    if (!n) return NAN;
    qsort(list, (size_t)n, sizeof *list, rising);
    return list[n / 2];
}

int main(int argc, char **argv)
{
    nrl_arena *memory = nrl_arena_create();
    nrl_config *config = nrl_config_create(memory);
    nrl_run_services services = *nrl_inference_services();
    const nrl_environment env = {.size = sizeof env,
                                 .quiet = true,
                                 .no_output = true,
                                 .services = &services,
                                 .plugin_path = getenv("NRL_PLUGIN_PATH")};
    nrl_run *run = NULL;
    services.measure = measure;
    nrl_status st = argc > 1 ? nrl_config_read(config, argv[1]) : nrl_fail(NRL_ERR_CONFIG, "expected FILE.yaml");
    for (int i = 2; i < argc; i++)
        nrl_config_override(config, argv[i]);
    if (st == NRL_OK) st = nrl_run_open(config, &env, &run);
    if (st == NRL_OK) st = nrl_run_train(run);
    if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
    const double step = median(cost.plain, cost.n_plain), due = median(cost.due, cost.n_due);
    const double service = cost.measured / cost.n, norm = fmax(0, due - step) / SELDOM;
    if (st == NRL_OK)
        printf("{\"steps\": %d, \"step_cpu_seconds\": %.9g, \"service_cpu_seconds\": %.9g, "
               "\"update_norm_cpu_seconds\": %.9g, "
               "\"share\": %.6f}\n",
               cost.n, step, service, norm, (service + norm) / step);
    nrl_run_close(run);
    nrl_config_destroy(config);
    nrl_arena_destroy(memory);
    return st != NRL_OK;
}
