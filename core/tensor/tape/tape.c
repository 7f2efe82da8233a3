/*
 * tape.c - recording operations, and the functions that a backward function calls on its node.
 */
#include "tensor/tape/tape_node.h"
#include <string.h>

tape *tape_create(void)
{
    return mem_alloc(sizeof(tape));
}

/* ---- recording ---- */

static nrl_tape_node *node_new(nrl_ctx *ctx)
{
    nrl_tape_node *n = ctx->spare_nodes;
    if (n)
        ctx->spare_nodes = n->older;
    else
        n = arena_alloc(&ctx->memory, sizeof *n);
    n->recomputable = 0;
    n->recompute = NULL;
    n->made = NULL;
    return n;
}

bool tape_records(const nrl_ctx *ctx)
{
    return ctx->n_tapes && ctx->tapes[ctx->n_tapes - 1];
}

static bool any_has_grad(nrl_tensor *const *list)
{
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++)
        if (list[i] && list[i]->has_grad) return true;
    return false;
}

/* A saved tensor is recomputable only if its maker is on the same tape: then the maker's backward runs after this one.
 */
static void keep_saved(nrl_tape_node *n, int i, nrl_tensor *t)
{
    n->saved[i] = t;
    if (!t) return;
    bool recomputable = t->maker && t->maker->tape == n->tape;
    if (recomputable) {
        n->recomputable |= 1u << i;
        tensor_ref(t);
    } else {
        tensor_retain(t);
    }
}

nrl_status tape_push(nrl_ctx *ctx, const nrl_tape_record *r, bool trained)
{
    if (!tape_records(ctx) || (!trained && !any_has_grad(r->inputs))) return NRL_OK;
    tape *t = ctx->tapes[ctx->n_tapes - 1];
    nrl_tape_node *n = node_new(ctx);
    n->name = r->name;
    n->backward = r->backward;
    memcpy(n->inputs, r->inputs, sizeof n->inputs);
    memcpy(n->outputs, r->outputs, sizeof n->outputs);
    n->tape = t;
    n->attributes = r->attributes_size > sizeof n->small ? mem_alloc(r->attributes_size) : n->small;
    if (r->attributes_size) memcpy(n->attributes, r->attributes, r->attributes_size);
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++) {
        tensor_ref(n->inputs[i]);
        tensor_ref(n->outputs[i]);
        if (n->outputs[i]) n->outputs[i]->has_grad = true;
        keep_saved(n, i, r->saved[i]);
    }
    n->older = t->newest;
    t->newest = n;
    return NRL_OK;
}

void tape_can_remake(nrl_ctx *ctx, nrl_tensor *output, tape_remake recompute)
{
    nrl_tape_node *n = tape_records(ctx) ? ctx->tapes[ctx->n_tapes - 1]->newest : NULL;
    if (!n || n->outputs[0] != output) return; /* the operation was not recorded */
    n->recompute = recompute;
    output->maker = n;
}

nrl_status nrl_tape_push(nrl_ctx *ctx, const nrl_tape_record *record)
{
    nrl_tape_record whole = {0};
    if (record->size > sizeof whole)
        return nrl_fail(NRL_ERR_PLUGIN, "the tape record has %u bytes, this nrl knows %zu", record->size, sizeof whole);
    memcpy(&whole, record, record->size);
    if (!whole.backward) return nrl_fail(NRL_ERR_BUG, "the tape record has no backward");
    return tape_push(ctx, &whole, false);
}

/* ---- inside a backward function ---- */

const void *nrl_tape_attributes(const nrl_tape_node *node)
{
    return node->attributes;
}

static nrl_tensor *operand(nrl_tensor *const *list, int i)
{
    NRL_ASSERT(i, >=, 0);
    NRL_ASSERT(i, <, NRL_TAPE_MAX_OPERANDS);
    return list[i];
}

nrl_tensor *nrl_tape_saved(nrl_tape_node *node, int i)
{
    return operand(node->saved, i);
}

nrl_tensor *nrl_tape_input(nrl_tape_node *node, int i)
{
    return operand(node->inputs, i);
}

nrl_tensor *nrl_tape_grad(nrl_tape_node *node, int i)
{
    nrl_tensor *out = operand(node->outputs, i);
    return out ? out->grad : NULL;
}

bool nrl_tape_wants(nrl_tape_node *node, int i)
{
    nrl_tensor *in = operand(node->inputs, i);
    return in && in->has_grad;
}
