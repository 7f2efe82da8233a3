/*
 * tape.c - records operations, runs their backward from outputs to inputs, and has the functions that a backward
 * function calls on its node.
 *
 * Tensors saved by a node are released after its backward. Outputs that are cheap to recompute (norms, gates: one pass
 * over memory) are not kept for other nodes: they are recomputed once during the walk and live until the backward of
 * the node that made them. This saves a third of a decoder's activations.
 */
#include "tensor/tape/node.h"
#include "tensor/device/profile.h"
#include <stdlib.h>
#include <string.h>

tape *tape_create(void)
{
    return mem_alloc(sizeof(tape));
}

/* ---- recording ---- */

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

static nrl_tape_node *make_node(nrl_ctx *ctx, tape *t, const nrl_tape_record *r)
{
    nrl_tape_node *n = ctx->spare_nodes;
    if (n)
        ctx->spare_nodes = n->older;
    else
        n = arena_alloc(&ctx->memory, sizeof *n);
    n->recomputable = 0;
    n->recompute = NULL;
    n->made = NULL;
    n->work = NULL;
    n->collected.newest = NULL;
    n->reads_later = false;
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
        nrl_tensor *saved = n->saved[i] = r->saved[i];
        if (!saved) continue;
        /* It is recomputable only if its maker is on the same tape: then the maker's backward runs after this one. */
        if (saved->maker && saved->maker->tape == t) {
            n->recomputable |= 1u << i;
            tensor_ref(saved);
        } else {
            tensor_retain(saved);
        }
    }
    return n;
}

nrl_status tape_push(nrl_ctx *ctx, const nrl_tape_record *r, bool trained)
{
    if (!tape_records(ctx) || (!trained && !any_has_grad(r->inputs))) return NRL_OK;
    tape *t = ctx->tapes[ctx->n_tapes - 1];
    nrl_tape_node *n = make_node(ctx, t, r);
    n->older = t->newest;
    t->newest = n;
    return NRL_OK;
}

tape *tape_later(nrl_ctx *ctx, const nrl_tensor *x)
{
    if (ctx->settings.deferred) return ctx->settings.deferred;
    return x->collector ? &x->collector->collected : NULL;
}

/* At the end of the list, so that the walk runs nodes in the order in which they were deferred. */
void tape_defer(nrl_ctx *ctx, tape *later, const nrl_tape_record *r)
{
    nrl_tape_node **end = &later->newest;
    while (*end)
        end = &(*end)->older;
    *end = make_node(ctx, later, r);
    (*end)->older = NULL;
}

/* The node just pushed; NULL: the operation with this output was not recorded. */
static nrl_tape_node *maker_of(const nrl_ctx *ctx, const nrl_tensor *output)
{
    nrl_tape_node *n = tape_records(ctx) ? ctx->tapes[ctx->n_tapes - 1]->newest : NULL;
    return n && n->outputs[0] == output ? n : NULL;
}

void tape_can_remake(nrl_ctx *ctx, nrl_tensor *output, tape_remake recompute)
{
    nrl_tape_node *n = maker_of(ctx, output);
    if (!n) return;
    n->recompute = recompute;
    output->maker = n;
}

void tape_collect(nrl_ctx *ctx, nrl_tensor *output, nrl_status (*wait)(nrl_work **work, nrl_ctx *ctx))
{
    output->collector = maker_of(ctx, output);
    if (output->collector) output->collector->wait = wait;
}

void tape_reads_later(nrl_ctx *ctx, const nrl_tensor *output)
{
    nrl_tape_node *n = maker_of(ctx, output);
    if (n) n->reads_later = n->inputs[0]->collector != NULL;
}

void tape_join(nrl_ctx *ctx, nrl_tensor *const *outputs, int n)
{
    int64_t column = 0;
    for (int i = 0; i < n && maker_of(ctx, outputs[0]); i++) {
        outputs[i]->joint = outputs[n];
        outputs[i]->joint_column = column;
        column += outputs[i]->cols;
    }
}

