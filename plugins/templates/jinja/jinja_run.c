/*
 * jinja_run.c - runs statements: each writes to the innermost buffer or changes a scope. A loop's
 * body, a macro, and the blocks of set, call, filter, with and generation have scopes of their own;
 * an if does not.
 */
#include "jinja_parts.h"
#include <stdlib.h>
#include <string.h>

/* ---- output ---- */

static nrl_status put(jinja_vm *m, const jinja_value *v)
{
    NRL_TRY(vm_write(m, v, m->out));
    if (m->out->size <= m->limits.output) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "the template writes more than %zu MiB", m->limits.output >> 20);
}

/* The output of the body, as text. A break in it has no loop to leave. */
static nrl_status capture(jinja_vm *m, jinja_scope *s, const node *body, jinja_value *out)
{
    buffer b = {0}, *outer = m->out;
    m->out = &b;
    nrl_status st = vm_run(m, s, body);
    m->out = outer;
    *out = vm_take(m, &b);
    return st;
}

/* ---- assignments ---- */

static nrl_status assign_attribute(jinja_vm *m, jinja_scope *s, const node *target, jinja_value value)
{
    jinja_value of;
    NRL_TRY(vm_eval(m, s, target->a, &of));
    if (of.kind != JINJA_NAMESPACE)
        return JINJA_FAIL("only attributes of a namespace can be set, found %s", jinja_kind_name(&of));
    if (*target->value.text == '_') return JINJA_FAIL("names in a namespace must not begin with _");
    vm_map_set(m, of.map, target->value, value);
    return NRL_OK;
}

nrl_status vm_assign(jinja_vm *m, jinja_scope *s, const node *target, jinja_value value)
{
    jinja_value *items;
    size_t n;
    if (target->kind == NODE_NAME) {
        scope_set(m, s, target->symbol, value);
        return NRL_OK;
    }
    if (target->kind == NODE_ATTR) return assign_attribute(m, s, target, value);
    NRL_TRY(vm_items(m, &value, &items, &n));
    if (n != target->n) return JINJA_FAIL("expected %zu values, one for each name, found %zu", target->n, n);
    for (size_t i = 0; i < n; i++)
        NRL_TRY(vm_assign(m, s, target->list[i], items[i]));
    return NRL_OK;
}

static nrl_status run_set(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_value v;
    NRL_TRY(vm_eval(m, s, n->b, &v));
    return vm_assign(m, s, n->a, v);
}

static nrl_status run_set_block(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_value v;
    NRL_TRY(capture(m, scope_new(m, s), n->body, &v));
    NRL_TRY(vm_filter(m, s, n->b, v, &v));
    return vm_assign(m, s, n->a, v);
}

/* ---- loops ---- */

/* The items that pass the loop's own `if`. */
static nrl_status loop_items(jinja_vm *m, jinja_scope *s, const node *n, jinja_loop *loop)
{
    jinja_value of, keep, *items;
    size_t count, kept = 0;
    NRL_TRY(vm_eval(m, s, n->b, &of));
    NRL_TRY(vm_items(m, &of, &items, &count));
    loop->items = items;
    loop->n = count;
    if (!n->c) return NRL_OK;
    NRL_TRY(vm_room(m, count * sizeof *items));
    loop->items = vm_alloc(m, (count + 1) * sizeof *items);
    for (size_t i = 0; i < count; i++) {
        jinja_scope *own = scope_new(m, s);
        NRL_TRY(vm_assign(m, own, n->a, items[i]));
        NRL_TRY(vm_eval(m, own, n->c, &keep));
        if (jinja_truth(&keep)) loop->items[kept++] = items[i];
    }
    loop->n = kept;
    return NRL_OK;
}

static nrl_status run_rounds(jinja_vm *m, jinja_scope *s, const node *n, jinja_loop *loop)
{
    int32_t symbol = jinja_find_symbol(m->t, "loop");
    jinja_value self = {.kind = JINJA_LOOP, .loop = loop};
    for (loop->index = 0; loop->index < loop->n && m->flow != FLOW_BREAK; loop->index++) {
        jinja_scope *own = scope_new(m, s);
        m->flow = FLOW_ON;
        if (symbol >= 0) scope_set(m, own, symbol, self);
        NRL_TRY(vm_assign(m, own, n->a, loop->items[loop->index]));
        NRL_TRY(vm_run(m, own, n->body));
    }
    m->flow = FLOW_ON;
    return NRL_OK;
}

