/*
 * betas.h - the option `betas` of Adam and its relatives.
 */
#ifndef OPTIMIZERS_BETAS_H
#define OPTIMIZERS_BETAS_H
#include <nrl/nrl.h>

/* Reads a list of two numbers in [0, 1); NULL leaves `betas` as it is. NRL_ERR_CONFIG. */
static inline nrl_status read_betas(const nrl_node *list, double betas[2])
{
    if (!list) return NRL_OK;
    if (nrl_node_kind(list) != NRL_NODE_LIST || nrl_node_size(list) != 2)
        return nrl_fail(NRL_ERR_CONFIG, "betas: expected a list of two numbers such as [0.9, 0.999]");
    for (size_t i = 0; i < 2; i++) {
        betas[i] = nrl_node_f64(nrl_node_at(list, i), -1);
        if (!(betas[i] >= 0 && betas[i] < 1))
            return nrl_fail(NRL_ERR_CONFIG, "betas: number %zu is not in [0, 1); expected for example [0.9, 0.999]",
                            i + 1);
    }
    return NRL_OK;
}

#endif
