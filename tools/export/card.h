/*
 * card.h - the model card that `nrl export` writes: README.md with what is known of how the weights were made.
 */
#ifndef EXPORT_CARD_H
#define EXPORT_CARD_H
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>

/* Writes DIR/README.md for the model that was exported from `source`. A README.md that nrl has not written stays, with
 * a line that says so. `adapter`: the directory has adapters alone. */
nrl_status card_write(arena *a, const char *source, const char *dir, bool adapter);

#endif