static nrl_status run_for(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_loop *loop = vm_alloc(m, sizeof *loop);
    NRL_TRY(loop_items(m, s, n, loop));
    loop->depth = 1;
    NRL_TRY(run_rounds(m, s, n, loop));
    return !loop->n && n->other ? vm_run(m, scope_new(m, s), n->other) : NRL_OK;
}

/* ---- macros ---- */

static nrl_status named_left(const jinja_args *args, const bool *used, jinja_vm *m, jinja_value *out)
{
    *out = vm_map(m);
    for (size_t i = 0; i < args->n_named; i++)
        if (!used[i]) vm_map_set(m, out->map, jinja_string(args->names[i], strlen(args->names[i])), args->named[i]);
    return NRL_OK;
}

static const jinja_value *find_named(const jinja_args *args, const char *name, bool *used)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (!strcmp(args->names[i], name)) {
            used[i] = true;
            return &args->named[i];
        }
    return NULL;
}

static nrl_status bind_param(jinja_vm *m, jinja_scope *own, const node *d, size_t i, const jinja_args *args, bool *used)
{
    const node *param = d->list[i];
    const jinja_value *named = find_named(args, param->value.text, used);
    jinja_value v = vm_undefined(m, "parameter '%.80s'", param->value.text);
    if (named && i < args->n) return JINJA_FAIL("argument '%.60s' twice", param->value.text);
    if (i < args->n)
        v = args->at[i];
    else if (named)
        v = *named;
    else if (param->a)
        NRL_TRY(vm_eval(m, own, param->a, &v));
    scope_set(m, own, param->symbol, v);
    return NRL_OK;
}

static void set_if_given(jinja_vm *m, jinja_scope *s, const char *name, jinja_value v)
{
    int32_t symbol = jinja_find_symbol(m->t, name);
    if (symbol >= 0) scope_set(m, s, symbol, v);
}

static nrl_status bind_rest(jinja_vm *m, jinja_scope *own, const node *d, const jinja_args *args, const bool *used)
{
    const char *name = d->symbol < 0 ? "caller" : d->value.text;
    size_t more = args->n > d->n ? args->n - d->n : 0;
    jinja_value left;
    NRL_TRY(named_left(args, used, m, &left));
    if (d->flag) {
        set_if_given(m, own, "varargs", vm_list(m, JINJA_TUPLE, more ? args->at + d->n : NULL, more));
        set_if_given(m, own, "kwargs", left);
        return NRL_OK;
    }
    if (more) return JINJA_FAIL("macro '%s': expected %zu arguments at most, found %zu", name, d->n, args->n);
    if (left.map->n) return JINJA_FAIL("macro '%s': no parameter is called '%.60s'", name, left.map->keys[0].text);
    return NRL_OK;
}

nrl_status vm_call_macro(jinja_vm *m, const jinja_macro *macro, const jinja_args *args, jinja_value *out)
{
    const node *d = macro->definition;
    jinja_args rest = *args;
    NRL_TRY(vm_enter(m));
    jinja_scope *own = scope_new(m, macro->scope);
    bool *used = vm_alloc(m, args->n_named + 1);
    const jinja_value *caller = find_named(args, "caller", used);
    for (size_t i = 0; i < d->n; i++)
        NRL_TRY(bind_param(m, own, d, i, args, used));
    NRL_TRY(bind_rest(m, own, d, &rest, used));
    set_if_given(m, own, "caller", caller ? *caller : vm_undefined(m, "'caller', which only a call block provides,"));
    flow_kind flow = m->flow;
    m->flow = FLOW_ON;
    NRL_TRY(capture(m, own, d->body, out));
    m->flow = flow;
    m->depth--;
    return NRL_OK;
}

static jinja_value macro_value(jinja_vm *m, jinja_scope *s, const node *definition)
{
    jinja_macro *macro = vm_alloc(m, sizeof *macro);
    *macro = (jinja_macro){.definition = definition, .scope = s};
    return (jinja_value){.kind = JINJA_MACRO, .macro = macro};
}

