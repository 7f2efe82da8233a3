/*
 * print_plan.h - what a run is about to do, as events of the kind PLAN.
 */
#ifndef RUN_PRINT_PLAN_H
#define RUN_PRINT_PLAN_H
#include "run/step/trainer.h"

void print_plan(trainer *tr); /* nothing where the run is quiet. [main] */

#endif
