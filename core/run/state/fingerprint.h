/*
 * fingerprint.h - what tells whether a checkpoint belongs to this run: the resolved config, the model's config.json,
 * and hashes of what options only name (data, tokenizer, script, the base of adapters).
 */
#ifndef RUN_FINGERPRINT_H
#define RUN_FINGERPRINT_H
#include "run/step/trainer.h"

/* The hashes, and the number of steps; the config and the model have nodes of their own in a checkpoint. */
nrl_node *fingerprint_node(arena *a, const trainer *tr);

/* NRL_ERR_CONFIG names every key that differs, with both values; by checkpoint.mismatch a warning of rank 0 instead.
 * Which options are compared is config/compare.h's. [step] */
nrl_status fingerprint_check(const trainer *tr, const checkpoint *c);

#endif
