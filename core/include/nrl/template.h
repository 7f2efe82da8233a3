/*
 * template.h - chat templates: a conversation to the text that a model sees, and the spans of it that are
 * trained. The core encodes the text once and turns spans into a mask over tokens.
 *
 * What the config names reaches `probe` and `open` as a source: a word (`template: mistral_v9`), the text
 * of a file (`template: my.jinja`), or the text that came with the tokenizer (`template: auto`). The first
 * plugin in name order that is sure serves it, unless the config names one
 * (`template: {name: PLUGIN, path: FILE}`).
 */
#ifndef NRL_TEMPLATE_H
#define NRL_TEMPLATE_H
#include <nrl/tokenizer.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t size;          /* of this struct */
    const char *word;       /* as configured; NULL = a text, or only the plugin's name and options are given */
    const char *label;      /* name of the source in errors: a path, "chat template of DIR", a word */
    const char *text;       /* NUL-terminated; NULL = none */
    const char *tools_text; /* the template for conversations with tools; NULL = `text` is used for them too */
    const nrl_open_tokenizer *tokenizer; /* outlives the instance; NULL = none, and render is not called */
} nrl_template_source;

/* Whether the data row marks a message as trained. */
typedef enum { NRL_MESSAGE_UNSAID = 0, NRL_MESSAGE_UNTRAINED = 1, NRL_MESSAGE_TRAINED = 2 } nrl_message_train;

typedef struct {
    const char *role; /* system, user, assistant; a template may support more */
    const char *content;
    size_t content_size;  /* bytes; content may contain NUL */
    const nrl_node *node; /* the message in the row, for further keys; NULL = only role and content */
    uint32_t train;       /* nrl_message_train: NRL_MESSAGE_UNTRAINED keeps the message's turn out of the spans */
    uint32_t reserved;    /* 0 */
} nrl_message;
NRL_STATIC_ASSERT(sizeof(nrl_message) == 40, "conversations lay messages out as an array");

typedef struct {
    uint32_t size;               /* of this struct */
    uint32_t message_size;       /* stride of messages */
    const nrl_message *messages; /* [n] */
    size_t n, n_prompt;          /* the first n_prompt are never trained */
    bool add_generation_prompt;  /* open a turn of the assistant at the end */
    const nrl_node *tools;       /* a list, or NULL */
    const nrl_node *variables;   /* a map of the row's further variables, or NULL */
} nrl_conversation;

/* Which tokens of a span are trained. */
typedef enum {
    NRL_SPANS_BEGIN = 0, /* tokens that begin in the span */
    NRL_SPANS_TOUCH = 1, /* tokens that begin in the span, and the token that overlaps its start */
    NRL_SPANS_TURN = 2   /* tokens that begin in the span, without white space after a final end-of-turn token */
} nrl_span_rule;

typedef struct nrl_spans nrl_spans;
/* Adds a span: bytes [begin, end) of the text. Spans must be in order and must not overlap. [any] */
NRL_API void nrl_spans_add(nrl_spans *spans, size_t begin, size_t end);

/* The result of `render`. */
typedef struct {
    uint32_t size;      /* of this struct */
    uint32_t span_rule; /* nrl_span_rule */
    bool bos;           /* the core adds the tokenizer's BOS before the text */
    nrl_text *text;
    nrl_spans *trained; /* each assistant turn after the prompt, with its end-of-turn token, unless its message is
                           NRL_MESSAGE_UNTRAINED; may be NULL */
} nrl_rendering;

typedef struct {
    nrl_plugin plugin;
    /* Words of the config that this plugin serves, NULL-terminated, for messages that list them. NULL = none. */
    const char *const *words;
    /* [main] how likely (NRL_PROBE_*) this plugin serves the source; only called with a word or a text */
    int32_t (*probe)(const nrl_template_source *source);
    /* [main] NRL_ERR_CONFIG: the template cannot be used; the error gives line and reason. Copies texts of the source.
     */
    nrl_status (*open)(const void *options, const nrl_template_source *source, void **self);
    void (*close)(void *self); /* [main] */
    /* [any] NRL_ERR_DATA: unknown roles or wrong order, with "messages[i]", i from 0; and errors that the template
     * raises */
    nrl_status (*render)(void *self, const nrl_conversation *conversation, nrl_rendering *out);
    /* [main] optional: special tokens that the tokenizer must have, NULL-terminated; the core checks them */
    const char *const *(*required_tokens)(void *self);
    /* [any] optional: the token that ends a turn of the assistant; NRL_TOKEN_NONE = the tokenizer's eos. If NULL, the
     * core renders a short conversation and uses its last trained token, if that is special. */
    int32_t (*end_token)(void *self);
    /* [main] optional: an equivalent Jinja template, for an exported model: transformers renders equal text from it */
    nrl_status (*as_jinja)(void *self, nrl_text *out);
    /* [any] optional: whether it reads tools, variables and further keys of messages; NULL: no */
    bool (*reads_keys)(void *self);
} nrl_template;

#ifdef __cplusplus
}
#endif
#endif
