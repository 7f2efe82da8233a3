/*
 * inference.h - for programs that use a model without training it: open a run, a checkpoint or a model directory,
 * compute logits and log-probs, sample, convert the model to another format; tokenizers without a model.
 *
 *     nrl_environment env = {.size = sizeof env};
 *     nrl_sample_options options = {.size = sizeof options, .max_tokens = 64, .top_p = 1};
 *     const char *prompt = "Once upon a time";
 *     char *text;
 *     nrl_inference *m;
 *     nrl_status st = nrl_inference_open("runs/first", &env, &m);
 *     if (st == NRL_OK) st = nrl_inference_sample(m, &prompt, 1, &options, &text, NULL);
 *     ...
 *     nrl_free(text);
 *     nrl_inference_close(m);
 *
 * The functions are in the library libnrl-inference (pkg-config nrl-inference, CMake nrl::libnrl-inference).
 *
 * The weights of a run compute on the run's own backend, with the options of its config; if that backend does not run
 * on this machine, a warning says so and the host computes, as it does for models on disk. nrl_inference_options name
 * another backend. Weights are bf16 if the files store bf16 or the run trained in bf16, else f32; on the host
 * everything else is f32. nrl_run_logits, nrl_run_logps and nrl_run_sample do the same with the current weights of an
 * open run (nrl/run.h), on its device and in its precision.
 *
 * Threads: a model belongs to the thread that opened it, except for calls marked [any]. Several may be open.
 * Ownership: results through `const` pointers are borrowed until the model or tokenizer is closed. Results described as
 * allocated are freed with nrl_free. Texts passed to a function are copied.
 * Errors: a status; nrl_error_text() returns the text. After a failed call the model remains usable.
 * Growth: the caller sets `size` of a struct to its sizeof.
 */
#ifndef NRL_INFERENCE_H
#define NRL_INFERENCE_H
#include <nrl/run.h>
#include <nrl/tokenizer.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---- */

enum { NRL_FINISH_NONE = 0, NRL_FINISH_STOP, NRL_FINISH_LENGTH, NRL_FINISH_FAILED };

/* A token that was chosen. The memory belongs to the caller of the callback and is valid during the call. */
typedef struct {
    uint32_t size;
    int32_t id;
    size_t text;  /* index of the text in texts[]; of nrl_generator_add, 0 to options.n - 1 */
    size_t n_top; /* members of top_ids and top_logps */
    /* The text that is complete with this token, NUL-terminated: empty inside a character, for the token that ends a
     * text, and while it may become a stop text. The pieces of a text add up to texts[i]. */
    const char *piece;
    size_t piece_size;
    uint32_t finish; /* NRL_FINISH_NONE: the text continues; STOP: an end token or a stop text; LENGTH: max_tokens, or
                        the model's positions; FAILED, only of nrl_generator_add: a logit is not finite, so that no
                        token could be chosen, and `id` is NRL_TOKEN_NONE */
    /* With options.logprobs: the log-prob of the token, in nats, in the model's own distribution, before temperature
     * and all other options; it equals nrl_inference_logps except for rounding. */
    float logp;
    const int32_t *top_ids; /* the most likely tokens, descending, with their log-probs */
    const float *top_logps;
} nrl_sampled_token;

