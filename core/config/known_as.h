/*
 * known_as.h - where an option is that was looked for under the name of another trainer, or in another section.
 */
#ifndef CONFIG_KNOWN_AS_H
#define CONFIG_KNOWN_AS_H
#include "base/arena.h"

/* "learning_rate" -> "optimizer.lr": the names of Hugging Face's and TRL's trainers. NULL = none. */
const char *known_as(const char *word);

/* "template" -> "data.template": a key of one of the core's sections; in `a`. NULL = of none. */
const char *known_elsewhere(arena *a, const char *word);

#endif