static nrl_status run_call_block(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_value callee, v;
    jinja_args args;
    NRL_TRY(vm_eval(m, s, n->a->a, &callee));
    NRL_TRY(vm_arguments(m, s, n->a, &args));
    const char **names = vm_alloc(m, (args.n_named + 1) * sizeof *names);
    jinja_value *named = vm_alloc(m, (args.n_named + 1) * sizeof *named);
    if (args.n_named) memcpy(names, args.names, args.n_named * sizeof *names);
    if (args.n_named) memcpy(named, args.named, args.n_named * sizeof *named);
    names[args.n_named] = "caller";
    named[args.n_named++] = macro_value(m, s, n->b);
    args.names = names;
    args.named = named;
    NRL_TRY(vm_call(m, &callee, &args, &v));
    return put(m, &v);
}

/* ---- other statements ---- */

static nrl_status run_if(jinja_vm *m, jinja_scope *s, const node *n)
{
    for (; n && n->kind == NODE_IF; n = n->other) {
        jinja_value is;
        NRL_TRY(vm_eval(m, s, n->a, &is));
        if (jinja_truth(&is)) return vm_run(m, s, n->body);
    }
    return n ? vm_run(m, s, n) : NRL_OK;
}

static nrl_status run_filter_block(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_value v;
    NRL_TRY(capture(m, scope_new(m, s), n->body, &v));
    NRL_TRY(vm_filter(m, s, n->a, v, &v));
    return put(m, &v);
}

static nrl_status run_with(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_scope *own = scope_new(m, s);
    for (size_t i = 0; i < n->n; i++) {
        jinja_value v;
        NRL_TRY(vm_eval(m, s, n->list[i]->b, &v));
        NRL_TRY(vm_assign(m, own, n->list[i]->a, v));
    }
    return vm_run(m, own, n->body);
}

static void add_mark(jinja_output *r, size_t begin, size_t end)
{
    if (r->n_marks == r->marks_room) {
        r->marks_room = r->marks_room ? r->marks_room * 2 : 8;
        r->marks = mem_realloc(r->marks, r->marks_room * sizeof *r->marks);
    }
    r->marks[r->n_marks++] = (jinja_span){begin, end};
}

static nrl_status run_generation(jinja_vm *m, jinja_scope *s, const node *n)
{
    bool placed = m->out == &m->result->text;
    size_t begin = m->out->size;
    NRL_TRY(vm_run(m, scope_new(m, s), n->body));
    if (placed && m->out->size > begin) add_mark(m->result, begin, m->out->size);
    m->result->lost_marks |= !placed;
    return NRL_OK;
}

static nrl_status run_print(jinja_vm *m, jinja_scope *s, const node *n)
{
    jinja_value v;
    NRL_TRY(vm_eval(m, s, n->a, &v));
    return put(m, &v);
}

static nrl_status run_statement(jinja_vm *m, jinja_scope *s, const node *n)
{
    switch (n->kind) {
    case NODE_TEXT:
        return put(m, &n->value);
    case NODE_PRINT:
        return run_print(m, s, n);
    case NODE_FOR:
        return run_for(m, s, n);
    case NODE_IF:
        return run_if(m, s, n);
    case NODE_SET:
        return run_set(m, s, n);
    case NODE_SET_BLOCK:
        return run_set_block(m, s, n);
    case NODE_MACRO:
        scope_set(m, s, n->symbol, macro_value(m, s, n));
        return NRL_OK;
    case NODE_CALL_BLOCK:
        return run_call_block(m, s, n);
    case NODE_FILTER_BLOCK:
        return run_filter_block(m, s, n);
    case NODE_WITH:
        return run_with(m, s, n);
    case NODE_GENERATION:
        return run_generation(m, s, n);
    case NODE_BREAK:
        m->flow = FLOW_BREAK;
        return NRL_OK;
    case NODE_CONTINUE:
        m->flow = FLOW_CONTINUE;
        return NRL_OK;
    default:
        return nrl_fail(NRL_ERR_BUG, "no statement: %d", (int)n->kind);
    }
}

nrl_status vm_run(jinja_vm *m, jinja_scope *s, const node *body)
{
    NRL_TRY(vm_enter(m));
    for (size_t i = 0; i < body->n && m->flow == FLOW_ON; i++) {
        nrl_status st = run_statement(m, s, body->list[i]);
        if (st != NRL_OK && !m->failed_line) m->failed_line = body->list[i]->line;
        NRL_TRY(st);
        NRL_TRY(vm_work(m, 1));
    }
    m->depth--;
    return NRL_OK;
}
