/*
 * row.h - the content of a row before tokenising: its format, and its text, messages or ids. The formats are in one
 * table (row.c); a file has the format of its first row. Errors are NRL_ERR_DATA without the place, which the caller
 * adds.
 */
#ifndef ROWS_ROW_H
#define ROWS_ROW_H
#include "base/arena.h"
#include "base/node.h"
#include <nrl/template.h>

/* Keys that have a meaning; data.columns renames them. New ones come last: data_row_hash uses the numbers. */
typedef enum {
    DATA_KEY_MESSAGES = 0,
    DATA_KEY_CONVERSATIONS,
    DATA_KEY_SYSTEM,
    DATA_KEY_PROMPT,
    DATA_KEY_COMPLETION,
    DATA_KEY_CHOSEN,
    DATA_KEY_REJECTED,
    DATA_KEY_INSTRUCTION,
    DATA_KEY_INPUT,
    DATA_KEY_OUTPUT,
    DATA_KEY_HISTORY,
    DATA_KEY_TEXT,
    DATA_KEY_INPUT_IDS,
    DATA_KEY_LABELS,
    DATA_KEY_ATTENTION_MASK,
    DATA_KEY_PROMPT_INPUT_IDS,
    DATA_KEY_CHOSEN_INPUT_IDS,
    DATA_KEY_REJECTED_INPUT_IDS,
    DATA_KEY_LABEL,
    DATA_KEY_KTO_TAG,
    DATA_KEY_PREFERRED,
    DATA_KEY_NON_PREFERRED,
    DATA_KEY_TOOLS,
    DATA_KEY_TEMPLATE_KWARGS,
    DATA_KEY_COUNT
} data_key;

enum { DATA_MAX_EXTRA = 16 }; /* keys of data.extra */

typedef enum {
    DATA_SHAPE_NONE = 0,
    DATA_SHAPE_TEXT,     /* a text, trained completely */
    DATA_SHAPE_PROMPTED, /* a prompt and an answer, or two */
    DATA_SHAPE_CHAT,     /* messages, which a template renders */
    DATA_SHAPE_IDS       /* token ids */
} data_shape;

typedef struct {
    const char *text;
    size_t size;
} data_text;

typedef struct {
    nrl_message *items;
    size_t n;
} data_messages;

/* One row. A pair has two sides, chosen and rejected, that share the prompt. */
typedef struct {
    data_shape shape;
    int n_sides;
    data_text prompt, answer[2];                  /* TEXT: only answer[0] */
    data_messages chat[2];                        /* CHAT: complete conversations */
    size_t n_prompt;                              /* CHAT: messages at the start that are never trained */
    const nrl_node *tools, *template_kwargs;      /* CHAT: a list, a map; or NULL */
    const nrl_node *prompt_ids, *ids[2], *labels; /* IDS: lists; absent ones NULL */
    const char *unknown_key;                      /* the first key of a message that is not used, or NULL */
    float extra[DATA_MAX_EXTRA];
} data_sample;

/* One message {role, content} or {from, value}, or a list of them; `label` names it in errors. Unknown keys are noted
 * in `notes`. */
nrl_status data_read_messages(arena *a, const char *label, const nrl_node *node, data_sample *notes,
                              data_messages *out);

typedef struct data_format data_format;

/* How rows of one file are read. */
typedef struct {
    const char *name[DATA_KEY_COUNT]; /* of each key in this file */
    const char *extra[DATA_MAX_EXTRA];
    int n_extra; /* including the label, which comes last */
    bool pairs, labels, prompts;
    const data_format *format; /* set by data_schema_detect */
} data_schema;

/* The extra number of a labelled row: 1 = desirable answer, 0 = undesirable. */
#define DATA_LABEL "label"

/* Reads data.columns and data.extra (either may be NULL) and borrows their text. `pairs`: rows have a chosen and a
 * rejected answer; `labels`: rows have one answer and a label; `prompts`: rows need no answer. NRL_ERR_CONFIG. */
nrl_status data_schema_set(data_schema *s, const nrl_node *columns, const nrl_node *extra, bool pairs, bool labels,
                           bool prompts);
/* Finds the format of a file from its first row. */
nrl_status data_schema_detect(data_schema *s, const nrl_node *row);
const char *data_format_name(const data_format *f);

/* Reads a row in the format of the schema. The sample borrows from `row` and `a`. */
nrl_status data_row_read(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
/* A hash of the values under keys that have a meaning, whatever their order; other keys do not matter. */
uint64_t data_row_hash(const data_schema *s, const nrl_node *row, uint64_t seed);
/* Iterates over the unused keys of a row, from index *at on. Returns NULL after the last one. */
const char *data_row_unknown_key(const data_schema *s, const nrl_node *row, size_t *at);

bool data_sample_is_empty(const data_sample *s);     /* no text, or a side without an answer */
bool data_sample_is_identical(const data_sample *s); /* a pair of two equal answers */

#endif
