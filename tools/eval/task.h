/*
 * task.h - multiple-choice and exact-match tasks of `nrl eval SRC --task FILE`: rows of a file become questions
 * (task.c), and a model answers them (task_score.c). Prompts and scores follow lm-evaluation-harness.
 */
#ifndef EVAL_TASK_H
#define EVAL_TASK_H
#include "base/arena.h"
#include "base/node.h"
#include <nrl/inference.h>
#include <stdbool.h>
#include <stdio.h>

enum { TASK_MAX_CHOICES = 64 };

/* One question. */
typedef struct {
    const char *prompt;      /* without examples */
    const char *description; /* in front of the examples; NULL = none */
    int32_t n_choices;       /* 0: an answer is generated */
    const char **choices;
    int32_t gold;       /* the right choice */
    const char *answer; /* n_choices 0: the expected text */
    int64_t line;
} task_question;

typedef struct {
    const char *name, *file; /* name: the format */
    bool scores_norm;        /* also acc_norm */
    bool finds_number;       /* exact match of the number after "####", or of the last number */
    const char *stop[3];     /* a generated answer ends before these; NULL-terminated */
    task_question *questions;
    int64_t n;
} task;

/* Reads FILE or FORMAT=FILE; without a format the keys of the first row decide. `limit` > 0: the first rows. */
nrl_status task_read(arena *a, const char *word, int64_t limit, task *out);

typedef struct {
    const char *name;
    double value, stderr_; /* stderr_ NaN: fewer than two questions */
} task_metric;

typedef struct {
    task_metric metrics[4];
    size_t n_metrics;
    int64_t n_truncated; /* questions whose start was cut because the model has fewer positions */
} task_scores;

/* Answers all questions. `rows` (may be NULL) receives a row for each question as a line of JSON. */
nrl_status task_score(arena *a, nrl_inference *m, const task *t, const task *examples, int64_t n_examples,
                      int64_t max_tokens, FILE *rows, task_scores *out);

/* For exact match: the number of an answer, by lm-evaluation-harness's filters of gsm8k; in `a`. */
const char *task_number(arena *a, const char *text, bool strict);
/* The reference or the found number without commas, dollars, what precedes "#### ", and a final dot. */
const char *task_normalized(arena *a, const char *text);

#endif
