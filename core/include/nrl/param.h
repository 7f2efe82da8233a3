/*
 * param.h - parameters: handles with slots, to which a strategy binds storage.
 *
 * Models pass nrl_param to linear, embedding and norm, never a weight tensor, and the tape keeps
 * the handle. A strategy binds storage to slots: unsharded tensors, or local slices.
 * Optimizer, clipping, checkpoint and export read layouts and logical values only.
 *
 * MASTER is f32, encoded in one of two ways:
 *   plain    MASTER, an f32 tensor; WEIGHT is MASTER rounded to the compute dtype
 *   split16  no MASTER: HI16, which is the bf16 WEIGHT itself (for a sharded parameter, its local slice), and LO16,
 *            the 16 bits removed by rounding: 4 bytes for both instead of 6
 * An f32 value with the bits b is split as
 *   high = (b + 0x8000) >> 16,  low = b & 0xffff,  and joined as  b = (high << 16) + (int16_t)low
 * which is exact for every value, including zeros of both signs, denormals and infinities. This requires
 * a reversible rounding: to nearest, ties away from zero. (With ties to even, b would not determine whether
 * high was rounded up or down.) The largest values round to infinity in HI16, as in every rounding to
 * bf16, and are finite again when joined. A NaN becomes the quiet NaN of its sign, so that HI16 is a NaN too.
 * Both encodings round bf16 WEIGHT in this way (nrl_master_round), so that the numbers of a run do not
 * depend on the encoding. Checkpoints and exports contain the f32 values.
 *
 * A layout belongs to a part: one logical Hugging Face tensor. Most parameters have one part; a
 * fused parameter has several, stacked along dimension 0. Checkpoints use the names of parts. A tensor that is
 * also fused in files (GPT-2's queries, keys and values) is one part with several groups.
 *
 * Operations see the shard of an axis that divides a dimension: WEIGHT, GRAD and the parameter's dimensions are those
 * of the slice on this rank. A flat shard divides only the local slots; the strategy that makes flat shards gathers
 * WEIGHT.
 */
#ifndef NRL_PARAM_H
#define NRL_PARAM_H
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    NRL_SLOT_NONE = 0,
    NRL_SLOT_WEIGHT = 1,     /* the compute weight that operations read: compute dtype, unsharded */
    NRL_SLOT_GRAD = 2,       /* accumulated gradient: f32, unsharded; the next backward overwrites it if it is empty */
    NRL_SLOT_MASTER = 3,     /* local slice, f32; aliases WEIGHT if that is f32 and unsharded */
    NRL_SLOT_GRAD_SHARD = 4, /* local slice of the reduced gradient, f32 (may alias GRAD) or bf16 */
    NRL_SLOT_STATE0 = 5,     /* local slices of the optimizer's states: STATE0 + k */
    NRL_SLOT_STATE1 = 6,
    NRL_SLOT_STATE2 = 7,
    NRL_SLOT_STATE3 = 8,
    NRL_SLOT_HI16 = 9,  /* split16: local slice, bf16; WEIGHT itself if that is unsharded */
    NRL_SLOT_LO16 = 10, /* split16: local slice, u16 */
    NRL_SLOT_COUNT = 11
} nrl_slot;

enum { NRL_MAX_PLACEMENTS = 4, NRL_SHARD_FLAT = -1 };

/* How one axis places a part, as Shard(dim) of PyTorch's DTensor: `axis` divides dimension `dim`, or the flat
 * element range of what the earlier placements left. Coordinate c of n holds [begin[c], end[c]). Ranges may be empty,
 * or equal: then the lowest coordinate owns the range. */
typedef struct {
    const char *axis; /* the strategy's own axis, or an axis that it has split off with nrl_mesh_split */
    int32_t dim;      /* 0 .. n_dims-1, or NRL_SHARD_FLAT */
    int32_t n;        /* coordinates on the axis */
    const int64_t *begin, *end;
} nrl_placement;
NRL_STATIC_ASSERT(sizeof(nrl_placement) == 32, "nrl_placement is frozen: layouts contain an array");

typedef struct {
    int32_t n_placements;                         /* 0 = replicated on every rank */
    int32_t n_holders;                            /* stages: coordinates on the axis that divides the depth */
    nrl_placement placements[NRL_MAX_PLACEMENTS]; /* in order of application */
    const bool *owner_stages; /* [n_holders] which stages have the part; other stages have no elements of it, whatever
                            the placements are; NULL = all */
} nrl_layout;
NRL_STATIC_ASSERT(sizeof(nrl_layout) == 144, "nrl_layout is frozen: parts contain one");

typedef struct {
    const char *name; /* as in Hugging Face checkpoints */
    int32_t n_dims;
    bool transposed; /* files store [in, out], the parameter is [out, in] */
    int64_t dims[NRL_MAX_DIMS];
    nrl_layout layout;
    int32_t groups; /* > 1: dimension 0 consists of this many equal groups (q, k and v of a fused projection); a
                       placement divides each group in the same way, and its ranges count within a group */
    int32_t reserved;
} nrl_part;

NRL_API const char *nrl_param_name(const nrl_param *p);
NRL_API int nrl_param_n_dims(const nrl_param *p);
NRL_API int64_t nrl_param_dim(const nrl_param *p, int i); /* of the slice on this rank, see above */
NRL_API int64_t nrl_param_numel(const nrl_param *p);
NRL_API int nrl_param_n_parts(const nrl_param *p);
NRL_API nrl_part *nrl_param_part(nrl_param *p, int i); /* strategies write its layout in `plan` */
NRL_API bool nrl_param_trained(const nrl_param *p);    /* false: frozen, WEIGHT only */
NRL_API bool nrl_param_decays(const nrl_param *p);     /* weight decay applies */
NRL_API uint32_t nrl_param_tp(const nrl_param *p);     /* nrl_tp of nrl/model.h */
NRL_API int32_t nrl_param_expert(const nrl_param *p);  /* nrl_param_spec.expert; that of an adapter's weight */

/* Added by the algorithm, whose loss uses it with the hidden states of all tokens: ranks that divide the tokens or the
 * width compute the same gradient of it, which is not summed over their axes. */
NRL_API bool nrl_param_of_algorithm(const nrl_param *p);

/* Binds storage to a slot (NULL unbinds) and raises the version. For unsharded slots the tensor must be
 * [numel] or have the parameter's shape. The caller keeps ownership. [step] */
NRL_API void nrl_param_bind(nrl_param *p, nrl_slot slot, nrl_tensor *t);
NRL_API nrl_tensor *nrl_param_tensor(const nrl_param *p, nrl_slot slot); /* NULL = unbound */
/* Raised by every update, and every bind of a slot other than a gradient; the key of packed and transposed copies. */
NRL_API uint64_t nrl_param_version(const nrl_param *p);
NRL_API void nrl_param_touch(nrl_param *p); /* reports that the contents of WEIGHT changed */
/* Computes WEIGHT, or a range of it, from f32 MASTER: to bf16 by the rounding above, to other dtypes as
 * nrl_tensor_copy does. [step] */
NRL_API nrl_status nrl_master_round(nrl_ctx *ctx, const nrl_tensor *master, nrl_tensor *work);
/* Whether GRAD holds no gradient yet, so that the next backward overwrites it instead of adding. */
NRL_API bool nrl_param_grad_is_empty(const nrl_param *p);
NRL_API void nrl_param_set_grad_is_empty(nrl_param *p, bool grad_is_empty);

#ifdef __cplusplus
}
#endif
#endif
