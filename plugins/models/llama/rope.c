/*
 * rope.c - rotary frequencies. Both spellings of config.json: rope_parameters (with its own
 * rope_theta), or rope_theta with an optional rope_scaling. In double throughout.
 *
 * Legend: d head width, h = d / 2 pairs, theta base, f_j = theta^(-2j/d) for pair j.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925;

typedef struct {
    const nrl_node *config;
    const nrl_node *rope; /* rope_parameters or rope_scaling; NULL = neither */
    const llama_config *sizes;
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

/* The length that the model was trained with before it was stretched. */
static nrl_status original_positions(const rope_reader *r, double *out)
{
    double inside;
    NRL_TRY(llama_read_number(r->rope, "original_max_position_embeddings", 0,
                              (double)r->sizes->max_positions, &inside));
    return llama_read_number(r->config, "original_max_position_embeddings", 0, inside, out);
}

/* Llama 3.1: long wavelengths are divided by `factor`, short ones stay, and between
 * original/high_freq_factor and original/low_freq_factor both are mixed linearly in
 * original/wavelength. */
static nrl_status llama3(rope_reader *r)
{
    double factor, low, high, original;
    NRL_TRY(llama_read_number(r->rope, "factor", 0, NAN, &factor));
    NRL_TRY(llama_read_number(r->rope, "low_freq_factor", 0, NAN, &low));
    NRL_TRY(llama_read_number(r->rope, "high_freq_factor", 0, NAN, &high));
    NRL_TRY(original_positions(r, &original));
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

/* The pair (as a real number) that turns `turns` times within `original` positions:
 * d ln(original / (2 pi turns)) / (2 ln theta). */
static double yarn_pair(const rope_reader *r, double original, double turns)
{
    return (double)r->half * log(original / (turns * two_pi)) / log(r->theta);
}

static double yarn_magnitude(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

/* cos and sin are multiplied by attention_factor, which follows from factor where absent. */
static nrl_status yarn_scale(rope_reader *r, double factor)
{
    double mscale, all, given;
    NRL_TRY(llama_read_number(r->rope, "mscale", -INFINITY, 0, &mscale));
    NRL_TRY(llama_read_number(r->rope, "mscale_all_dim", -INFINITY, 0, &all));
    double derived = mscale != 0 && all != 0
                         ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all)
                         : yarn_magnitude(factor, 1);
    NRL_TRY(llama_read_number(r->rope, "attention_factor", 0, derived, &given));
    r->scale = given;
    return NRL_OK;
}

/* Peng et al. 2023: pairs that turn more than beta_fast times stay, those below beta_slow turns are
 * divided by `factor`, a linear ramp over the pair index between. */
static nrl_status yarn(rope_reader *r)
{
    double factor, fast, slow, original;
    NRL_TRY(original_positions(r, &original));
    NRL_TRY(llama_read_number(r->rope, "factor", 0, (double)r->sizes->max_positions / original,
                              &factor));
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

static const struct {
    const char *name;
    nrl_status (*apply)(rope_reader *);
} kinds[] = {{"default", keep}, {"linear", linear}, {"llama3", llama3}, {"yarn", yarn}};

static nrl_status apply(rope_reader *r)
{
    const char *type = nrl_node_string(nrl_node_find(r->rope, "type"), "default");
    type = nrl_node_string(nrl_node_find(r->rope, "rope_type"), type);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].name)) return kinds[i].apply(r);
    return nrl_fail(NRL_ERR_DATA,
                    "%s: rope type '%.60s' is not built; there are: default, linear, llama3, yarn",
                    nrl_node_place(r->config), type);
}

/* The map that says how positions are stretched, and theta wherever it stands. */
static nrl_status find_parameters(rope_reader *r)
{
    double theta;
    const nrl_node *scaling = nrl_node_find(r->config, "rope_scaling");
    r->rope = nrl_node_size(scaling) ? scaling : nrl_node_find(r->config, "rope_parameters");
    nrl_node_type kind = nrl_node_kind(r->rope);
    if (kind == NRL_NODE_NULL) r->rope = NULL;
    if (r->rope && kind != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "%s: the rope parameters are not a map",
                        nrl_node_place(r->config));
    NRL_TRY(llama_read_number(r->config, "rope_theta", 1, 10000, &theta));
    NRL_TRY(llama_read_number(r->rope, "rope_theta", 1, theta, &r->theta));
    double part;
    NRL_TRY(llama_read_number(r->config, "partial_rotary_factor", 0, 1, &part));
    NRL_TRY(llama_read_number(r->rope, "partial_rotary_factor", 0, part, &part));
    if (part != 1)
        return nrl_fail(NRL_ERR_DATA, "%s: partial_rotary_factor is %g, only 1 is built",
                        nrl_node_place(r->config), part);
    return NRL_OK;
}

nrl_status llama_rope_read(const nrl_node *config, const llama_config *sizes, nrl_rope *out)
{
    rope_reader r = {.config = config, .sizes = sizes, .half = sizes->head_dim / 2, .scale = 1};
    NRL_TRY(find_parameters(&r));
    r.freq = malloc((size_t)r.half * sizeof *r.freq);
    if (!r.freq) return nrl_fail(NRL_ERR_MEMORY, "out of memory for rotary frequencies");
    for (int64_t j = 0; j < r.half; j++)
        r.freq[j] = pow(r.theta, -(double)j / (double)r.half);
    *out = (nrl_rope){r.freq, r.half, 1}; /* the config owns it from here, also on errors */
    NRL_TRY(apply(&r));
    out->scale = r.scale;
    return NRL_OK;
}