typedef struct {
    uint32_t size;
    bool chat;          /* prompts are user messages, rendered with the run's template */
    bool keep_special;  /* keep special tokens in the text */
    int64_t max_tokens; /* new tokens, at most */
    double temperature; /* 0 = greedy: the most likely token */
    double top_p;       /* choose from the smallest set of tokens with at least this probability; 1 = all */
    uint64_t seed;
    /* Called for each new token, as it is chosen; tokens of several texts alternate. A status other than NRL_OK ends
     * the sampling, which returns it. Every rank calls its own function, which must not call the run or the model. NULL
     * = not called. */
    nrl_status (*token)(void *token_user, const nrl_sampled_token *token);
    void *token_user;
    int64_t top_k; /* choose from this many most likely tokens; 0 = all */
    double min_p;  /* drop tokens whose probability is below min_p times that of the most likely one; 0 = none */
    /* Logits of tokens that the prompt or the new text contains are divided by this number if they are positive, and
     * multiplied otherwise (Keskar et al. 2019); 0 or 1 = unchanged. */
    double repetition_penalty;
    const char *const *stop; /* [n_stop] a text ends before the first occurrence of any of these; n_stop 0 = none */
    size_t n_stop;
    /* [n] conversations that replace `prompts`, which may then be NULL: each is a list of messages {"role", "content"},
     * or a map with such a list as "messages", and "tools" and "chat_template_kwargs" as in data rows. They are
     * rendered with the run's template, which then opens a turn of the assistant. NULL = none. */
    const nrl_node *const *conversations;
    int64_t n;            /* texts for each prompt, which is computed once; 0 = 1 */
    int64_t top_logprobs; /* number of most likely tokens in nrl_sampled_token; above 0 it implies logprobs */
    bool logprobs;        /* fill nrl_sampled_token.logp */
    /* Lowers max_tokens to the positions that the prompt leaves, instead of an error. A prompt that fills all positions
     * is an error in any case. */
    bool fits_context;
} nrl_sample_options;

/* Continues n prompts together. texts[i * options.n + k] is text k of prompt i, without the prompt, allocated
 * (nrl_free); n_tokens[] are the numbers of new tokens (n_tokens may be NULL). Token t of a text depends on the seed,
 * the index of the text and t, not on the other texts, except for the rounding of the device's matrix products. After a
 * failure nothing is allocated. */
NRL_API nrl_status nrl_run_sample(nrl_run *run, const char *const *prompts, size_t n, const nrl_sample_options *options,
                                  char **texts, int64_t *n_tokens);

/* ---- a model ---- */

typedef struct nrl_inference nrl_inference;

/* Opens the directory of a run (its newest complete checkpoint), a checkpoint, or a model that a format plugin reads.
 * Adapters are added to their base model. Of `env`, plugin_path, exe_dir, user_plugins, variable, public_key and
 * no_config_plugins are used and must outlive the model. Plugins are also found where the run's config says
 * (`plugins`, limited by plugins.allow), unless no_config_plugins. NRL_ERR_CONFIG if the path is none of the three;
 * NRL_ERR_DATA, NRL_ERR_CORRUPT, NRL_ERR_MEMORY. */
NRL_API nrl_status nrl_inference_open(const char *path, const nrl_environment *env, nrl_inference **out);
NRL_API void nrl_inference_close(nrl_inference *m); /* m may be NULL */

typedef struct {
    uint32_t size;
    uint32_t precision;  /* of the weights: NRL_DTYPE_F32 or NRL_DTYPE_BF16; 0 = as above */
    const char *backend; /* name of a backend, or "auto" for the first that runs on this machine; NULL = as above */
    bool scores;         /* the model scores texts (nrl_inference_scores) and has no logits */
} nrl_inference_options;
/* The same with options. NRL_ERR_CONFIG if the backend does not exist or does not run here, or if the model is not a
 * reward model although `scores` is set. */
NRL_API nrl_status nrl_inference_open_with(const char *path, const nrl_environment *env,
                                           const nrl_inference_options *options, nrl_inference **out);

typedef struct {
    uint32_t size;
    int32_t vocab_size;     /* values of a row of logits; a tokenizer may have fewer ids */
    int64_t max_positions;  /* of a sequence; 0 = no limit */
    int64_t parameters;     /* elements of all weights without adapters */
    const nrl_node *config; /* config.json */
    const char *tokenizer;  /* directory or file of the tokenizer; NULL = none */
    const char *backend;    /* name of the backend that computes */
    uint32_t precision;     /* nrl_dtype of the weights */
    int64_t step;           /* of the checkpoint; -1: a model on disk */
} nrl_inference_info;
NRL_API void nrl_inference_info_fill(const nrl_inference *m, nrl_inference_info *fill);

/* The next functions take n packed sequences: `ids` contains lengths[0] ids of the first sequence, then lengths[1] of
 * the second, and so on, T in total. NRL_ERR_CONFIG unless each sequence has 1 to max_positions ids below vocab_size.
 */

/* Computes logits[T][vocab_size]; row t predicts the token after token t of its sequence. A soft cap of the model is
 * applied. */
