/*
 * row_label.c - reads rows of unpaired preferences, which have one answer and a label.
 */
#include "data/format.h"
#include <string.h>

static nrl_status read_label(const data_schema *s, const nrl_node *row, float *label)
{
    data_key key = data_row_find(s, row, DATA_KEY_LABEL) ? DATA_KEY_LABEL : DATA_KEY_KTO_TAG;
    const nrl_node *value = data_row_find(s, row, key);
    if (!value)
        return nrl_fail(NRL_ERR_DATA, "no key '%s' or '%s': expected true (the answer is wanted) or false",
                        s->name[DATA_KEY_LABEL], s->name[DATA_KEY_KTO_TAG]);
    int said = data_node_bool(value);
    if (said < 0)
        return nrl_fail(NRL_ERR_DATA, "key '%s': expected true or false, found %s", s->name[key],
                        node_kind_name(nrl_node_kind(value)));
    *label = (float)said;
    return NRL_OK;
}

/* A label belongs to the last message, which must be of the assistant. All messages before it are the prompt. */
static nrl_status set_last_answer(data_sample *out)
{
    const data_messages *chat = &out->chat[0];
    if (out->shape != DATA_SHAPE_CHAT || out->n_prompt || !chat->n) return NRL_OK;
    const char *role = chat->items[chat->n - 1].role;
    if (strcmp(role, "assistant") != 0)
        return nrl_fail(NRL_ERR_DATA, "the last message is of '%s', a label needs an assistant's", role);
    out->n_prompt = chat->n - 1;
    return NRL_OK;
}

nrl_status data_read_label(const data_schema *s, const nrl_node *row, data_sample *out)
{
    NRL_TRY(read_label(s, row, &out->extra[s->n_extra - 1]));
    return set_last_answer(out);
}
