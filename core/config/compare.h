/*
 * compare.h - what a resumed run must have in common with the checkpoint it goes on from. Every option of a config is
 * either compared or free to change; the rules are one table, from which `nrl describe` tells users too.
 *
 * Compared is what changes the numbers that are trained. Free is what moves files, speeds a run up, watches it or
 * stops it; numbers then change by rounding at most.
 */
#ifndef CONFIG_COMPARE_H
#define CONFIG_COMPARE_H
#include "base/node.h"

typedef enum {
    CONFIG_KEY_COMPARED = 0,
    CONFIG_KEY_FREE,
    CONFIG_KEY_BY_CONTENT /* a path is free, because what it is_rank0 to is compared; any other text is compared */
} config_key_class;

/* Of "train.steps", or of a whole section ("loggers"); a section of a plugin is called as in the config. */
config_key_class config_key_classify(const char *key);

/* Called for each key that differs; NULL stands for a key that is not there. */
typedef void (*config_difference)(void *user, const char *key, const nrl_node *was, const nrl_node *is);

/* Compares two resolved configs. `given` is what was typed and read for the second, before defaults: an option that the
 * first does not know and nobody gave is one that a newer version of nrl added, and has its default in both. [any] */
void config_compare(const nrl_node *was, const nrl_node *is, const nrl_node *given, config_difference tell, void *user);

/* Compares any two trees, maps key by key. */
void config_compare_trees(const char *path, const nrl_node *was, const nrl_node *is, config_difference tell,
                          void *user);

#endif
