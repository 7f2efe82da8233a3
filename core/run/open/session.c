/*
 * session.c - the parts of a session that have no file of their own, and its end.
 */
#include "run/open/session.h"
#include "config/tree.h"
#include <string.h>

nrl_status session_handle_signal(const session *se)
{
    if (!se->env.signal || !*se->env.signal) return NRL_OK;
    return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) before the first step", *se->env.signal,
                    strsignal(*se->env.signal));
}

const char *session_algorithm_path(const session *se, uint32_t i)
{
    const nrl_option *row = &se->algorithm->plugin.options[i];
    const char *path = NULL;
    if (row->type == NRL_TYPE_PATH && se->algorithm_options)
        memcpy(&path, (const char *)se->algorithm_options + row->offset, sizeof path);
    return path && *path ? path : NULL;
}

/* Opens what a model and an output directory need before a device. A run stops at the first mistake; `nrl check` looks
 * at all parts that do not need one that failed, and reports every mistake. */
static nrl_status open_inputs(session *se)
{
    static const struct {
        nrl_status (*open)(session *);
        bool is_needed; /* by the parts below, which are not opened if it fails */
    } parts[] = {{out_prepare, false},
                 {open_weights, false},
                 {open_text, true},
                 {open_train_data, false},
                 {open_eval_data, false}};
    config_problems problems = {0};
    nrl_status first = NRL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        NRL_TRY(session_handle_signal(se));
        nrl_status st = parts[i].open(se);
        if (st == NRL_OK) continue;
        if (!se->env.check_only) return st;
        if (first == NRL_OK) first = st;
        problems_take_error(&problems, st, NULL);
        if (parts[i].is_needed) break;
    }
    return problems_report_as(&problems, first, "mistakes");
}

/* The first rank of a node reads the data and writes the token cache, which the others use. */
nrl_status session_open_inputs(session *se)
{
    bool first = mesh_where(se->mesh)->local_rank == 0;
    nrl_status st = NRL_OK;
    if (first) st = open_inputs(se);
    if (st == NRL_OK) st = mesh_barrier(se->mesh, "data is there");
    if (st == NRL_OK && !first) st = open_inputs(se);
    return st;
}

/* A key that cannot be read is reported before anything is trained. */
nrl_status session_open_keys(session *se)
{
    const config_checkpoint *c = &se->config.checkpoint;
    sign_public_key *public_key = arena_alloc(&se->memory, sizeof *public_key);
    nrl_status st = NRL_OK;
    if (*c->public_key) {
        st = sign_read_public(c->public_key, public_key);
        se->public_key = public_key;
        if (st != NRL_OK) nrl_add_context("checkpoint.public_key");
    }
    if (st != NRL_OK || !*c->sign || !session_is_rank0(se) || se->env.no_output) return st;
    se->sign_key = arena_alloc(&se->memory, sizeof *se->sign_key);
    st = sign_read_secret(c->sign, se->sign_key);
    if (st != NRL_OK) nrl_add_context("checkpoint.sign");
    return st;
}

void session_close(session *se)
{
    for (size_t i = 0; i < se->n_evals; i++)
        close_data(&se->evals[i]);
    close_data(&se->train);
    if (se->stream) se->env.services->streams->close(se);
    close_data(&se->later);
    chat_template_close(se->chat);
    tokenizer_close(se->tokenizer);
    updates_close(&se->updates);
    if (se->model) model_destroy(se->model);
    /* Only instances that the plugin's create made: without create, self is the options. */
    const nrl_algorithm *a = se->algorithm_is_script ? NULL : se->algorithm;
    const nrl_optimizer *o = se->optimizer;
    if (a && a->create && a->destroy && se->algorithm_self) a->destroy(se->algorithm_self);
    if (o && o->create && o->destroy && se->optimizer_self) o->destroy(se->optimizer_self);
    if (se->mesh) mesh_close(se->mesh); /* the mesh uses a store and a collective, which are plugins */
    if (se->host) plugin_host_destroy(se->host);
    arena_free(&se->model_memory);
    arena_free(&se->memory);
}
