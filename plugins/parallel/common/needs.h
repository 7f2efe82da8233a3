/*
 * needs.h - rules between options.
 */
#ifndef PARALLEL_NEEDS_H
#define PARALLEL_NEEDS_H
#include <nrl/nrl.h>

/* Fails if an option is set although another option's value leaves it without effect. */
static inline nrl_status needs(bool is_set, bool has_effect, const char *option, const char *other)
{
    if (!is_set || has_effect) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: has no effect here; expected with it %s", option, other);
}

#endif
