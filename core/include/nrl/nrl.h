/*
 * nrl.h - everything a plugin may see, in reading order.
 */
#ifndef NRL_NRL_H
#define NRL_NRL_H
#include <nrl/status.h>
#include <nrl/region.h>
#include <nrl/node.h>
#include <nrl/plugin.h>
#include <nrl/tensor.h>
#include <nrl/param.h>
#include <nrl/op.h>
#include <nrl/tape.h>
#include <nrl/batch.h>
#include <nrl/algorithm.h>
#include <nrl/model.h>
#include <nrl/optimizer.h>
#include <nrl/schedule.h>
#include <nrl/logger.h>
#include <nrl/backend.h>
#include <nrl/collective.h>
#include <nrl/comm.h>
#include <nrl/store.h>
#include <nrl/parallel.h>
#include <nrl/frontend.h>
#include <nrl/dataset.h>
#include <nrl/format.h>
#include <nrl/adapter.h>
#include <nrl/text.h>
#include <nrl/tokenizer.h>
#include <nrl/template.h>
#endif
