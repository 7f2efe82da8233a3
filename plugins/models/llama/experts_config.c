/*
 * experts_config.c - which layers have a mixture of experts, how many experts there are, and how they are chosen.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>

/* Every decoder_sparse_step-th layer has experts, except those of mlp_only_layers. */
static nrl_status find_dense_layers(const nrl_node *j, llama_config *c)
{
    const nrl_node *only = nrl_node_find(j, "mlp_only_layers");
    int64_t step;
    NRL_TRY(llama_read_int(j, "decoder_sparse_step", 1, INT32_MAX, 1, &step));
    for (int64_t i = 0; i < c->n_layers; i++)
        c->experts.dense[i] = (i + 1) % step != 0;
    for (size_t k = 0; k < nrl_node_size(only); k++) {
        int64_t i = nrl_node_int(nrl_node_at(only, k), -1);
        if (i < 0 || i >= c->n_layers)
            return nrl_fail(NRL_ERR_DATA, "%s: mlp_only_layers[%zu] is not a layer; expected 0 to %lld",
                            nrl_node_place(j), k, (long long)c->n_layers - 1);
        c->experts.dense[i] = true;
    }
    return NRL_OK;
}

/* The number of experts has two names: files on the hub use one, and transformers 5 writes the other. transformers adds
 * the balance loss only if output_router_logits is true, and so does this. The z-loss has the key that Switch models
 * have there; no model of these families has it by default. */
nrl_status llama_experts_read(const nrl_node *j, const llama_family *f, llama_config *c)
{
    llama_experts *e = &c->experts;
    const llama_expert_family *from = f->experts;
    double noise;
    if (!from) return NRL_OK;
    const char *n_key = llama_is_absent(nrl_node_find(j, "num_experts")) ? "num_local_experts" : "num_experts";
    NRL_TRY(llama_read_int(j, n_key, 1, LLAMA_MAX_EXPERTS, from->n, &e->n));
    NRL_TRY(llama_read_int(j, "num_experts_per_tok", 1, e->n, from->chosen < e->n ? from->chosen : e->n, &e->chosen));
    NRL_TRY(llama_read_int(j, from->inner_key, 1, INT32_MAX, from->inner, &e->inner));
    NRL_TRY(llama_read_number(j, "router_jitter_noise", -1, 0, &noise));
    if (noise != 0)
        return nrl_fail(NRL_ERR_DATA, "%s: router_jitter_noise is %g; only 0 is supported", nrl_node_place(j), noise);
    NRL_TRY(llama_read_number(j, "router_aux_loss_coef", -INFINITY, from->balance, &e->balance));
    if (!nrl_node_bool(nrl_node_find(j, "output_router_logits"), false)) e->balance = 0;
    NRL_TRY(llama_read_number(j, "router_z_loss_coef", -INFINITY, 0, &e->z));
    if (e->z < 0)
        return nrl_fail(NRL_ERR_DATA, "%s: 'router_z_loss_coef' is %g; expected 0 or more", nrl_node_place(j), e->z);
    e->normalizes = from->normalizes || nrl_node_bool(nrl_node_find(j, "norm_topk_prob"), false);
    e->biased = from->biased;
    if (e->biased) NRL_TRY(llama_read_number(j, "swiglu_limit", 0, 7, &e->limit));
    if (e->biased) NRL_TRY(llama_read_number(j, "swiglu_alpha", 0, 1.702, &e->slope));
    e->names = &from->names;
    e->dense = calloc((size_t)c->n_layers, sizeof *e->dense);
    if (!e->dense) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld layers", (long long)c->n_layers);
    return from->some_layers ? find_dense_layers(j, c) : NRL_OK;
}
