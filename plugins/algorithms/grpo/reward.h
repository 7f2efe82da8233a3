/*
 * reward.h - rewards of completions from functions in a Lua file. rewards.c calls it; reward.c has the Lua state.
 */
#ifndef GRPO_REWARD_H
#define GRPO_REWARD_H
#include <nrl/rollout.h>

enum { REWARD_MAX = 16, REWARD_NAME = 64 }; /* functions of a file; bytes of a name */

typedef struct reward_script reward_script;

/* Runs the file, which returns a function, or a table of functions by name. NRL_ERR_CONFIG: no such file, a syntax
 * error, or neither. */
nrl_status reward_open(const char *path, reward_script **out);
void reward_close(reward_script *s); /* NULL is allowed */
int32_t reward_n(const reward_script *s);
/* Of function k, in alphabetical order; "" for a function that is not in a table. */
const char *reward_name(const reward_script *s, int32_t k);
/* Whether a text may be the name of a reward, which becomes a part of the names of records. */
bool reward_name_fits(const char *name);

/* Begins a step: random numbers of the functions depend on its number alone. */
void reward_begin(reward_script *s, int64_t step);
/* out[n]: the rewards of sequence i. NRL_ERR_CONFIG: a function failed or did not return a finite number or nil,
 * which is NaN. */
nrl_status reward_of(reward_script *s, const nrl_rollout *r, int64_t i, double *out);

#endif
