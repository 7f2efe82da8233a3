/*
 * written.h - what tokenizer and template plugins write into: a text, and spans of it. Used by chat.c, core/text and
 * libnrl-testing.
 */
#ifndef TOKENS_WRITTEN_H
#define TOKENS_WRITTEN_H
#include "base/buffer.h"
#include <nrl/template.h>

struct nrl_text {
    buffer b;
};

struct nrl_spans {
    struct {
        size_t begin, end;
    } * at;
    size_t n, room;
    bool lacks_memory;
};

#endif