nrl_work **tape_work(nrl_tape_node *node)
{
    return &node->work;
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

/* ---- gradients ---- */

static void set_grad(nrl_ctx *ctx, nrl_tensor *t, nrl_tensor *grad)
{
    if (grad) tensor_retain(grad);
    tensor_release(ctx, t->grad);
    t->grad = grad;
}

/* Replaces the gradient of t by a copy that can be added to in place. */
static nrl_status own_grad(nrl_ctx *ctx, nrl_tensor *t)
{
    if (tensor_is_unshared(t->grad)) return NRL_OK;
    nrl_tensor *mine;
    NRL_TRY(tensor_like(ctx, t, &mine));
    NRL_TRY(tensor_copy(ctx, t->grad, mine));
    set_grad(ctx, t, mine);
    return NRL_OK;
}

/* Makes a gradient contiguous, because views of gradients require it. */
static nrl_status dense(nrl_ctx *ctx, nrl_tensor **grad)
{
    nrl_tensor *from = *grad;
    if (tensor_is_contiguous(from)) return NRL_OK;
    NRL_TRY(tensor_like(ctx, from, grad));
    return tensor_copy(ctx, from, *grad);
}

static nrl_status give(nrl_ctx *ctx, nrl_tensor *t, nrl_tensor *grad)
{
    if (grad->dtype != t->dtype || !tensor_same_matrix(grad, t))
        return nrl_fail(NRL_ERR_BUG, "gradient %s of %s does not fit its tensor %s of %s", tensor_shape(grad).text,
                        nrl_dtype_name(grad->dtype), tensor_shape(t).text, nrl_dtype_name(t->dtype));
    if (!t->grad) {
        if (!t->joint) NRL_TRY(dense(ctx, &grad));
        set_grad(ctx, t, grad);
        return NRL_OK;
    }
    NRL_TRY(own_grad(ctx, t));
    return tensor_accumulate(ctx, grad, t->grad);
}

nrl_status nrl_tape_give(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor *grad)
{
    return nrl_tape_wants(node, i) ? give(ctx, node->inputs[i], grad) : NRL_OK;
}

/* The columns of t in the gradient of the joint tensor, which is allocated at the first call. */
static nrl_status joint_columns(nrl_ctx *ctx, const nrl_tensor *t, nrl_tensor **columns)
{
    if (!t->joint->grad) {
        nrl_tensor *all;
        NRL_TRY(tensor_like(ctx, t->joint, &all));
        set_grad(ctx, t->joint, all);
    }
    *columns = tensor_view(ctx, t->joint->grad, t->joint_column, t->n_dims, t->dims, t->joint->cols);
    return NRL_OK;
}

bool tape_grad_is_joint(const nrl_tape_node *node, int i)
{
    const nrl_tensor *in = node->inputs[i];
    return in->joint && !in->grad && !in->has_room;
}

nrl_status tape_grad_room(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad)
{
    nrl_tensor *in = node->inputs[i];
    if (!tape_grad_is_joint(node, i)) return tensor_like(ctx, in, grad);
    in->has_room = true;
    return joint_columns(ctx, in, grad);
}

nrl_status tape_joint_grad(nrl_ctx *ctx, nrl_tape_node *node, int n, nrl_tensor **grad)
{
    for (int i = 0; i < n; i++) {
        const nrl_tensor *y = node->outputs[i];
        nrl_tensor *columns;
        NRL_TRY(joint_columns(ctx, y, &columns));
        if (!y->grad)
            NRL_TRY(tensor_fill(ctx, columns, 0));
        else if (y->grad->data != columns->data)
            NRL_TRY(tensor_copy(ctx, y->grad, columns));
    }
    *grad = node->outputs[n]->grad;
    return NRL_OK;
}

nrl_status tape_grad_target(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad, bool *overwrite)
{
    nrl_tensor *in = node->inputs[i];
    *overwrite = !in->grad;
    if (*overwrite) return tensor_like(ctx, in, grad);
    NRL_TRY(own_grad(ctx, in));
    *grad = in->grad;
    return NRL_OK;
}

nrl_tensor *tape_take_grad(nrl_ctx *ctx, nrl_tape_node *node, int i)
{
    nrl_tensor *in = node->inputs[i], *grad = in->grad;
    if (!grad) return NULL;
    in->grad = NULL;
    ctx_own(ctx, grad); /* moves the input's reference to the scope */
    return grad;
}

bool tape_grad_is_unshared(nrl_tape_node *node, int i)
{
    return tensor_is_unshared(node->outputs[i]->grad);
}

/* ---- the walk ---- */

/* Whether the node has anything to do: a gradient, or no outputs, because it was deferred. */
static bool has_work(const nrl_tape_node *n)
{
    bool outputs = false;
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++) {
        outputs = outputs || n->outputs[i];
        if (n->outputs[i] && n->outputs[i]->grad) return true;
    }
    return !outputs;
}

/* Waits for the contents of what n recomputed. */
static nrl_status settle(nrl_ctx *ctx, nrl_tape_node *n)
{
    return n->work ? n->wait(&n->work, ctx) : NRL_OK;
}

