/*
 * rewards.h - all rewards of a run: the functions of a Lua file, and the score of a reward model, which has the name
 * "model". Their weighted sum is what GRPO compares. grpo.c calls it.
 */
#ifndef GRPO_REWARDS_H
#define GRPO_REWARDS_H
#include "reward.h"

enum { REWARDS_MAX = REWARD_MAX + 1 };

typedef struct rewards rewards;

/* Each of `script` and `model` is a path or "", not both "". `weights` is a map of numbers by name, or NULL. */
nrl_status rewards_create(const char *script, const char *model, const nrl_node *weights, rewards **out);
void rewards_destroy(rewards *r); /* NULL is allowed */
/* Opens the reward model, or looks whether it is there. */
nrl_status rewards_open_model(rewards *r, const nrl_algorithm_run *run);

/* The number of rewards with a name; a single function without a name has no value in addition to the sum. */
int32_t rewards_n_named(const rewards *r);
const char *rewards_name(const rewards *r, int32_t k);

/* The rewards of all sequences that were generated: values [n_sequences][1 + n_named], the weighted sum and each one;
 * NaN: there is none. NRL_ERR_CONFIG, NRL_ERR_MEMORY. */
nrl_status rewards_compute(rewards *r, const nrl_rollout *rollout, double *values);

#endif
