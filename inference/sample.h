/*
 * sample.h - prompts as text, continuations as text; over generate.h. Shared by
 * nrl_run_sample and nrl_inference_sample.
 */
#ifndef RUN_SAMPLE_H
#define RUN_SAMPLE_H
#include "inference/generate.h"
#include <nrl/inference.h>
#include "text/chat.h"

bool sample_needs_template(const nrl_sample_options *options);

/* If `chat` is not NULL, each prompt is rendered as one user message. texts[i] is malloc'd, without the prompt. */
nrl_status sample_texts(work *w, const tokenizer *tok, const chat_template *chat, const char *const *prompts, size_t n,
                        const nrl_sample_options *options, char **texts, int64_t *n_tokens);

#endif
