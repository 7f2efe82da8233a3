/*
 * library_dnn.c - attention by cuDNN: opens the library, chooses a plan, and runs it.
 *
 * cuDNN lists ways to compute a graph, best first. The first one is used that promises the same bits
 * each time, can be built, and fits into the allowed workspace.
 */
#include "library_dnn.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 9.8: device descriptors and 64-bit offsets; NVIDIA's frontend excludes 9.10.0 and 9.10.1. */
enum { OLDEST = 90800, WRONG_FROM = 91000, WRONG_TO = 91001, MOST_WAYS = 16, WORDS = 256 };

typedef struct {
    const dnn *library;
    dnn_problem problem;
    dnn_graph graph;
    cudnnBackendDescriptor_t plan;
} dnn_plan;

nrl_status dnn_check(const dnn *l, cudnnStatus_t code, const char *what)
{
    char words[WORDS] = "";
    if (code == CUDNN_STATUS_SUCCESS) return NRL_OK;
    l->GetLastErrorString(words, sizeof words);
    words[WORDS - 1] = 0;
    nrl_status st = code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? NRL_ERR_MEMORY : NRL_ERR_DEVICE;
    return nrl_fail(st, "cuDNN: %s failed: %s%s%s", what, l->GetErrorString(code), words[0] ? ": " : "", words);
}

/* ---- opening ---- */

static nrl_status find_calls(dnn *l, void *file)
{
#define DNN_FIND(name)                                                                                                 \
    *(void **)&l->name = dlsym(file, "cudnn" #name);                                                                   \
    if (!l->name) return nrl_fail(NRL_ERR_PLUGIN, "libcudnn has no cudnn" #name);
    DNN_CALLS(DNN_FIND)
    size_t v = l->GetVersion();
    if (v < OLDEST || (v >= WRONG_FROM && v <= WRONG_TO))
        return nrl_fail(NRL_ERR_PLUGIN, "found cuDNN %zu.%zu.%zu; expected 9.8 or later, except 9.10.0 and 9.10.1",
                        v / 10000, v / 100 % 100, v % 100);
    return NRL_OK;
}

/* The library stays open until the process ends. */
static nrl_status dnn_load(dnn **out)
{
    void *file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    *out = NULL;
    if (!file)
        return nrl_fail(NRL_ERR_PLUGIN, "cannot open libcudnn.so.9: %s\nhint: add its directory to LD_LIBRARY_PATH",
                        dlerror());
    dnn *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "no memory to open cuDNN");
    nrl_status st = find_calls(l, file);
    if (st)
        free(l);
    else
        *out = l;
    return st;
}

static nrl_status dnn_open(void **out)
{
    dnn *l;
    *out = NULL;
    NRL_TRY(dnn_load(&l));
    nrl_status st = dnn_check(l, l->Create(&l->handle), "opening");
    if (st)
        free(l);
    else
        *out = l;
    return st;
}

static void dnn_close(void *library)
{
    dnn *l = library;
    if (l->device) (void)l->BackendDestroyDescriptor(l->device);
    if (l->handle) (void)l->Destroy(l->handle);
    free(l);
}

/* ---- plans ---- */

static void dnn_plan_free(void *library, void *plan)
{
    dnn_plan *p = plan;
    (void)library;
    dnn_graph_drop(&p->graph);
    free(p);
}

/* Whether the way adds in an order that may differ from run to run. */
static bool may_differ(dnn_graph *g, cudnnBackendDescriptor_t way)
{
    const dnn *l = g->library;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;
    if (g->code ||
        l->BackendGetAttribute(way, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) ||
        l->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes))
        return true;
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    return false;
}

/* Tries to make a plan for one way; on failure *out is NULL and `why` has the reason. g owns the descriptors. */
static void try_way(dnn_graph *g, cudnnBackendDescriptor_t way, bool relaxed, size_t most,
                    cudnnBackendDescriptor_t *out, int64_t *bytes, char *why)
{
    const dnn *l = g->library;
    int64_t n = 0;
    *out = NULL;
    if (!relaxed && may_differ(g, way)) {
        snprintf(why, WORDS, "results would differ from run to run");
        return;
    }
    cudnnBackendDescriptor_t plan = dnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (l->device)
        dnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &l->device);
    else
        dnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->handle);
    dnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &way);
    if (g->code) return;
    cudnnStatus_t code = l->BackendFinalize(plan);
    if (!code)
        code = l->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, bytes);
    if (code)
        l->GetLastErrorString(why, WORDS);
    else if (*bytes < 0 || (uint64_t)*bytes > most)
        snprintf(why, WORDS, "needs %lld bytes of workspace, at most %zu are allowed", (long long)*bytes, most);
    else
        *out = plan;
    why[WORDS - 1] = 0;
}

static cudnnBackendDescriptor_t operation_graph(dnn_graph *g)
{
    const dnn *l = g->library;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (l->handle) dnn_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->handle);
    dnn_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_operations, g->operations);
    dnn_finish(g, d, "a graph of operations");
    return d;
}