NRL_API nrl_status nrl_inference_logits(nrl_inference *m, const int32_t *ids, const int64_t *lengths, size_t n,
                                        float *logits);
/* Computes logps[T]: the log-prob, in nats, of token t given the tokens before it in its sequence; 0 for the first
 * token of each sequence. Never holds all logits in memory. */
NRL_API nrl_status nrl_inference_logps(nrl_inference *m, const int32_t *ids, const int64_t *lengths, size_t n,
                                       float *logps);

/* Computes scores[n], one for each sequence, with a reward model that was opened with options.scores: one that
 * `algorithm: reward` has trained, or a sequence classifier of transformers with one label. The score is read at the
 * last token that is not pad_token_id of config.json. Models opened so refuse the other functions of this part with
 * NRL_ERR_CONFIG. */
NRL_API nrl_status nrl_inference_scores(nrl_inference *m, const int32_t *ids, const int64_t *lengths, size_t n,
                                        float *scores);

/* Sets the chat template for options.chat of nrl_inference_sample: a value of data.template, such as "chatml", a path,
 * or "auto" for that of the tokenizer. NULL, the initial value, is the template of the run, or "auto" for a model that
 * is not a run. NRL_ERR_CONFIG lists the built-in templates. */
NRL_API nrl_status nrl_inference_set_template(nrl_inference *m, const char *word);
/* The same as nrl_run_sample. NRL_ERR_CONFIG without a tokenizer. */
NRL_API nrl_status nrl_inference_sample(nrl_inference *m, const char *const *prompts, size_t n,
                                        const nrl_sample_options *options, char **texts, int64_t *n_tokens);

/* The same for an open run, between two of its steps. Every rank must call them with the same ids, and every rank gets
 * the values. */
NRL_API nrl_status nrl_run_logits(nrl_run *run, const int32_t *ids, const int64_t *lengths, size_t n, float *logits);
NRL_API nrl_status nrl_run_logps(nrl_run *run, const int32_t *ids, const int64_t *lengths, size_t n, float *logps);
/* The elements of a row of logits; 0 for a model without an output layer, such as a reward model, for which the
 * functions above and nrl_run_sample return NRL_ERR_CONFIG. */
NRL_API int32_t nrl_run_vocab_size(const nrl_run *run);

/* From the next step on the run trains on other data: `train` is a value of data.train, the other data options are
 * those of the config. The optimizer, the schedule and the number of steps stay; the epochs of the new data count from
 * here. Checkpoints contain it, and a resume continues with it. All ranks call it, between two steps. NRL_ERR_CONFIG,
 * NRL_ERR_DATA: the run continues with its data. */
NRL_API nrl_status nrl_run_set_data(nrl_run *run, const nrl_node *train);

/* ---- many requests: continuous batching ---- */

/* Generates texts for requests that are added and removed at any time. Each step computes one token for every active
 * text; a new request joins at the next step. The keys and values of a text that has ended are kept while there is
 * room, and a prompt that begins with the same tokens as another text continues from them, such as a continued
 * conversation or a common system prompt. Belongs to the thread of its model. */
typedef struct nrl_generator nrl_generator;

typedef struct {
    uint32_t size;
    int64_t max_sequences; /* texts that are computed at once; others wait in order; 0 = 128 */
    int64_t max_cached;    /* tokens with keys and values in memory, unless a single text needs more; 0 = 131072 */
} nrl_generator_options;

/* One of the three. */
typedef struct {
    uint32_t size;
    const char *text;             /* continued, or with options.chat a message of the user */
    const nrl_node *conversation; /* as in nrl_sample_options */
    const int32_t *ids;           /* [n_ids] token ids */
    size_t n_ids;
} nrl_prompt;

/* NRL_ERR_CONFIG if the model has no tokenizer; NRL_ERR_MEMORY. The model must outlive the generator. */
NRL_API nrl_status nrl_generator_open(nrl_inference *m, const nrl_generator_options *options, nrl_generator **out);
NRL_API void nrl_generator_close(nrl_generator *g); /* ends all texts; g may be NULL */
/* Adds a request of options.n texts; `conversations` is ignored, and options.token receives the texts. Prompt and stop
 * texts are copied. *n_prompt (may be NULL) is the number of its tokens. NRL_ERR_CONFIG: no token in the prompt, more
 * tokens than the model has positions, or no template; NRL_ERR_DATA: messages that the template refuses;
 * NRL_ERR_MEMORY. A request that failed leaves the others as they are. */
