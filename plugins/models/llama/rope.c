/*
 * rope.c - rotary frequencies, from both spellings of config.json: rope_parameters (with its own
 * rope_theta, and one map per kind of layer if kinds differ), or rope_theta with an optional
 * rope_scaling. All in double.
 *
 * Legend: d columns of a head that are rotated, h = d / 2 pairs, theta base, f_j = theta^(-2j/d) for
 * pair j.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925;

typedef struct {
    const nrl_node *config;
    const nrl_node *rope; /* rope_parameters or rope_scaling; NULL = neither */
    const nrl_node *all;  /* rope_parameters that are not per kind of layer, in a family that has two kinds; or NULL */
    const llama_family *family;
    llama_config *sizes;
    bool local; /* for the layers with a window */
    double theta;
    int64_t half;
    double *freq; /* [half] */
    double scale;
} rope_reader;

static nrl_status keep(rope_reader *r)
{
    (void)r;
    return NRL_OK;
}

/* Positions divided by `factor` (Chen et al. 2023). */
static nrl_status linear(rope_reader *r)
{
    double factor;
    NRL_TRY(llama_read_number(r->rope, "factor", 0, NAN, &factor));
    for (int64_t j = 0; j < r->half; j++)
        r->freq[j] /= factor;
    return NRL_OK;
}

/* The context length before the model's context was extended: that in `first`, or else in `then`. As in transformers,
 * longrope prefers the key at the top of config.json, and other kinds that of their own map. */
static nrl_status original_positions(const rope_reader *r, const nrl_node *first, const nrl_node *then, double *out)
{
    static const char key[] = "original_max_position_embeddings";
    double other;
    NRL_TRY(llama_read_number(then, key, 0, (double)r->sizes->max_positions, &other));
    return llama_read_number(first, key, 0, other, out);
}

/* Llama 3.1: long wavelengths are divided by `factor`, short ones are unchanged, and between
 * original/high_freq_factor and original/low_freq_factor the two are interpolated linearly in
 * original/wavelength. */
static nrl_status llama3(rope_reader *r)
{
    double factor, low, high, original;
    NRL_TRY(llama_read_number(r->rope, "factor", 0, NAN, &factor));
    NRL_TRY(llama_read_number(r->rope, "low_freq_factor", 0, NAN, &low));
    NRL_TRY(llama_read_number(r->rope, "high_freq_factor", 0, NAN, &high));
    NRL_TRY(original_positions(r, r->rope, r->config, &original));
    if (high <= low)
        return nrl_fail(NRL_ERR_DATA, "%s: high_freq_factor %g is not above low_freq_factor %g",
                        nrl_node_place(r->rope), high, low);
    for (int64_t j = 0; j < r->half; j++) {
        double turns = original * r->freq[j] / two_pi; /* original / wavelength */
        double smooth = fmin(1, fmax(0, (turns - low) / (high - low)));
        r->freq[j] *= (1 - smooth) / factor + smooth;
    }
    return NRL_OK;
}

/* The pair (as a real number) that makes `turns` turns within `original` positions: d ln(original / (2 pi
 * turns)) / (2 ln theta). */
static double yarn_pair(const rope_reader *r, double original, double turns)
{
    return (double)r->half * log(original / (turns * two_pi)) / log(r->theta);
}

static double yarn_magnitude(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

/* cos and sin are multiplied by attention_factor, which is derived from factor if absent. */
static nrl_status yarn_scale(rope_reader *r, double factor)
{
    double mscale, all, given;
    NRL_TRY(llama_read_number(r->rope, "mscale", -INFINITY, 0, &mscale));
    NRL_TRY(llama_read_number(r->rope, "mscale_all_dim", -INFINITY, 0, &all));
    double derived = mscale != 0 && all != 0 ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all)
                                             : yarn_magnitude(factor, 1);
    NRL_TRY(llama_read_number(r->rope, "attention_factor", 0, derived, &given));
    r->scale = given;
    return NRL_OK;
}

/* Peng et al. 2023: pairs with more than beta_fast turns are unchanged, those with fewer than beta_slow
 * turns are divided by `factor`, with a linear ramp over the pair index between. */
