/*
 * encode.h - from a sample to tokens and the marks of those that are trained.
 *   text      BOS, the text, EOS; all trained
 *   prompted  BOS, prompt and answer tokenised as one string, EOS; trained from the token number
 *             that the prompt alone has
 *   chat      as the template writes it; trained: assistant turns with their end-of-turn token,
 *             behind the messages of the prompt, less those that say weight 0 or train false
 *   ids       as given; labels -100 = not trained
 * BOS stands where the tokenizer adds one and EOS where it has one, each once, also when the text
 * spells it already. The first token is never a target.
 */
#ifndef DATA_ENCODE_H
#define DATA_ENCODE_H
#include "base/buffer.h"
#include "data/data.h"
#include "data/row.h"

typedef struct {
    const tokenizer *tokenizer;     /* NULL: ids only */
    const chat_template *template;  /* NULL: rows of messages are an error */
    const char *template_problem;   /* why there is no template; NULL = none is configured */
    int64_t max_length, vocab_size; /* 0 = no limit */
    data_overlong overlong;
    bool train_on_all;
    bool train_on_last; /* of a conversation, the last assistant turn alone */
} data_encode_options;

typedef enum { DATA_KEPT = 0, DATA_EMPTY, DATA_TOO_LONG, DATA_UNTRAINABLE, DATA_OUTCOMES } data_outcome;

/* One thread's tools. Zero-initialise, set options. */
typedef struct {
    const data_encode_options *options;
    tokenizer_scratch *scratch;
    chat_ids side[2]; /* the result; emptied by the next call */
    int64_t n_trained[2];
    bool truncated, identical; /* of a sample that is kept */
    bool endless;              /* text that ends without EOS: the tokenizer has none */
    chat_ids prompt;           /* scratch */
    buffer text;               /* scratch: prompt and answer joined */
} data_encoder;

void data_encoder_free(data_encoder *e);

/* Errors without the place. NRL_ERR_CONFIG: no tokenizer or no template where one is needed. */
nrl_status data_encode(data_encoder *e, const data_sample *s, data_outcome *outcome);

#endif
