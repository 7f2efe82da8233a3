/*
 * format.h - the table of row formats and the readers behind it; private to core/data/row*.c.
 */
#ifndef DATA_FORMAT_H
#define DATA_FORMAT_H
#include "data/row.h"

struct data_format {
    const char *name;
    bool pairs;
    bool unlabelled;             /* has no prompt, so no answer that a label could be of */
    uint32_t required, optional; /* bit k: data_key k */
    nrl_status (*read)(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
};

/* Text, or messages: both may stand in prompt, completion, chosen and rejected. */
typedef struct {
    bool is_text;
    data_text text;
    data_messages chat;
} data_content;

/* The value of a key, NULL where it is absent or null. */
const nrl_node *data_row_find(const data_schema *s, const nrl_node *row, data_key key);
nrl_status data_read_text(const data_schema *s, const nrl_node *row, data_key key, data_text *out);
/* One message {role, content} or {from, value}, or a list of them; `label` names it in errors. */
nrl_status data_read_messages(arena *a, const char *label, const nrl_node *node, data_sample *notes,
                              data_messages *out);
/* Of a conversation: tools, chat_template_kwargs. */
nrl_status data_read_chat_options(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
/* Appends messages of `more` to *list. */
void data_messages_add(arena *a, data_messages *list, data_messages more);
data_messages data_message_of(arena *a, const char *role, data_text text);

/* Where one text becomes another's answer: the prompt of a pair that names none. */
size_t data_common_prompt(data_text chosen, data_text rejected);
size_t data_common_messages(data_messages chosen, data_messages rejected);

/* Whether a labelled row's answer is wanted, and which of its messages is that answer. */
nrl_status data_read_label(const data_schema *s, const nrl_node *row, data_sample *out);

nrl_status data_read_plain(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_chat(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_alpaca(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_prompted(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);
nrl_status data_read_ids(arena *a, const data_schema *s, const nrl_node *row, data_sample *out);

#endif
