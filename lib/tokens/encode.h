/*
 * encode.h - converts a sample to tokens and marks the trained ones.
 *   text      BOS, the text, EOS; all trained
 *   prompted  BOS, prompt and answer tokenised as one string, EOS; trained from the token number
 *             that the prompt alone has
 *             With `generates`: the prompt's own tokens, then those of the answer alone, which may be empty.
 *   chat      rendered by the template; trained: assistant turns with their end-of-turn token, after
 *             the messages of the prompt, except messages with weight 0 or train false. With
 *             `generates`: what comes before the last trained turn with the generation prompt,
 *             then the content of this turn and the token that ends it; without such a turn, all messages
 *             and the generation prompt, then only the token that ends a turn
 *   ids       as given; labels -100 = not trained
 *
 * BOS is added if the tokenizer adds one, EOS if the tokenizer has one, and neither is repeated if the text contains it
 * already. The first token is never a target.
 */
#ifndef TOKENS_ENCODE_H
#define TOKENS_ENCODE_H
#include "base/buffer.h"
#include "rows/row.h"
#include "tokens/chat.h"

typedef enum { DATA_OVERLONG_ERROR = 0, DATA_OVERLONG_DROP, DATA_OVERLONG_TRUNCATE, DATA_OVERLONG_SPLIT } data_overlong;

typedef struct {
    const tokenizer *tokenizer;     /* NULL: ids only */
    const chat_template *template;  /* NULL: rows of messages are an error */
    const char *template_problem;   /* why there is no template; NULL = none is configured */
    int64_t max_length, vocab_size; /* 0 = no limit */
    data_overlong overlong;
    bool train_on_all;
    bool train_on_last; /* only the last assistant turn of a conversation */
    bool generates;     /* answers are generated: each prompt has the tokens that a model gets to continue it */
} data_encode_options;

typedef enum { DATA_KEPT = 0, DATA_EMPTY, DATA_TOO_LONG, DATA_UNTRAINABLE, DATA_OUTCOMES } data_outcome;

/* The state of one thread. Zero-initialise and set the options. */
typedef struct {
    const data_encode_options *options;
    tokenizer_scratch *scratch;
    chat_ids side[2]; /* the result; emptied by the next call */
    int64_t n_trained[2];
    bool truncated, identical; /* of a sample that is kept */
    size_t piece;              /* a longer sample is split into pieces of this size; 0 = it is not split */
    bool endless;              /* text that ends without EOS: the tokenizer has none */
    bool merged;     /* the tokenizer made one token of the end of the prompt and the beginning of the answer */
    bool has_end;    /* with `generates`: `end` is known */
    int32_t end;     /* the token that ends an assistant's turn, or NRL_TOKEN_NONE */
    chat_ids prompt; /* scratch */
    buffer text;     /* scratch: prompt and answer joined */
} data_encoder;

void data_encoder_free(data_encoder *e);

/* Errors do not contain the place of the sample. NRL_ERR_CONFIG: a tokenizer or a template is needed and missing. */
nrl_status data_encode(data_encoder *e, const data_sample *s, data_outcome *outcome);

#endif