static nrl_status yarn(rope_reader *r)
{
    double factor, fast, slow, original;
    NRL_TRY(original_positions(r, r->rope, r->config, &original));
    NRL_TRY(llama_read_number(r->rope, "factor", 0, (double)r->sizes->max_positions / original, &factor));
    NRL_TRY(llama_read_number(r->rope, "beta_fast", 0, 32, &fast));
    NRL_TRY(llama_read_number(r->rope, "beta_slow", 0, 1, &slow));
    NRL_TRY(yarn_scale(r, factor));
    double low = yarn_pair(r, original, fast);
    double high = yarn_pair(r, original, slow);
    if (nrl_node_bool(nrl_node_find(r->rope, "truncate"), true)) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(2 * r->half - 1));
    if (low == high) high += 0.001;
    for (int64_t j = 0; j < r->half; j++) {
        double ramp = fmin(1, fmax(0, ((double)j - low) / (high - low)));
        r->freq[j] *= ramp / factor + (1 - ramp);
    }
    return NRL_OK;
}

/* Ding et al. 2024: each pair has two divisors, one for texts up to the original context length and one
 * for longer texts. Which one applies to a token would depend on the longest text that it is packed with;
 * nrl always uses the short one and rejects longer texts. */
static nrl_status longrope(rope_reader *r)
{
    double original, factor, derived, divisor;
    NRL_TRY(original_positions(r, r->config, r->rope, &original));
    const nrl_node *list = nrl_node_find(r->rope, "short_factor");
    if (nrl_node_kind(list) != NRL_NODE_LIST || (int64_t)nrl_node_size(list) != r->half)
        return nrl_fail(NRL_ERR_DATA, "%s: 'short_factor' is not a list of %lld numbers", nrl_node_place(r->rope),
                        (long long)r->half);
    for (int64_t j = 0; j < r->half; j++) {
        divisor = nrl_node_f64(nrl_node_at(list, (size_t)j), NAN);
        if (!(divisor > 0) || isinf(divisor))
            return nrl_fail(NRL_ERR_DATA, "%s: short_factor[%lld] is not a number above 0", nrl_node_place(r->rope),
                            (long long)j);
        r->freq[j] /= divisor;
    }
    NRL_TRY(llama_read_number(r->rope, "factor", 0, (double)r->sizes->max_positions / original, &factor));
    derived = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    if (original < (double)r->sizes->max_positions) r->sizes->max_positions = (int64_t)original;
    return llama_read_number(r->rope, "attention_factor", 0, derived, &r->scale);
}

/* A larger base, theta alpha^(d / (d - 2)), which stretches all positions (Hunyuan). */
static nrl_status ntk_alpha(rope_reader *r)
{
    double alpha, d = 2 * (double)r->half;
    NRL_TRY(llama_read_number(r->rope, "alpha", 0, NAN, &alpha));
    for (int64_t j = 0; j < r->half; j++)
        r->freq[j] *= pow(alpha, -2 * (double)j / (d - 2));
    return NRL_OK;
}

static const struct {
    const char *name;
    nrl_status (*apply)(rope_reader *);
} kinds[] = {{"default", keep}, {"linear", linear},     {"llama3", llama3},
             {"yarn", yarn},    {"longrope", longrope}, {"su", longrope}};

static nrl_status apply(rope_reader *r)
{
    const char *type = nrl_node_string(nrl_node_find(r->rope, "type"), "default");
    type = nrl_node_string(nrl_node_find(r->rope, "rope_type"), type);
    if (r->family->fused_qkv && !strcmp(type, "yarn")) type = "longrope"; /* early files of Phi-3 */
    if (r->family->ntk_alpha && !strcmp(type, "dynamic")) return ntk_alpha(r);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].name)) return kinds[i].apply(r);
    return nrl_fail(NRL_ERR_DATA,
                    "%s: rope type '%.60s' is not supported; expected one of: default, linear, llama3, yarn, "
                    "longrope",
                    nrl_node_place(r->config), type);
}

/* The map that defines the scaling: that of this kind of layer, if maps are per kind. The older spelling, and one map
 * for all kinds, apply only to layers without a window. */
