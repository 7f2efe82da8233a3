/*
 * inference.h - for programs that use a model and train nothing: open a trained run, one of its checkpoints or a model
 * directory, ask for logits and log-probs, sample, write the model in another format; tokenizers by themselves.
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
 * A model is computed in f32 on a backend of the host. A run that is open (nrl/run.h) answers the same questions with
 * its current weights on its own device: nrl_run_logits, nrl_run_logps, nrl_run_sample.
 *
 * Threads: a model belongs to the thread that opened it; several may be open. Calls marked [any] excepted.
 * Ownership: what a function returns through `const` pointers is borrowed until the model or tokenizer is closed. What
 * is said to be allocated is given back by nrl_free. Texts given to a function are copied.
 * Errors: a status; nrl_error_text() has the words. After a failed call the model may be used on.
 * Growth: structs that begin with `size` are given their own sizeof by the caller.
 */
#ifndef NRL_INFERENCE_H
#define NRL_INFERENCE_H
#include <nrl/run.h>
#include <nrl/tokenizer.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---- */

typedef struct {
    uint32_t size;
    bool chat;          /* prompts are user messages, rendered by the run's template */
    bool keep_special;  /* special tokens stay in the text */
    int64_t max_tokens; /* new tokens */
    double temperature; /* 0 = greedy */
    double top_p;       /* 1 = all */
    uint64_t seed;
    /* Called with each new token as it is chosen, prompts in turn: the prompt's index, the id, and the text that became
     * certain with it, empty amid a character and for the token that ends a text. The texts of a prompt add up to
     * texts[i]. A status other than NRL_OK ends the sampling and is what it returns. Every rank calls its own. NULL =
     * nobody asks. It may not call the run or the model. */
    nrl_status (*token)(void *token_user, size_t prompt, int32_t id, const char *text, size_t size);
    void *token_user;
} nrl_sample_options;
/* Continues n prompts in one batch. texts[i] is the new text without the prompt, allocated (nrl_free); n_tokens[i] is
 * the number of new tokens (n_tokens may be NULL). After a failure nothing is allocated. */
NRL_API nrl_status nrl_run_sample(nrl_run *run, const char *const *prompts, size_t n, const nrl_sample_options *options,
                                  char **texts, int64_t *n_tokens);

/* ---- a model ---- */

typedef struct nrl_inference nrl_inference;

/* `path`: a run's folder (its newest complete checkpoint), one checkpoint, or a model that a format plugin reads.
 * Adapters are added to their base model. Of `env` plugin_path, exe_dir, variable and public_key are read; they live
 * as long as the model. NRL_ERR_CONFIG where the path is none of the three; NRL_ERR_DATA, NRL_ERR_CORRUPT,
 * NRL_ERR_MEMORY. */
NRL_API nrl_status nrl_inference_open(const char *path, const nrl_environment *env, nrl_inference **out);
NRL_API void nrl_inference_close(nrl_inference *m); /* NULL is fine */

typedef struct {
    uint32_t size;
    int32_t vocab_size;     /* values of a row of logits; a tokenizer may have fewer ids */
    int64_t max_positions;  /* of a sequence; 0 = no limit */
    int64_t parameters;     /* numbers in all weights, adapters not counted */
    const nrl_node *config; /* what describes the model: config.json */
    const char *tokenizer;  /* folder or file of the tokenizer; NULL = the model names none */
} nrl_inference_info;
NRL_API void nrl_inference_info_fill(const nrl_inference *m, nrl_inference_info *fill);

/* Packed sequences: lengths[i] ids of sequence i, all ids behind each other, T in all. Each sequence has 1 to
 * max_positions ids, each id is below vocab_size; else NRL_ERR_CONFIG. */

/* logits[T][vocab_size]: row t predicts the token behind token t of its sequence. As the model computes them, its soft
 * cap included. */
NRL_API nrl_status nrl_inference_logits(nrl_inference *m, const int32_t *ids, const int64_t *lengths, size_t n,
                                        float *logits);
/* logps[T]: log-prob, in nats, of token t given the tokens of its sequence in front of it; 0 for the first token of
 * each sequence. The logits are never stored at once. */
NRL_API nrl_status nrl_inference_logps(nrl_inference *m, const int32_t *ids, const int64_t *lengths, size_t n,
                                       float *logps);

/* The chat template for options.chat of nrl_inference_sample: the config's word or a file, "auto" for the tokenizer's
 * own; NULL = the run's, or "auto" where the path is not of a run. Without this call it is NULL. NRL_ERR_CONFIG lists
 * the words. */
NRL_API nrl_status nrl_inference_set_template(nrl_inference *m, const char *word);
/* As nrl_run_sample. NRL_ERR_CONFIG without a tokenizer. */
NRL_API nrl_status nrl_inference_sample(nrl_inference *m, const char *const *prompts, size_t n,
                                        const nrl_sample_options *options, char **texts, int64_t *n_tokens);

/* The same questions to an open run, between two of its steps. Every rank calls them with the same ids, and all get
 * the values. */
NRL_API nrl_status nrl_run_logits(nrl_run *run, const int32_t *ids, const int64_t *lengths, size_t n, float *logits);
NRL_API nrl_status nrl_run_logps(nrl_run *run, const int32_t *ids, const int64_t *lengths, size_t n, float *logps);
NRL_API int32_t nrl_run_vocab_size(const nrl_run *run); /* values of a row of logits */

/* ---- from one place on disk to another ---- */

typedef struct {
    uint32_t size;
    uint32_t dtype;       /* NRL_DTYPE_F32, NRL_DTYPE_BF16 or NRL_DTYPE_F16; 0 = NRL_DTYPE_F32 */
    bool adapters;        /* these alone; NRL_ERR_CONFIG where the path is not of a run that trained adapters */
    bool overwrite;       /* a model that `dir` holds is replaced */
    const char *format;   /* name of the format plugin that writes; NULL = the one that reads the path, else the first
                           * that writes */
    const char *encoding; /* of matrices, one of the format's own such as "q8_0", instead of dtype; NULL = dtype */
} nrl_export_options;

/* Writes what nrl_inference_open opens to the folder `dir`, with the tokenizer and the chat template. Weights of a
 * checkpoint pass a tensor at a time, and are never all in memory. */
NRL_API nrl_status nrl_export(const char *path, const nrl_environment *env, const char *dir,
                              const nrl_export_options *options);
/* Writes it as checkpoint 0 of a run, OUT/checkpoints/step-00000000. NRL_ERR_CONFIG where `out` has a checkpoint. */
NRL_API nrl_status nrl_import(const char *path, const nrl_environment *env, const char *out);

/* ---- a tokenizer ---- */

/* The file or folder `path`, read by the plugin of that name; NULL = the one whose probe is surest. `env` as above.
 * NRL_ERR_CONFIG, NRL_ERR_DATA. The table and its instance (nrl/tokenizer.h) may be called too. */
NRL_API nrl_status nrl_tokenizer_open(const char *path, const char *plugin, const nrl_environment *env,
                                      const nrl_open_tokenizer **out);
NRL_API void nrl_tokenizer_close(const nrl_open_tokenizer *t); /* that nrl_tokenizer_open gave; NULL is fine */
/* Of a model and of a run; NULL where it has none. */
NRL_API const nrl_open_tokenizer *nrl_inference_tokenizer(const nrl_inference *m);
NRL_API const nrl_open_tokenizer *nrl_run_tokenizer(const nrl_run *run);

#ifdef __cplusplus
}
#endif
#endif