NRL_API nrl_status nrl_generator_add(nrl_generator *g, const nrl_prompt *prompt, const nrl_sample_options *options,
                                     uint64_t *id, int64_t *n_prompt);
/* Ends the texts of a request; nothing if they have ended. Not from options.token, whose error has the same effect. */
NRL_API void nrl_generator_remove(nrl_generator *g, uint64_t id);
/* Computes a token for each active text; *is_idle: no text is left. An error of options.token, or NRL_FINISH_FAILED,
 * ends only that text, and the step returns the first such error. After another error the texts remain and the step may
 * be repeated. */
NRL_API nrl_status nrl_generator_step(nrl_generator *g, bool *is_idle);

typedef struct {
    uint32_t size;
    int64_t n_waiting, n_running; /* texts */
    /* tokens of prompts since the generator was opened: computed, and found among what was cached */
    int64_t prompt_tokens_computed, prompt_tokens_reused;
} nrl_generator_stats;
NRL_API void nrl_generator_stats_fill(const nrl_generator *g, nrl_generator_stats *fill);

/* ---- conversion ---- */

typedef struct {
    uint32_t size;
    uint32_t dtype;       /* NRL_DTYPE_F32, NRL_DTYPE_BF16 or NRL_DTYPE_F16; 0 = the one that the model's config.json
                             names, and NRL_DTYPE_F32 for adapters, with an encoding, or if it names none */
    bool adapters;        /* write only the adapters; NRL_ERR_CONFIG unless the path is a run that trained adapters */
    bool overwrite;       /* replace a model in `dir` */
    const char *format;   /* name of the format plugin that writes; NULL = the one that reads the path if it can write,
                             else the one with the highest priority */
    const char *encoding; /* an encoding of the format for matrices, such as "q8_0", instead of dtype; NULL = dtype */
    uint32_t *used_dtype; /* receives the dtype of the files; NULL = not needed */
    const char *card;     /* text of README.md, written with the model; NULL = none */
} nrl_export_options;

/* Writes the model at `path`, as nrl_inference_open opens it, to the directory `dir`, with the tokenizer and the chat
 * template. Weights of a checkpoint are converted one tensor at a time. */
NRL_API nrl_status nrl_export(const char *path, const nrl_environment *env, const char *dir,
                              const nrl_export_options *options);
/* The text of a model card for nrl_export_options.card, allocated: the base model and licence, data, settings and last
 * losses of the run, checkpoint or model `path`. NULL: `dir` has a README.md that nrl did not write. */
NRL_API char *nrl_model_card(const char *path, const char *dir, bool adapters);
/* For nrl_environment.services: model cards of runs, eval.samples, nrl_run_set_data, and measures of a step; static.
 * [any] */
NRL_API const nrl_run_services *nrl_inference_services(void);
/* Writes the model as checkpoint 0 of a run, OUT/checkpoints/step-00000000. NRL_ERR_CONFIG if `out` has a checkpoint.
 */
NRL_API nrl_status nrl_import(const char *path, const nrl_environment *env, const char *out);

/* ---- a tokenizer ---- */

/* Opens the file or directory `path` with the plugin of that name; NULL = the plugin whose probe is most certain. `env`
 * as for nrl_inference_open. The result's table and instance (nrl/tokenizer.h) may be called directly. NRL_ERR_CONFIG,
 * NRL_ERR_DATA. */
NRL_API nrl_status nrl_tokenizer_open(const char *path, const char *plugin, const nrl_environment *env,
                                      const nrl_open_tokenizer **out);
NRL_API void nrl_tokenizer_close(const nrl_open_tokenizer *t); /* from nrl_tokenizer_open; t may be NULL */
/* The tokenizer of a model or a run; NULL if it has none. */
NRL_API const nrl_open_tokenizer *nrl_inference_tokenizer(const nrl_inference *m);
NRL_API const nrl_open_tokenizer *nrl_run_tokenizer(const nrl_run *run);

#ifdef __cplusplus
}
#endif
#endif
