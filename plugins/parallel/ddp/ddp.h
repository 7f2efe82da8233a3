/*
 * ddp.h - shared by the files of this plugin: options, buckets, and the functions of a codec.
 *
 *   ddp.c       options, their rules, the table
 *   bucket.c    assigns gradients to buckets; binding; checks that all ranks agree
 *   reduce.c    when a bucket is sent, and when the step waits for the rest
 *   plain.c half.c powersgd.c sparse.c tree.c   the codecs: what is sent; powersgd.c uses orthonormal.c
 *   local.c     sync_every: ranks update alone and average
 *   outer.c     outer_lr, outer_momentum: a step from the last weights in common towards the average
 *   text.c      the line in the plan
 *
 * Legend: R ranks, n elements of a bucket; a matrix is [rows, cols] and is sent in rank r.
 */
#ifndef DDP_H
#define DDP_H
#include <nrl/nrl.h>

enum { MIB = 1 << 20 };
enum { DDP_NONE = 0, DDP_BF16, DDP_FP16, DDP_POWERSGD, DDP_TOPK, DDP_THRESHOLD };
enum { DDP_UNUSED_ZERO = 0, DDP_UNUSED_WARN, DDP_UNUSED_ERROR };

typedef struct {
    double bucket_cap_mb, first_bucket_mb; /* 0: the choice of the collective */
    int64_t compress;                      /* DDP_NONE .. */
    bool error_feedback;
    int64_t start_step, powersgd_rank;
    double powersgd_min_rate;
    bool powersgd_warm_start;
    double topk_ratio, threshold_value;
    int64_t sync_every;
    bool sync_states;
    double outer_lr, outer_momentum;
    int64_t unused;       /* DDP_UNUSED_ZERO .. */
    int64_t reproducible; /* shards of the global batch; 0: one for each rank */
} ddp_options;

/* A parameter's place; `begin` counts elements in its bucket. */
typedef struct {
    nrl_param *param;
    nrl_tensor *view; /* [numel], a view into the bucket: GRAD_SHARD, and GRAD too if that is f32 */
    int64_t begin;
    int32_t bucket;
    bool reached;                  /* some unit uses the parameter, so an action makes its gradient final */
    bool unused;                   /* no backward of this step wrote its gradient on this rank */
    bool low_rank;                 /* powersgd: sent as two thin matrices */
    void *codec;                   /* owned by the codec */
    nrl_tensor *own;               /* local steps: this rank's MASTER while the slot holds the mean, else NULL */
    nrl_tensor *anchor, *velocity; /* outer steps: the last MASTER in common, and the momentum; else NULL */
} ddp_slot;

typedef struct {
    int32_t first, n_slots; /* in ddp.slots */
    int32_t n_pending;      /* slots whose gradient is not final yet */
    int32_t stage;          /* the codec's next stage */
    bool running;
    int64_t n;         /* elements; each slot is aligned to 64 bytes */
    nrl_tensor *grads; /* [n] f32, or bf16 (train.gradients) */
    nrl_work *work[2]; /* in flight */
    void *codec;       /* owned by the codec */
    char what[24];     /* "bucket 3", for errors */
} ddp_bucket;

typedef struct ddp ddp;

/* How a bucket becomes the sum over all ranks. Stages run in a fixed order on all ranks; the work that a
 * stage starts is complete before the next stage begins. Members may be NULL. */
typedef struct {
    nrl_status (*bind)(ddp *d, nrl_ctx *ctx, ddp_bucket *b);
    void (*unbind)(ddp *d, nrl_ctx *ctx, ddp_bucket *b);
    /* Starts the work of stage b->stage; sets *more to false if this was the last stage. */
    nrl_status (*stage)(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more);
    /* After all buckets were exchanged: whether what was received is finite. A codec with error feedback
     * keeps no residual of a step that is skipped. */
    nrl_status (*is_finite)(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *finite);
    /* The bucket becomes the sum; `keep`: residuals may change. */
    nrl_status (*settle)(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool keep);
    nrl_status (*state)(ddp *d, nrl_ctx *ctx, ddp_bucket *b, nrl_state_io *v);
} ddp_codec;

