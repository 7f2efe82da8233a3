/*
 * nrl_rank.c - a rank of the gloo plugin, opened as the core does, among ranks of other programs:
 *     nrl_rank RANK WORLD STORE LIST [option=value...]
 * STORE is a folder (Gloo's FileStore), HOST:PORT of a TCPStore, file:FILE that will hold the port,
 * or serve:FILE: this rank holds the store and writes its port to FILE. Makes the calls of LIST,
 * checks each, prints what is wrong.
 */
#include "base/arena.h"
#include "config/config.h"
#include "support/store.h"
#include "ops.h"
#include "plugin/host.h"
#include <unistd.h>

#define TORCH_PREFIX "default_pg/0//cpu//0"
enum { WAIT_SECONDS = 30 };

typedef struct {
    const nrl_collective *table;
    void *self, *in, *out; /* in and out: the buffers of the current call */
    int rank, world;
    int wrong;
} rank_state;

typedef nrl_status (*starter)(void *self, const nrl_comm_args *a, nrl_request **request);

static uint32_t dtype_of(const op *o)
{
    for (uint32_t d = NRL_DTYPE_F32; d <= NRL_DTYPE_U8; d++)
        if (!strcmp(nrl_dtype_name((nrl_dtype)d), o->dtype)) return d;
    return NRL_DTYPE_NONE;
}

static uint32_t sum_of(const op *o)
{
    return !strcmp(o->reduce, "max")       ? NRL_REDUCE_OP_MAX
           : !strcmp(o->reduce, "min")     ? NRL_REDUCE_OP_MIN
           : !strcmp(o->reduce, "product") ? NRL_REDUCE_OP_PRODUCT
                                           : NRL_REDUCE_OP_SUM;
}

static nrl_status finish(rank_state *s, starter start, const nrl_comm_args *a)
{
    nrl_request *request;
    bool done;
    NRL_TRY(start(s->self, a, &request));
    nrl_status st = s->table->wait(s->self, request, WAIT_SECONDS, &done);
    if (st == NRL_OK && !done) return nrl_fail(NRL_ERR_PEER, "not done in %d s", WAIT_SECONDS);
    s->table->release(s->self, request);
    return st;
}

/* ---- calls ---- */

static nrl_status sums(rank_state *s, const op *o, nrl_comm_args a)
{
    op_fill(o, s->in, 0, o->count, s->rank);
    a.send = s->in;
    a.receive = s->out;
    if (op_is(o, "reduce")) {
        if (s->rank != o->peer) a.receive = NULL;
        NRL_TRY(finish(s, s->table->reduce, &a));
        if (s->rank == o->peer) s->wrong += op_expect_sum(o, s->rank, s->world, s->out, 0, o->count);
        return NRL_OK;
    }
    a.peer = 0;
    NRL_TRY(finish(s, s->table->all_reduce, &a));
    if (op_is(o, "rough"))
        op_print_digest(o, s->out);
    else
        s->wrong += op_expect_sum(o, s->rank, s->world, s->out, 0, o->count);
    return NRL_OK;
}

/* Equal chunks; with other programs it is one all_reduce (torch: reduce_scatter_tensor). */
static nrl_status chunks(rank_state *s, const op *o, nrl_comm_args a)
{
    op_fill(o, s->in, 0, o->count * s->world, s->rank);
    a.send = s->in;
    a.receive = s->out;
    a.peer = 0;
    NRL_TRY(finish(s, s->table->reduce_scatter, &a));
    s->wrong += op_expect_sum(o, s->rank, s->world, s->out, o->count * s->rank, o->count);
    return NRL_OK;
}

static nrl_status gathers(rank_state *s, const op *o, nrl_comm_args a)
{
    int64_t counts[16];
    long at = 0;
    bool even = !op_is(o, "all_gatherv"), mine = op_is(o, "gather") && s->rank != o->peer;
    for (int r = 0; r < s->world; r++)
        counts[r] = even ? o->count : op_share(o, r);
    op_fill(o, s->in, 0, counts[s->rank], s->rank);
    a.send = s->in;
    a.receive = mine ? NULL : s->out;
    a.counts = even ? NULL : counts;
    if (!op_is(o, "gather")) a.peer = 0;
    NRL_TRY(finish(s, op_is(o, "gather") ? s->table->gather : s->table->all_gather, &a));
    for (int r = 0; r < s->world && !mine; at += counts[r++])
        s->wrong += op_expect(o, s->rank, s->out, at, counts[r], r, 0);
    return NRL_OK;
}