static nrl_status find_map(rope_reader *r)
{
    static const char *const types[] = {"full_attention", "sliding_attention"};
    const nrl_node *scaling = nrl_node_find(r->config, "rope_scaling");
    bool older = nrl_node_size(scaling) > 0;
    r->rope = older ? scaling : nrl_node_find(r->config, "rope_parameters");
    if (r->family->local_theta > 0) {
        if (older && r->local) r->rope = NULL;
        if (!older && !nrl_node_find(r->rope, types[0]) && !nrl_node_find(r->rope, types[1])) r->all = r->rope;
        if (!older) r->rope = r->all && !r->local ? r->all : nrl_node_find(r->rope, types[r->local]);
    }
    if (llama_is_absent(r->rope)) r->rope = NULL;
    if (r->rope && nrl_node_kind(r->rope) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "%s: the rope parameters are not a map", nrl_node_place(r->config));
    return NRL_OK;
}

static nrl_status read_theta(rope_reader *r)
{
    double theta = r->family->theta;
    const char *key = "rope_theta";
    if (r->local && r->family->gemma) {
        theta = r->family->local_theta;
        key = "rope_local_base_freq";
    }
    NRL_TRY(llama_read_number(r->config, key, 1, theta, &theta));
    if (r->local && !r->family->gemma) NRL_TRY(llama_read_number(r->all, "rope_theta", 1, theta, &theta));
    return llama_read_number(r->rope, "rope_theta", 1, theta, &r->theta);
}

/* How much of a head is rotated; the pairs are then those of the first columns. */
static nrl_status read_half(rope_reader *r)
{
    double part;
    const double or_part = r->family->rotary_part > 0 ? r->family->rotary_part : 1;
    NRL_TRY(llama_read_number(r->config, "partial_rotary_factor", 0, or_part, &part));
    NRL_TRY(llama_read_number(r->rope, "partial_rotary_factor", 0, part, &part));
    if (part != 1 && !(r->family->rotary_part > 0))
        return nrl_fail(NRL_ERR_DATA, "%s: partial_rotary_factor is %g; only 1 is supported", nrl_node_place(r->config),
                        part);
    int64_t turned = (int64_t)fmin((double)r->sizes->head_dim * part, (double)INT32_MAX);
    if (part > 1 || turned < 2 || turned % 2)
        return nrl_fail(NRL_ERR_DATA, "%s: partial_rotary_factor %g of head_dim %lld is not an even number of columns",
                        nrl_node_place(r->config), part, (long long)r->sizes->head_dim);
    r->half = turned / 2;
    return NRL_OK;
}

static nrl_status read_one(rope_reader *r, nrl_rope *out)
{
    NRL_TRY(find_map(r));
    NRL_TRY(read_theta(r));
    NRL_TRY(read_half(r));
    r->freq = malloc((size_t)r->half * sizeof *r->freq);
    if (!r->freq) return nrl_fail(NRL_ERR_MEMORY, "out of memory for rotary frequencies");
    for (int64_t j = 0; j < r->half; j++)
        r->freq[j] = pow(r->theta, -(double)j / (double)r->half);
    *out = (nrl_rope){r->freq, r->half, 1}; /* the config owns it from here on, also after an error */
    NRL_TRY(apply(r));
    out->scale = r->scale;
    return NRL_OK;
}

nrl_status llama_rope_read(const nrl_node *config, const llama_family *f, llama_config *c)
{
    c->rope = calloc(2, sizeof *c->rope);
    if (!c->rope) return nrl_fail(NRL_ERR_MEMORY, "out of memory for rotary frequencies");
    if (f->needs_rope && llama_is_absent(nrl_node_find(config, "rope_parameters")) &&
        llama_is_absent(nrl_node_find(config, "rope_scaling")))
        return nrl_fail(NRL_ERR_DATA, "%s: a model of type '%s' needs rope_parameters or rope_scaling",
                        nrl_node_place(config), f->model_type);
    for (int i = 0; i < (f->local_theta > 0 ? 2 : 1); i++) {
        rope_reader r = {.config = config, .family = f, .sizes = c, .local = i, .scale = 1};
        NRL_TRY(read_one(&r, &c->rope[i]));
    }
    return NRL_OK;
}
