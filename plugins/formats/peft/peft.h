/*
 * peft.h - the writing half of the format, in describe.c.
 */
#ifndef PEFT_H
#define PEFT_H
#include <nrl/format.h>

nrl_status peft_begin(const nrl_format_write *what, void **writer);
nrl_status peft_write(void *writer, int64_t i, int64_t n, const float *values);
nrl_status peft_finish(void *writer);
void peft_abandon(void *writer);
bool peft_owns(const char *name);

#endif
