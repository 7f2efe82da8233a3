/*
 * generator.h - prompts as text, continuations as text; over scheduler.h. Shared by nrl_run_sample,
 * nrl_inference_sample and nrl_generator.
 */
#ifndef INFERENCE_GENERATOR_H
#define INFERENCE_GENERATOR_H
#include "inference/scheduler.h"
#include "text/chat.h"
#include <nrl/inference.h>

/* *chat is the template of messages, or NULL; it may change between calls. Everything outlives the generator. */
nrl_status generator_create(work *w, const tokenizer *tok, const chat_template *const *chat,
                            const nrl_generator_options *options, nrl_generator **out);
bool generator_needs_template(const nrl_sample_options *options);
/* nrl_inference_sample and nrl_run_sample, with a generator that does nothing else. */
nrl_status generator_sample(nrl_generator *g, const char *const *prompts, size_t n, const nrl_sample_options *options,
                            char **texts, int64_t *n_tokens);

#endif
