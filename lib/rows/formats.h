/*
 * formats.h - the table of row formats and the readers behind it; private to rows/.
 */
#ifndef ROWS_FORMATS_H
#define ROWS_FORMATS_H
#include "rows/row.h"

struct data_format {
    const char *name;
    bool pairs;
    bool unlabelled;             /* has no answer that could have a label */
    uint32_t required, optional; /* bit k: data_key k */
    nrl_status (*read)(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
};

/* Text or messages: prompt, completion, chosen and rejected may hold either. */
typedef struct {
    bool is_text;
    data_text text;
    data_messages chat;
} data_content;

/* Returns the value of a key, or NULL if it is absent or null. */
const nrl_node *data_row_find(const data_schema *s, const nrl_node *row, data_key key);
/* Numbers and booleans of a row. Tables contain texts only, so the text of a value counts as the value: "0.5"; "true",
 * "True" or "TRUE". Returns NAN, or -1, for other values. */
double data_node_number(const nrl_node *value);
int data_node_bool(const nrl_node *value);
nrl_status data_read_text(const data_schema *s, const nrl_node *row, data_key key, data_text *out);
/* Reads tools and chat_template_kwargs of a conversation. */
nrl_status data_read_chat_options(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
/* Append the messages of `more`, or one message, to *list. NRL_ERR_MEMORY. */
nrl_status data_messages_add(arena *a, data_messages *list, data_messages more);
nrl_status data_text_add(arena *a, data_messages *list, const char *role, data_text text);

/* Finds the common prompt of two texts, for pairs without a prompt key. */
size_t data_common_prompt(data_text chosen, data_text rejected);
size_t data_common_messages(data_messages chosen, data_messages rejected);

/* Reads the label of a row, and determines which message is its answer. */
nrl_status data_read_label(const data_schema *s, const nrl_node *row, data_sample *out);

nrl_status data_read_plain(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_chat(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_alpaca(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_prompted(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_preferred(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_ids(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);

#endif
