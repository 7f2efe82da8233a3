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
    const char *label;      /* what errors call the source: a path, "chat template of DIR", a word */
    const char *text;       /* NUL-ended; NULL = none */
    const char *tools_text; /* the template for conversations with tools; NULL = `text` serves them too */
    const nrl_open_tokenizer *tokenizer; /* outlives the instance; NULL = none, nothing is rendered then */
} nrl_template_source;

/* What a message itself says about being trained. */
typedef enum { NRL_MESSAGE_UNSAID = 0, NRL_MESSAGE_UNTRAINED, NRL_MESSAGE_TRAINED } nrl_message_train;

typedef struct {
    const char *role; /* system, user, assistant; a template may know more */
    const char *content;
    size_t content_size;  /* bytes; content may hold NUL */
    const nrl_node *node; /* the row's own message, for further keys; NULL = role and content alone */
    uint32_t train;       /* nrl_message_train: NRL_MESSAGE_UNTRAINED keeps the message's turn out of the spans */
    uint32_t reserved;    /* 0 */
} nrl_message;
NRL_STATIC_ASSERT(sizeof(nrl_message) == 40, "conversations lay messages out as an array");

typedef struct {
    uint32_t size;               /* of this struct */
    uint32_t message_size;       /* stride of messages */
    const nrl_message *messages; /* [n] */
    size_t n, n_prompt;          /* the first n_prompt are never trained */
    bool add_generation_prompt;  /* an assistant's turn is opened at the end */
    const nrl_node *tools;       /* a list, or NULL */
    const nrl_node *variables;   /* a map of the row's further variables, or NULL */
} nrl_conversation;

/* Which tokens of a span are trained. */
typedef enum {
    NRL_SPANS_BEGIN = 0, /* those that begin in it */
    NRL_SPANS_TOUCH,     /* those that begin in it, and the one that reaches into its begin */
    NRL_SPANS_TURN       /* those that begin in it, less white space behind an end-of-turn token at its end */
} nrl_span_rule;

typedef struct nrl_spans nrl_spans;
/* Spans come in order and do not overlap; bytes [begin, end) of the text. [any] */
NRL_API void nrl_spans_add(nrl_spans *spans, size_t begin, size_t end);

/* What `render` fills. */
typedef struct {
    uint32_t size;      /* of this struct */
    uint32_t span_rule; /* nrl_span_rule */
    bool bos;           /* the tokenizer's BOS stands in front of the text, which does not write it */
    nrl_text *text;
    nrl_spans *trained; /* each assistant turn behind the prompt whose message does not say no, with its
                           end-of-turn token; NULL: nobody asks */
} nrl_rendering;

typedef struct {
    nrl_plugin plugin;
    /* Words of the config that this plugin serves, NULL-ended; for messages that list them. NULL = none. */
    const char *const *words;
    /* [main] how surely (NRL_PROBE_*) this plugin serves the source; never asked without word and text */
    int32_t (*probe)(const nrl_template_source *source);
    /* [main] NRL_ERR_CONFIG: it cannot be used, with line and reason. Texts of the source are copied. */
    nrl_status (*open)(const void *options, const nrl_template_source *source, void **self);
    void (*close)(void *self); /* [main] */
    /* [any] NRL_ERR_DATA: unknown roles and broken order, with "messages[i]", i from 0; what the template raises */
    nrl_status (*render)(void *self, const nrl_conversation *conversation, nrl_rendering *out);
    /* [main] optional: special tokens that the tokenizer must have, NULL-ended; the core checks them */
    const char *const *(*required_tokens)(void *self);
    /* [any] optional: the token that ends an assistant's turn; NRL_TOKEN_NONE = the tokenizer's own end. Without
     * it the core renders a short conversation and takes its last trained token, if that is special. */
    int32_t (*end_token)(void *self);
    /* [main] optional: the same template in Jinja, as it travels with a model: transformers renders equal text from it
     */
    nrl_status (*as_jinja)(void *self, nrl_text *out);
    /* [any] optional: it reads tools, variables and keys of a message beside role and content; false without */
    bool (*reads_keys)(void *self);
} nrl_template;

#ifdef __cplusplus
}
#endif
#endif