extern const ddp_codec ddp_plain, ddp_half, ddp_powersgd, ddp_sparse, ddp_tree;

/* Makes the columns of t [n r] orthonormal, or leaves t as it is if it is not finite; key seeds columns
 * that are redrawn. */
nrl_status ddp_orthonormal(nrl_ctx *ctx, nrl_tensor *t, int64_t n, int64_t r, uint64_t key, bool *finite);

struct ddp {
    ddp_options o;
    nrl_mesh *mesh;
    nrl_comm *comm;
    int32_t rank, size;  /* on its axis */
    double bucket_bytes; /* of all buckets but the first, at most */
    bool train, quiet;
    nrl_dtype gradients; /* dtype of buckets */
    uint32_t n_states;
    int32_t n_params;
    nrl_param *const *params; /* the model's */

    bool differs;      /* local steps: ranks have updated alone since the last average */
    bool has_anchor;   /* outer steps: the checkpoint contained the anchor */
    bool reduces;      /* there are several ranks, and gradients are reduced in each step */
    bool buckets_used; /* and this rank has some */
    const ddp_codec *codec;
    ddp_slot *slots; /* in the order in which gradients become final */
    int32_t n_slots;
    ddp_bucket *buckets; /* in the same order */
    int32_t n_buckets;
    int32_t n_shards, shard; /* of the batch on this rank; the current one */
    int32_t next;            /* the bucket that is sent next in this step */
    int64_t steps;           /* finished reductions, including those of earlier runs */
    bool unused_reported;
    char text[320];
};

/* ---- bucket.c ---- */
nrl_status ddp_bucket_plan(ddp *d, const nrl_parallel_plan *plan); /* fills slots and buckets */
nrl_status ddp_bucket_bind(ddp *d, nrl_ctx *ctx);
void ddp_bucket_unbind(ddp *d, nrl_ctx *ctx);
ddp_slot *ddp_slot_of(ddp *d, const nrl_param *p); /* NULL: frozen */

/* ---- reduce.c ---- */
nrl_status ddp_final(ddp *d, nrl_ctx *ctx, nrl_param *const *final, int32_t n);
nrl_status ddp_finish(ddp *d, nrl_ctx *ctx);
/* Keeps or drops the residuals of the step; ranks without parameters take part in the decision. */
nrl_status ddp_settle(ddp *d, nrl_ctx *ctx);

/* ---- what codecs share ---- */
nrl_status ddp_tensor(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, nrl_tensor **out); /* zeroed */
nrl_status ddp_sum_is_finite(nrl_ctx *ctx, nrl_tensor *t, bool *finite);
bool ddp_is_low_rank(const ddp_options *o, const nrl_param *p);
int64_t ddp_low_rank(const ddp_options *o, const nrl_param *p);

/* ---- tree.c: only with `reproducible` ---- */
int ddp_tree_levels(const ddp *d); /* buffers of a bucket */
/* d->shard of the batch is complete in the bucket: its subtree is added up. */
nrl_status ddp_tree_end_shard(ddp *d, nrl_ctx *ctx, ddp_bucket *b);
/* Binds GRAD to the level that the shard is written to. */
void ddp_tree_begin_shard(ddp *d, ddp_bucket *b, int32_t shard);

/* ---- local.c ---- */
nrl_status ddp_local_updated(ddp *d, nrl_ctx *ctx, int64_t step);
nrl_status ddp_local_average(ddp *d, nrl_ctx *ctx, bool begin);
nrl_status ddp_local_state(ddp *d, nrl_ctx *ctx, nrl_state_io *v);

/* ---- outer.c ---- */
bool ddp_has_outer(const ddp *d);
nrl_status ddp_outer_bind(ddp *d, nrl_ctx *ctx);
void ddp_outer_unbind(ddp *d, nrl_ctx *ctx);
/* MASTER is equal on all ranks: the next outer step starts from it. */
nrl_status ddp_outer_begin(ddp *d, nrl_ctx *ctx);
/* MASTER is the average of all ranks and becomes the result of the outer step. */
nrl_status ddp_outer_step(ddp *d, nrl_ctx *ctx);

/* ---- text.c ---- */
void ddp_describe(ddp *d, nrl_parallel_plan *plan);

#endif