static nrl_status broadcast(rank_state *s, const op *o, nrl_comm_args a)
{
    a.receive = s->out;
    if (s->rank == o->peer) op_fill(o, s->out, 0, o->count, s->rank);
    NRL_TRY(finish(s, s->table->broadcast, &a));
    s->wrong += op_expect(o, s->rank, s->out, 0, o->count, o->peer, 0);
    return NRL_OK;
}

static nrl_status scatter(rank_state *s, const op *o, nrl_comm_args a)
{
    op_fill(o, s->in, 0, o->count * s->world, o->peer);
    a.send = s->rank == o->peer ? s->in : NULL;
    a.receive = s->out;
    NRL_TRY(finish(s, s->table->scatter, &a));
    s->wrong += op_expect(o, s->rank, s->out, 0, o->count, o->peer, o->count * s->rank);
    return NRL_OK;
}

/* Uneven: rank r sends op_share(k) elements to rank k, those of k r to place it among its own. */
static nrl_status all_to_all(rank_state *s, const op *o, nrl_comm_args a)
{
    bool even = op_is(o, "all_to_all");
    int64_t out[16], in[16];
    long total = 0, at = 0;
    for (int r = 0; r < s->world; r++) {
        out[r] = even ? o->count : op_share(o, r);
        in[r] = even ? o->count : op_share(o, s->rank);
        op_fill(o, s->in, total, out[r], s->rank + r);
        total += out[r];
    }
    a.send = s->in;
    a.receive = s->out;
    a.peer = 0;
    if (!even) {
        a.counts = out;
        a.receive_counts = in;
    }
    NRL_TRY(finish(s, s->table->all_to_all, &a));
    for (int r = 0; r < s->world; at += in[r++])
        s->wrong += op_expect(o, s->rank, s->out, at, in[r], r + s->rank, 0);
    return NRL_OK;
}

/* Round the ring: to the next rank, from the one before; `peer` is the tag. */
static nrl_status message(rank_state *s, const op *o, nrl_comm_args a)
{
    nrl_request *sent;
    bool done;
    int before = (s->rank + s->world - 1) % s->world;
    op_fill(o, s->in, 0, o->count, s->rank);
    a.tag = (uint64_t)o->peer;
    a.peer = (s->rank + 1) % s->world;
    a.send = s->in;
    NRL_TRY(s->table->send(s->self, &a, &sent));
    a.send = NULL;
    a.receive = s->out;
    a.peer = before;
    NRL_TRY(finish(s, s->table->recv, &a));
    NRL_TRY(s->table->wait(s->self, sent, WAIT_SECONDS, &done));
    s->table->release(s->self, sent);
    s->wrong += op_expect(o, s->rank, s->out, 0, o->count, before, 0);
    return NRL_OK;
}

static nrl_status timed(rank_state *s, const op *o, nrl_comm_args a)
{
    double *seconds = mem_alloc((size_t)o->peer * sizeof *seconds);
    nrl_comm_args nothing = {.size = sizeof nothing};
    nrl_status st = NRL_OK;
    memset(s->in, 0, (size_t)o->count * op_width(o));
    a.send = a.receive = s->in;
    a.peer = 0;
    for (int i = 0; i < o->peer && st == NRL_OK; i++) {
        st = finish(s, s->table->barrier, &nothing);
        double start = op_clock();
        if (st == NRL_OK) st = finish(s, s->table->all_reduce, &a);
        seconds[i] = op_clock() - start;
    }
    if (st == NRL_OK) op_print_time(o, seconds);
    free(seconds);
    return st;
}

static const struct {
    const char *name;
    nrl_status (*run)(rank_state *s, const op *o, nrl_comm_args a);
} calls[] = {
    {"all_reduce", sums},
    {"rough", sums},
    {"reduce", sums},
    {"all_gather", gathers},
    {"all_gatherv", gathers},
    {"gather", gathers},
    {"broadcast", broadcast},
    {"scatter", scatter},
    {"all_to_all", all_to_all},
    {"message", message},
    {"all_to_allv", all_to_all},
    {"reduce_scatter", chunks},
    {"time", timed},
};

static nrl_status run_op(rank_state *s, const op *o)
{
    nrl_comm_args a = {.size = sizeof a, .dtype = dtype_of(o), .reduce = sum_of(o), .peer = o->peer, .count = o->count};
    nrl_status st = NRL_OK;
    if (op_is(o, "barrier")) {
        a = (nrl_comm_args){.size = sizeof a};
        return finish(s, s->table->barrier, &a);
    }
    if (a.dtype == NRL_DTYPE_NONE || o->peer < 0) return nrl_fail(NRL_ERR_CONFIG, "a line of the list");
    size_t most = (size_t)(o->count + 7L * s->world) * (size_t)s->world * op_width(o) + 8;
    if (op_is(o, "time")) most = (size_t)o->count * op_width(o) + 8;
    s->in = mem_alloc(most);
    s->out = mem_alloc(op_is(o, "time") ? 1 : most);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (op_is(o, calls[i].name)) st = calls[i].run(s, o, a);
    free(s->in);
    free(s->out);
    return st;
}

