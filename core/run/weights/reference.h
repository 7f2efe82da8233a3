/*
 * reference.h - a frozen second model: a reference, whose log-probs of every target position are the column
 * "ref_logps", or a teacher, which may have another architecture and whose log-probs ("teacher_logps") or logits
 * ("teacher_logits", computed in chunks with the policy's) a loss reads. Opened only if the algorithm needs one of
 * these columns. A teacher's are always computed online. There are three ways to get those of a reference:
 *
 * - online: a second set of weights (WEIGHT only) beside the policy's; one forward of a micro-batch, no tape. If the
 *   policy trains adapters that start without effect, it is the policy without its adapters.
 * - cached: computed once before training into a memory-mapped file; then the weights are dropped.
 * - none: zeros, the losses' reference-free form.
 */
#ifndef RUN_REFERENCE_H
#define RUN_REFERENCE_H
#include "config/options.h"
#include "data/data.h"
#include "run/weights/origin.h"
#include "run/walk/storage.h"
#include "run/walk/strategy.h"
#include "run/walk/work.h"

typedef enum { REFERENCE_ONLINE = 0, REFERENCE_CACHED, REFERENCE_NONE } reference_mode;

/* The core's rows of `algorithm:`; read only where the algorithm needs a reference. */
typedef struct {
    int64_t reference;           /* reference_mode */
    const char *reference_model; /* directory; "" = the model that training starts from */
    bool check_initial_loss;     /* stop when the first loss is not the known constant */
} reference_options;
extern const nrl_option reference_rows[], teacher_rows[];
extern const size_t reference_n_rows, teacher_n_rows;

/* The kind of second model that an algorithm needs, if any. */
bool reference_is_teacher(const nrl_algorithm *a);
bool reference_is_needed(const nrl_algorithm *a);
/* The key of the config that names the directory of the second model. */
const char *reference_key(const nrl_algorithm *a);

typedef struct reference reference;

typedef struct {
    const reference_options *options;
    nrl_ctx *ctx;
    nrl_mesh *mesh;                  /* its data axis shares the work; NULL = one rank */
    const strategy_choices *choices; /* for instances of the reference's own */
    data_shards shards;              /* of the batches */
    const model *policy;             /* whose vocabulary the reference must share */
    const nrl_model *table;          /* the reference's architecture */
    const nrl_node *config;          /* its config.json */
    int64_t max_length;              /* tokens that a segment may have */
    const char *rounding;            /* as reference_cache_setup */
    nrl_dtype compute;
    model_origin origin;   /* of the reference's weights */
    work *shared;          /* the policy's: the reference is it with adapters off; NULL: weights of its own */
    const char *cache_dir; /* NULL: cached is refused */
    int64_t micro_batch_tokens;
    bool prompt_targets, is_teacher;
    const volatile int *signal; /* as reference_cache_setup */
} reference_setup;

/* Opens the reference and, when cached, computes or maps the file of each data set (NULL = none).
 * Errors: NRL_ERR_MEMORY, NRL_ERR_CORRUPT for a damaged cache that cannot be rebuilt. [main] */
nrl_status reference_open(const reference_setup *setup, const dataset *const *sets, size_t n_sets, reference **out);
void reference_close(reference *r);

/* Sets the column of a batch of data set `set` (as in `sets`: 0 training, 1 + i set i of data.eval); its tensor is
 * counted for the caller, NULL for an empty batch. [step] */
nrl_status reference_column(reference *r, size_t set, nrl_batch *batch, nrl_tensor **column);
/* Whether training started from this model (then the first loss is known). */
bool reference_is_start(const reference *r);
int64_t reference_bytes(const reference *r);  /* of weights held, and buffers that gather them */
bool reference_is_shared(const reference *r); /* it has no weights of its own */
work *reference_walk(reference *r);           /* for losses that read logits */

#endif
