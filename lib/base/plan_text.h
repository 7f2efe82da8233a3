/*
 * plan_text.h - the plan of a run as lines for people.
 */
#ifndef BASE_PLAN_TEXT_H
#define BASE_PLAN_TEXT_H
#include <nrl/node.h>

/* nrl_plan_text of nrl/logger.h. */
char *plan_text(const nrl_node *plan);

#endif
