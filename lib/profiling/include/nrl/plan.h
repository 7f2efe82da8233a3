/*
 * plan.h - for programs that choose settings of a run by memory and speed, as `nrl plan` does: each candidate is walked
 * without computing (nrl_environment.dry_run), which gives the memory of a rank; the times of its operations and of the
 * communication between ranks are measured on this machine, or read from a file of measurements. The functions are in
 * libnrl-profiling. Threads, ownership, errors and growth are those of nrl/run.h.
 */
#ifndef NRL_PLAN_H
#define NRL_PLAN_H
#include <nrl/run.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t size;
    int32_t ranks;              /* at least 1, all on this machine */
    double memory_bytes;        /* that a rank may use for tensors; 0 = any, or with only_auto the free memory */
    double target_tokens_per_s; /* 0 = as fast as possible; otherwise the least memory that reaches it */
    const char *machine;        /* file of measurements instead of this machine's; NULL = none */
    const char *save_machine;   /* file that gets the measurements; NULL = none. It must not exist */
    const char *const *keep;    /* [n_keep] keys that stay as the config has them */
    size_t n_keep;
    const char *const *also; /* [n_also] "KEY=VALUE": a value to try in addition to that of the config */
    size_t n_also;
    bool only_config; /* no candidates but the config itself */
    /* Called after each candidate with its node, as in `candidates` below; may be NULL. */
    void (*progress)(void *user, const nrl_node *candidate);
    void *user;
    bool only_auto; /* varies only the keys that say `auto` (nrl_config_auto); of settings that are equally fast it
                       chooses the one with the least memory */
    double seconds; /* operations are measured for about this long, then estimated from those of similar shape, and
                       soon after no more candidates are tried; 0 = no limit */
} nrl_plan_request;

/* Fills *result, in `memory`:
 *   candidates  a list of {keys: {KEY: VALUE}, fits, reason}. One that was walked also has total_bytes, weight_bytes,
 *               master_bytes, gradient_bytes, optimizer_bytes, strategy_bytes, reference_bytes, activation_bytes and
 *               tokens (of a step, on all ranks); one whose time is known step_seconds, tokens_per_s, compute_seconds,
 *               wait_seconds, host_seconds and busy_seconds (processor time of a rank); sent_bytes and sent_messages of
 *               a step (without headers), of the rank that sends most; `calls` of a step of rank 0, a list of {call,
 *               ranks, stride, count, sent_bytes}; and `traffic`, a list of {rank, sent_bytes, sent_messages,
 *               received_messages: lists with a number for each step}, of all ranks, or of some if there are many
 *   chosen      the index of the best candidate, or null. `keys` then has a value for each key that says `auto`
 *   config      the complete config of that candidate, as nrl_run_config gives it, with ${env:NAME} as written
 *   memory_bytes  the limit, 0 = none
 *   seconds     how long it took
 *   machine     {device, threads, processors, measured_seconds}
 * `config` is read and not changed. NRL_ERR_CONFIG: the config has mistakes whatever the candidate. */
NRL_API nrl_status nrl_plan_search(nrl_arena *memory, const nrl_config *config, const nrl_environment *env,
                                   const nrl_plan_request *request, nrl_node **result);

/* The same for n numbers of ranks, ascending; request->ranks is ignored. More ranks than a machine has processors for
 * are on nodes: those of the cluster that the file of measurements describes, else nodes like this machine. The batch
 * of `config` is that of counts[0] ranks and grows with them, unless `fixed_batch`. Only `parallel`, and what memory
 * demands, is varied. *result, in `memory`:
 *   counts   a list of {ranks, nodes, global_batch, candidates, chosen}; a candidate that runs also has efficiency:
 *            its tokens per second and rank divided by those with the least ranks that run
 *   memory_bytes, seconds, machine   as above; machine also has ranks_per_node, and the links inside and between nodes
 *            with alpha (seconds of a message) and beta (seconds of a byte), of an all_reduce if they were measured */
NRL_API nrl_status nrl_plan_scale(nrl_arena *memory, const nrl_config *config, const nrl_environment *env,
                                  const nrl_plan_request *request, const int32_t *counts, size_t n, bool fixed_batch,
                                  nrl_node **result);

#ifdef __cplusplus
}
#endif
#endif
