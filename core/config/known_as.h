/*
 * known_as.h - finds the option for an unknown key that is another trainer's name, or is in the wrong section.
 */
#ifndef CONFIG_KNOWN_AS_H
#define CONFIG_KNOWN_AS_H
#include "base/arena.h"

/* "learning_rate" -> "optimizer.lr": the names of Hugging Face's and TRL's trainers. NULL = none. */
const char *known_as(const char *word);

/* "template" -> "data.template": the full name of a key of a core section, in `a`. NULL = not a key of any section. */
const char *known_elsewhere(arena *a, const char *word);

#endif