static nrl_status run_list(rank_state *s, const char *path)
{
    FILE *f = fopen(path, "r");
    nrl_status st = NRL_OK;
    op o;
    if (!f) return nrl_fail(NRL_ERR_IO, "%s cannot be read", path);
    while (st == NRL_OK && op_read(f, &o)) {
        st = run_op(s, &o);
        if (st != NRL_OK) nrl_add_context("%s %s %s %ld, peer %d", o.name, o.dtype, o.reduce, o.count, o.peer);
    }
    fclose(f);
    return st;
}

/* ---- opening ---- */

typedef struct {
    store_server *server;
    nrl_store *store, *prefixed;
} stores;

static nrl_status serve(stores *s, const char *file)
{
    NRL_TRY(test_store_serve(0, NULL, &s->server));
    char early[4096];
    snprintf(early, sizeof early, "%s.new", file);
    FILE *f = fopen(early, "w");
    if (!f) return nrl_fail(NRL_ERR_IO, "%s cannot be written", early);
    fprintf(f, "%d\n", (int)test_store_port(s->server));
    fclose(f);
    if (rename(early, file)) return nrl_fail(NRL_ERR_IO, "%s cannot be written", file);
    return test_store_connect(test_store_port(s->server), WAIT_SECONDS, &s->store);
}

static int port_in(const char *file)
{
    int port = 0;
    for (int i = 0; i < WAIT_SECONDS * 50 && port == 0; i++) {
        FILE *f = fopen(file, "r");
        if (f && fscanf(f, "%d", &port) != 1) port = 0;
        if (f) fclose(f);
        if (!port) usleep(20000);
    }
    return port;
}

static nrl_status open_store(stores *s, const char *where)
{
    if (*where == '/') return test_store_open(where, NULL, 20, &s->store);
    if (!strncmp(where, "serve:", 6))
        NRL_TRY(serve(s, where + 6));
    else if (!strncmp(where, "file:", 5))
        NRL_TRY(test_store_connect(port_in(where + 5), WAIT_SECONDS, &s->store));
    else if (strchr(where, ':'))
        NRL_TRY(test_store_open(where, NULL, WAIT_SECONDS, &s->store));
    else
        return nrl_fail(NRL_ERR_CONFIG, "store '%s'", where);
    int64_t came;
    NRL_TRY(nrl_store_add(s->store, "init/", 1, &came)); /* torch waits for all of them */
    return store_open_prefix(s->store, TORCH_PREFIX, NULL, NULL, &s->prefixed);
}

static nrl_status open_plugin(arena *a, plugin_host *host, int n_words, char **words, const plugin **p, void **options)
{
    config_problems problems = {0};
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    const config_component c = {.name = "gloo", .options = map};
    for (int i = 0; i < n_words; i++)
        config_override(a, &problems, map, words[i]);
    NRL_TRY(plugin_open(host, NRL_KIND_COLLECTIVE, "gloo", p));
    plugin_options(a, &problems, "collective", &c, NULL, *p, options);
    return problems_report(&problems);
}

static nrl_status run(rank_state *s, char **argv, int n_words, char **words)
{
    arena a = {0};
    stores st = {0};
    const plugin *p;
    void *options;
    plugin_host *host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    NRL_TRY(open_plugin(&a, host, n_words, words, &p, &options));
    NRL_TRY(open_store(&st, argv[3]));
    s->table = (const void *)p->table;
    NRL_TRY(s->table->open(options, st.prefixed ? st.prefixed : st.store, s->rank, s->world, WAIT_SECONDS, &s->self));
    nrl_status status = run_list(s, argv[4]);
    if (status != NRL_OK) s->table->abort(s->self);
    s->table->close(s->self);
    /* Others may still be at their last words with the store. */
    for (int i = 0; st.server && i < 100 && store_server_clients(st.server) > 1; i++)
        usleep(50000);
    store_close(st.prefixed);
    store_close(st.store);
    store_server_close(st.server);
    plugin_host_destroy(host);
    arena_free(&a);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    rank_state s = {.rank = atoi(argv[1]), .world = atoi(argv[2])};
    nrl_status st = run(&s, argv, argc - 5, argv + 5);
    if (st != NRL_OK) fprintf(stderr, "rank %d (nrl): %s\n", s.rank, nrl_error_text());
    return st != NRL_OK || s.wrong > 0;
}
