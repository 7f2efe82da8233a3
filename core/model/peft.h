/*
 * peft.h - adapters as peft keeps them: a directory of adapter_config.json and adapter_model.safetensors. Which
 * modules there are, and their ranks, is read off the tensors; what this program does not compute (DoRA, biases,
 * whole modules saved beside) is refused by name.
 */
#ifndef MODEL_PEFT_H
#define MODEL_PEFT_H
#include "model/model.h"

typedef struct peft peft;

/* NRL_ERR_CONFIG: no such directory, or what it asks for is not built; NRL_ERR_DATA: damaged files. [main] */
nrl_status peft_open(const char *dir, peft **out);
void peft_close(peft *p); /* NULL is fine */
const adapter_set *peft_set(const peft *p); /* borrowed */
/* The tensors have the shapes that a model with these adapters needs. */
nrl_status peft_check(const peft *p, const model *m);
/* Elements [begin, begin + n) of the tensor called `name`, as f32. [any] */
nrl_status peft_read(const peft *p, const char *name, int64_t begin, int64_t n, float *out);
/* 32 hex digits over names, shapes and bytes. */
void peft_hash(const peft *p, char out[33]);

/* adapter_config.json for the model's adapters; malloc'd. `base`: what peft finds the base model by. */
char *peft_config(const model *m, const char *base);

#endif
