/*
 * extend.h - parameters of an algorithm in a model: see model_extend in model.h.
 */
#ifndef MODEL_EXTEND_H
#define MODEL_EXTEND_H
#include "model/model.h"

/* Adds what config.json describes under "nrl". */
nrl_status model_extend_again(model *m);

#endif
