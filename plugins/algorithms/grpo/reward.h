/*
 * reward.h - rewards of completions, from a function in a Lua file. grpo.c calls it; reward.c has the Lua state.
 */
#ifndef GRPO_REWARD_H
#define GRPO_REWARD_H
#include <nrl/rollout.h>

typedef struct reward_script reward_script;

/* Runs the file, which returns the function. NRL_ERR_CONFIG: no such file, a syntax error, or no function. */
nrl_status reward_open(const char *path, reward_script **out);
void reward_close(reward_script *s);          /* NULL is allowed */
uint64_t reward_hash(const reward_script *s); /* of the text of the file */

/* Begins a step: random numbers of the function depend on its number alone. */
void reward_begin(reward_script *s, int64_t step);
/* The reward of sequence i. NRL_ERR_CONFIG: the function failed or did not return a finite number. */
nrl_status reward_of(reward_script *s, const nrl_rollout *r, int64_t i, double *out);

#endif
