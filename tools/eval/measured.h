/*
 * measured.h - the loss of a run's algorithm together with how well the model predicts the answers, for `nrl eval RUN`.
 */
#ifndef EVAL_MEASURED_H
#define EVAL_MEASURED_H
#include <nrl/host.h>
#include <nrl/inference.h>

typedef struct measured measured;

/* Wraps the algorithm that `config` names (a word or a map; it must outlive the result). *out is NULL if it is not a
 * loss of single answers, token by token, without a second model, or not a plugin that env finds: then there are only
 * the run's own values. */
nrl_status measured_open(const nrl_environment *env, const nrl_node *config, measured **out);
void measured_close(measured *m); /* after the run; may be NULL */
/* For nrl_environment.find_algorithm, with the measured as its user; knows MEASURED_NAME. */
#define MEASURED_NAME "evaluated"
const nrl_algorithm *measured_find(void *user, const char *name, void **self);
void measured_set_tokenizer(measured *m, const nrl_open_tokenizer *t); /* without one no bytes are counted */

/* The values of an evaluation, with PREFIXperplexity and PREFIXbits_per_byte in the place of what they are computed
 * from; in `a`. */
const nrl_value *measured_values(nrl_arena *a, const nrl_value *values, size_t *n);

#endif
