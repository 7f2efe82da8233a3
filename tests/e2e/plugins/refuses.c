/*
 * refuses.c - a plugin of the kind IS_<kind> whose create or open fails after it has set *self; its
 * destroy or close reports if the core uses that pointer as an instance.
 */
#include <nrl/nrl.h>
#include <stdio.h>

static nrl_status refuse(void **self)
{
    *self = self;
    return nrl_fail(NRL_ERR_CONFIG, "refused on purpose");
}

static void end(void *self)
{
    (void)self;
    fprintf(stderr, "an instance was ended that never began\n");
}

#define NAMED(K, T) NRL_PLUGIN_PLAIN(K, T, "refuses", "1.0", "fails to be created")

#if defined IS_algorithms || defined IS_optimizers
static nrl_status create(const void *options, void **self)
{
    (void)options;
    return refuse(self);
}
#endif

#ifdef IS_algorithms
static const char *const needs[] = {"logps", NULL};

static void weight(void *self, const nrl_batch *batch, double *weights)
{
    (void)batch;
    end(self);
    weights[0] = 1;
}

static nrl_status loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)ctx;
    (void)batch;
    (void)sums;
    end(self);
    return NRL_OK;
}

static const nrl_algorithm table = {
    NAMED(NRL_KIND_ALGORITHM, nrl_algorithm),
    .needs = needs,
    .n_terms = 1,
    .create = create,
    .destroy = end,
    .weight = weight,
    .loss = loss,
};
#endif

#ifdef IS_optimizers
static nrl_status update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step)
{
    (void)ctx;
    (void)slices;
    (void)n_slices;
    (void)step;
    end(self);
    return NRL_OK;
}

static const nrl_optimizer table = {
    NAMED(NRL_KIND_OPTIMIZER, nrl_optimizer),
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .create = create,
    .destroy = end,
    .update = update,
};
#endif

#ifdef IS_backends
static const nrl_ops ops = {.size = sizeof ops};

static nrl_status open_device(const void *options, int32_t index, void **self)
{
    (void)options;
    (void)index;
    return refuse(self);
}

static nrl_status info(void *self, nrl_device_info *fill)
{
    (void)self;
    (void)fill;
    return NRL_OK;
}

static nrl_status alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    (void)bytes;
    (void)out;
    return nrl_fail(NRL_ERR_BUG, "never opened");
}

static void free_memory(void *self, void *memory)
{
    (void)self;
    (void)memory;
}

static nrl_status copy(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes, uint32_t direction)
{
    (void)self;
    (void)stream;
    (void)to;
    (void)from;
    (void)bytes;
    (void)direction;
    return nrl_fail(NRL_ERR_BUG, "never opened");
}

static const nrl_backend table = {
    NAMED(NRL_KIND_BACKEND, nrl_backend),
    .ops = &ops,
    .open = open_device,
    .close = end,
    .info = info,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
};
#endif

#ifdef IS_collectives
static nrl_status join(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                       void **self)
{
    (void)options;
    (void)store;
    (void)rank;
    (void)world;
    (void)timeout_s;
    return refuse(self);
}

static nrl_status split(void *self, int32_t color, int32_t key, void **group)
{
    (void)color;
    (void)key;
    (void)group;
    end(self);
    return NRL_OK;
}

static nrl_status call(void *self, const nrl_comm_args *args, nrl_request **request)
{
    (void)args;
    (void)request;
    end(self);
    return NRL_OK;
}

static nrl_status wait(void *self, nrl_request *request, double timeout_s, bool *done)
{
    (void)request;
    (void)timeout_s;
    (void)done;
    end(self);
    return NRL_OK;
}

static void release(void *self, nrl_request *request)
{
    (void)request;
    end(self);
}

static int32_t failed_peer(void *self)
{
    end(self);
    return -1;
}

static void info(void *self, nrl_collective_info *fill)
{
    (void)fill;
    end(self);
}

static const nrl_collective table = {
    NAMED(NRL_KIND_COLLECTIVE, nrl_collective),
    .host_only = true,
    .open = join,
    .split = split,
    .close = end,
    .abort = end,
    .barrier = call,
    .broadcast = call,
    .all_reduce = call,
    .all_gather = call,
    .reduce_scatter = call,
    .wait = wait,
    .release = release,
    .failed_peer = failed_peer,
    .info = info,
};
#endif

#ifdef IS_loggers
static nrl_status open_log(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    return refuse(self);
}

static nrl_status write_log(void *self, const nrl_record *record)
{
    end(self);
    (void)record;
    return NRL_OK;
}

static const nrl_logger table = {
    NAMED(NRL_KIND_LOGGER, nrl_logger),
    .open = open_log,
    .write = write_log,
    .close = end,
};
#endif

#ifdef IS_models
static const char *const types[] = {"refuses", NULL};

static nrl_status create(const nrl_node *config, void **self)
{
    (void)config;
    return refuse(self);
}

static nrl_status layout(void *self, nrl_builder *builder)
{
    (void)builder;
    end(self);
    return NRL_OK;
}

static nrl_status forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    (void)ctx;
    (void)unit;
    (void)carry;
    end(self);
    return NRL_OK;
}

static const nrl_model table = {
    NAMED(NRL_KIND_MODEL, nrl_model),
    .model_types = types,
    .create = create,
    .destroy = end,
    .layout = layout,
    .forward = forward,
};
#endif

#ifdef IS_parallel
static nrl_status create(const void *options, nrl_mesh *mesh, void **self)
{
    (void)options;
    (void)mesh;
    return refuse(self);
}

static nrl_status plan(void *self, nrl_parallel_plan *fill)
{
    (void)fill;
    end(self);
    return NRL_OK;
}

static void unbind(void *self, nrl_ctx *ctx)
{
    (void)ctx;
    end(self);
}

static const nrl_mesh_axis axis = {
    .size = sizeof axis, .divides = NRL_DIVIDES_BATCH, .name = "data", .order = 300, .takes_rest = true};
static const nrl_parallel table = {
    NAMED(NRL_KIND_PARALLEL, nrl_parallel),
    .axis = &axis,
    .create = create,
    .destroy = end,
    .plan = plan,
    .unbind = unbind,
};
#endif

NRL_EXPORT(table)
