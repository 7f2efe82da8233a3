/*
 * load_decoder.c - the decoder of tokenizer.json as a decode_plan. Supported are ByteLevel,
 * Metaspace and the sequence Replace.. ByteFallback Fuse Strip in this order.
 */
#include "load.h"
#include <string.h>

static nrl_status out_of_order(const char *type)
{
    return nrl_fail(NRL_ERR_DATA,
                    "decoder '%s' is not supported at this position\nhint: supported are "
                    "ByteLevel; Metaspace; Replace.. ByteFallback Fuse Strip in this "
                    "order",
                    type);
}

static nrl_status add_replacement(bpe_tokenizer *tok, const nrl_node *node)
{
    decode_plan *d = &tok->decode;
    const nrl_node *from = nrl_node_find(nrl_node_find(node, "pattern"), "String");
    const nrl_node *to = nrl_node_find(node, "content");
    if (!nrl_node_string_size(from) || nrl_node_kind(to) != NRL_NODE_STRING)
        return nrl_fail(NRL_ERR_DATA, "decoder 'Replace': expected pattern {\"String\": ...}, not "
                                      "empty, and a string 'content'");
    replacement *list = arena_alloc(&tok->memory, (d->n_replace + 1) * sizeof *list);
    if (d->n_replace) memcpy(list, d->replace, d->n_replace * sizeof *list);
    list[d->n_replace++] = (replacement){nrl_node_string(from, ""), nrl_node_string(to, ""), nrl_node_string_size(from),
                                         nrl_node_string_size(to)};
    d->replace = list;
    return NRL_OK;
}

static nrl_status set_strip(decode_plan *d, const nrl_node *node)
{
    const nrl_node *content = nrl_node_find(node, "content");
    d->strip = nrl_node_string(content, NULL);
    d->strip_size = nrl_node_string_size(content);
    d->strip_start = nrl_node_int(nrl_node_find(node, "start"), 0);
    d->strip_stop = nrl_node_int(nrl_node_find(node, "stop"), 0);
    if (d->strip && d->strip_size && d->strip_start >= 0 && d->strip_stop >= 0) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "decoder 'Strip': expected a character 'content' and counts "
                                  "'start' and 'stop'");
}

static nrl_status set_metaspace(decode_plan *d, const nrl_node *node)
{
    const nrl_node *mark = nrl_node_find(node, "replacement");
    bool add = nrl_node_bool(nrl_node_find(node, "add_prefix_space"), true);
    const char *scheme = nrl_node_string(nrl_node_find(node, "prepend_scheme"), add ? "always" : "never");
    d->metaspace = nrl_node_string(mark, NULL);
    d->metaspace_size = nrl_node_string_size(mark);
    d->drop_first = strcmp(scheme, "never") != 0;
    if (d->metaspace && d->metaspace_size) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "decoder 'Metaspace': expected a character 'replacement'");
}

/* *stage only increases: 0 nothing, 1 Replace, 2 ByteFallback, 3 Fuse, 4 Strip, 5 a complete
 * decoder. */
static nrl_status load_part(bpe_tokenizer *tok, const nrl_node *node, int *stage)
{
    static const char *const types[] = {"Replace", "ByteFallback", "Fuse", "Strip", "ByteLevel", "Metaspace"};
    const char *type = nrl_node_string(nrl_node_find(node, "type"), "without a type");
    int kind = 0;
    while (kind < 6 && strcmp(type, types[kind]))
        kind++;
    if (kind == 6)
        return nrl_fail(NRL_ERR_DATA,
                        "decoder '%s' is not supported\nhint: supported are Sequence, "
                        "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip",
                        type);
    int next = kind < 4 ? kind + 1 : 5;
    bool repeats = kind == 0 && *stage == 1;
    if ((next <= *stage && !repeats) || (next == 5 && *stage) || (kind == 3 && *stage != 3)) return out_of_order(type);
    *stage = next;
    switch (kind) {
    case 0:
        return add_replacement(tok, node);
    case 1:
        tok->decode.byte_fallback = true;
        break;
    case 3:
        return set_strip(&tok->decode, node);
    case 4:
        tok->decode.byte_level = true;
        break;
    case 5:
        return set_metaspace(&tok->decode, node);
    default:
        break;
    }
    return NRL_OK;
}

nrl_status load_decoder(bpe_tokenizer *tok, const nrl_node *node)
{
    int stage = 0;
    tok->decode = (decode_plan){0};
    if (nrl_node_kind(node) != NRL_NODE_MAP) {
        tok->decode.join_spaces = true;
        return NRL_OK;
    }
    if (strcmp(nrl_node_string(nrl_node_find(node, "type"), ""), "Sequence")) return load_part(tok, node, &stage);
    const nrl_node *list = nrl_node_find(node, "decoders");
    for (size_t i = 0; i < nrl_node_size(list); i++)
        NRL_TRY(load_part(tok, nrl_node_at(list, i), &stage));
    return NRL_OK;
}
