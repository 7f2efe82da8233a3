/*
 * record_names.h - the names of values in records (docs/records.md) that are not metrics of plugins. Those of
 * evaluations begin with `eval_` and cannot collide with these.
 */
#ifndef BASE_RECORD_NAMES_H
#define BASE_RECORD_NAMES_H
enum { RECORD_N_NAMES = 47 };
extern const char *const record_names[RECORD_N_NAMES];

#endif