static int64_t ways_of(dnn_graph *g, cudnnBackendDescriptor_t operations, cudnnBackendDescriptor_t *ways)
{
    const dnn *l = g->library;
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations);
    dnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (l->device) dnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &l->device);
    dnn_finish(g, d, "querying engines");
    for (int i = 0; i < MOST_WAYS; i++)
        ways[i] = dnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->code) return 0;
    g->code =
        l->BackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_WAYS, &n, ways);
    if (g->code) g->what = "querying engines";
    return n < MOST_WAYS ? n : MOST_WAYS;
}

/* An unsupported graph is not an error; running out of resources is. */
static bool is_refusal(cudnnStatus_t code)
{
    return CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED ||
           CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_BAD_PARAM;
}

static nrl_status choose(dnn_plan *p, size_t most, size_t *workspace_bytes)
{
    dnn_graph *g = &p->graph;
    cudnnBackendDescriptor_t ways[MOST_WAYS];
    char why[WORDS] = "no engine supports it";
    int64_t bytes = 0, n = ways_of(g, operation_graph(g), ways);
    for (int64_t i = 0; i < n && !p->plan && !g->code; i++)
        try_way(g, ways[i], p->problem.relaxed, most, &p->plan, &bytes, why);
    *workspace_bytes = (size_t)bytes;
    if (p->plan) return NRL_OK;
    if (g->code && !is_refusal(g->code)) return dnn_check(g->library, g->code, g->what);
    if (g->code) g->library->GetLastErrorString(why, sizeof why);
    (void)nrl_fail(NRL_ERR_PLUGIN, "%s%s%.*s", g->code ? g->what : "", g->code ? ": " : "", WORDS - 1, why);
    return NRL_OK;
}

static nrl_status dnn_plan_make(void *library, const dnn_problem *problem, size_t most, void **out,
                                size_t *workspace_bytes)
{
    *out = NULL;
    dnn_plan *p = calloc(1, sizeof *p);
    if (!p) return nrl_fail(NRL_ERR_MEMORY, "no memory for a plan of attention");
    p->library = p->graph.library = library;
    p->problem = *problem;
    if (problem->backward)
        dnn_backward_graph(&p->graph, problem);
    else
        dnn_forward_graph(&p->graph, problem);
    nrl_status st = choose(p, most, workspace_bytes);
    if (st || !p->plan)
        dnn_plan_free(library, p);
    else
        *out = p;
    return st;
}

/* ---- running ---- */

typedef struct {
    int64_t identities[32];
    void *places[32];
    int64_t n;
} binding;

static void bind(binding *b, int64_t identity, const void *place)
{
    b->identities[b->n] = identity;
    b->places[b->n++] = (void *)(uintptr_t)place;
}

static void bind_all(binding *b, const dnn_problem *p, const dnn_operands *at, const float *lowest, const float *one)
{
    for (int i = 0; i < DNN_OPERANDS; i++) {
        if (!p->strides[i]) continue;
        bind(b, DNN_ID_OPERANDS + i, at->operands[i]);
        if (p->ragged) bind(b, DNN_ID_OFFSETS + i, at->offsets[i]);
    }
    if (p->ragged) {
        bind(b, DNN_ID_LENGTHS_Q, at->lengths);
        bind(b, DNN_ID_LENGTHS_K, at->lengths);
    }
    bind(b, DNN_ID_STATS, at->stats);
    bind(b, DNN_ID_SCALE, &at->scale);
    bind(b, DNN_ID_LOWEST, lowest);
    if (!p->backward) return;
    bind(b, DNN_ID_SUMS, at->sums);
    if (p->relaxed) bind(b, DNN_ID_DQ_SUM, at->dq_sum);
    bind(b, DNN_ID_ONE, one);
}

static nrl_status dnn_run(void *library, void *plan, const dnn_operands *at, void *stream)
{
    const dnn *l = library;
    dnn_plan *p = plan;
    const float lowest = -INFINITY, one = 1;
    binding b = {.n = 0};
    dnn_graph g = {.library = l};
    bind_all(&b, &p->problem, at, &lowest, &one);
    cudnnBackendDescriptor_t pack = dnn_make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, b.n, b.identities);
    dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, b.n, b.places);
    dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &at->workspace);
    dnn_finish(&g, pack, "setting operands");
    cudnnStatus_t code = g.code ? g.code : l->SetStream(l->handle, (cudaStream_t)stream);
    if (!code) code = l->BackendExecute(l->handle, p->plan, pack);
    nrl_status st = dnn_check(l, code, g.code ? g.what : "attention");
    dnn_graph_drop(&g);
    return st;
}

static const dnn_library cudnn = {
    .open = dnn_open,
    .close = dnn_close,
    .plan = dnn_plan_make,
    .plan_free = dnn_plan_free,
    .run = dnn_run,
};

const dnn_library *dnn_library_table(void)
{
    return &cudnn;
}
