/*
 * card.h - the model card that `nrl export` writes: README.md with what is known of how the weights were made.
 */
#ifndef EXPORT_CARD_H
#define EXPORT_CARD_H
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>

/* The text of DIR/README.md for the model that is exported from `source`. NULL if DIR has a README.md that nrl has not
 * written, which stays; *kept is its path then. `adapter`: the directory has adapters alone. */
const char *card_make(arena *a, const char *source, const char *dir, bool adapter, const char **kept);

#endif