/* Releases what a node saved and the gradients of its outputs, after its backward. */
static void drop_contents(nrl_ctx *ctx, nrl_tape_node *n)
{
    (void)settle(ctx, n); /* after an error; else its backward has waited */
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++) {
        if (n->recomputable >> i & 1)
            tensor_unref(ctx, n->saved[i]);
        else
            tensor_release(ctx, n->saved[i]);
        n->saved[i] = NULL;
        if (n->outputs[i]) set_grad(ctx, n->outputs[i], NULL);
    }
    n->recomputable = 0;
    tensor_release(ctx, n->made);
    n->made = NULL;
}

static nrl_status make_saved(nrl_ctx *ctx, nrl_tape_node *n);

/* Recomputes the contents of t; its maker keeps them until its own backward has run. */
static nrl_status recompute_saved(nrl_ctx *ctx, nrl_tensor *t)
{
    nrl_tape_node *maker = t->maker;
    NRL_TRY(make_saved(ctx, maker));
    NRL_TRY(pool_take(&ctx->pool, (size_t)t->numel * nrl_dtype_size(t->dtype), &t->block));
    if (ctx->profiler) ctx->profiler->memory(ctx, t->block, true);
    t->data = t->block->data;
    t->uses = 1;
    maker->made = t;
    return maker->recompute(ctx, maker, t);
}

/* Recomputes everything that n saved and did not keep; makers may themselves need recomputed tensors. */
static nrl_status make_saved(nrl_ctx *ctx, nrl_tape_node *n)
{
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++) {
        if (!(n->recomputable >> i & 1)) continue;
        if (!n->saved[i]->data) NRL_TRY(recompute_saved(ctx, n->saved[i]));
        if (i || !n->reads_later) NRL_TRY(settle(ctx, n->saved[i]->maker));
    }
    return NRL_OK;
}

static nrl_status walk(nrl_ctx *ctx, tape *t)
{
    for (nrl_tape_node *n = t->newest; n; n = n->older) {
        nrl_status st = NRL_OK;
        if (has_work(n)) {
            ctx_scope_begin(ctx);
            st = make_saved(ctx, n);
            if (!st) st = n->backward(ctx, n);
            ctx_scope_end(ctx);
        }
        drop_contents(ctx, n);
        if (st) {
            nrl_add_context("backward of %s", n->name);
            return st;
        }
    }
    return NRL_OK;
}

static void clear(nrl_ctx *ctx, tape *t);

nrl_status tape_run_collected(nrl_ctx *ctx, nrl_tape_node *node)
{
    NRL_TRY(settle(ctx, node));
    nrl_status st = walk(ctx, &node->collected);
    clear(ctx, &node->collected);
    return st;
}

/* Empties the tape and releases gradients that were not requested. */
static void clear(nrl_ctx *ctx, tape *t)
{
    while (t->newest) {
        nrl_tape_node *n = t->newest;
        t->newest = n->older;
        drop_contents(ctx, n);
        clear(ctx, &n->collected);
        for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++) {
            if (n->inputs[i]) set_grad(ctx, n->inputs[i], NULL);
            if (n->outputs[i] && n->outputs[i]->maker == n) n->outputs[i]->maker = NULL;
            if (n->outputs[i] && n->outputs[i]->collector == n) n->outputs[i]->collector = NULL;
            if (n->outputs[i]) n->outputs[i]->joint = NULL;
            tensor_unref(ctx, n->inputs[i]);
            tensor_unref(ctx, n->outputs[i]);
        }
        if (n->attributes != n->small) free(n->attributes);
        n->older = ctx->spare_nodes;
        ctx->spare_nodes = n;
    }
}

void tape_destroy(nrl_ctx *ctx, tape *t)
{
    if (!t) return;
    clear(ctx, t);
    free(t);
}

nrl_status tape_backward(nrl_ctx *ctx, tape *t, nrl_tensor *const *outputs, nrl_tensor *const *grads, int n_outputs,
                         nrl_tensor *const *inputs, nrl_tensor **input_grads, int n_inputs)
{
    nrl_status st = NRL_OK;
    ctx_tape_begin(ctx, NULL); /* operations inside a backward are not recorded */
    ctx_scope_begin(ctx);
    for (int i = 0; i < n_outputs && !st; i++)
        if (grads[i]) st = give(ctx, outputs[i], grads[i]);
    if (!st) st = walk(ctx, t);
    for (int i = 0; i < n_inputs; i++) {
        input_grads[i] = st ? NULL : inputs[i]->grad;
        if (!st) inputs[i]->grad = NULL;
    }
    for (int i = 0; i < n_outputs; i++)
        set_grad(ctx, outputs[i], NULL);
    clear(ctx, t);
    ctx_scope_end(ctx);
    ctx_tape_end(ctx);
    return st;
}
