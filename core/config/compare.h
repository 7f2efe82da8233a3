/*
 * compare.h - compares the config of a resumed run with the config of its checkpoint. Every option is either compared
 * or free to change, according to one table, which `nrl describe` prints too.
 *
 * Options that change the training result are compared. Options about file locations, speed, monitoring and stopping
 * are free; they change numbers by rounding at most.
 */
#ifndef CONFIG_COMPARE_H
#define CONFIG_COMPARE_H
#include "base/node.h"

typedef enum {
    CONFIG_KEY_COMPARED = 0,
    CONFIG_KEY_FREE,
    CONFIG_KEY_BY_CONTENT /* a path is free, because its contents are compared; any other text is compared */
} config_key_class;

/* The class of a key such as "train.steps", or of a section ("loggers"). */
config_key_class config_key_classify(const char *key);

/* Called for each key that differs; NULL = the key is missing. */
typedef void (*config_difference)(void *user, const char *key, const nrl_node *was, const nrl_node *is);

/* Compares two resolved configs. `given` is the second config before defaults: an option that is missing in `was` and
 * in `given` was added by a newer version of nrl and has its default in both, so it is not a difference. [any] */
void config_compare(const nrl_node *was, const nrl_node *is, const nrl_node *given, config_difference report,
                    void *user);

/* Compares any two trees, maps key by key. */
void config_compare_trees(const char *path, const nrl_node *was, const nrl_node *is, config_difference report,
                          void *user);

#endif
