/*
 * meter.c - a plugin of the kind IS_<kind> that reports metrics of its own: an optimizer with a context, a logger
 * without one. The optimizer's option `confused` uses the rows of the algorithm instead.
 */
#include <nrl/nrl.h>

#ifdef IS_optimizers
enum { NORM, SLICES };
static const nrl_metric metrics[] = {[NORM] = {"master_square_sum", "1", NRL_REDUCE_SUM, NRL_BETTER_NONE},
                                     [SLICES] = {"slices", "1", NRL_REDUCE_SUM, NRL_BETTER_NONE},
                                     {0}};

typedef struct {
    bool confused;
} options;

static nrl_status update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    const nrl_adamw adamw = {sizeof adamw, 0.9, 0.999, 1e-8, 0};
    const options *o = self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice *s = nrl_slice_at(slices, i, step);
        nrl_tensor *square, *sum;
        NRL_TRY(nrl_slice_adamw(ctx, s, &adamw, step));
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, s->master, 0, 0, &square));
        NRL_TRY(nrl_op_sum(ctx, square, &sum));
        if (o->confused) return nrl_metric_add(ctx, 0, sum, 1);
        NRL_TRY(nrl_metric_report(ctx, &metrics[NORM], sum, 1));
    }
    return nrl_metric_report_f64(&metrics[SLICES], (double)n, 1);
}

static const char *const states[] = {"exp_avg", "exp_avg_sq"};
static const nrl_option rows[] = {NRL_OPT_BOOL(options, confused, "false", "use the rows of the algorithm")};
static const nrl_optimizer table = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, options, rows, "meter", "1.0", "AdamW that reports metrics"),
    .plugin.metrics = metrics,
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .n_states = 2,
    .state_names = states,
    .update = update,
};
#endif

#ifdef IS_loggers
static const nrl_metric metrics[] = {{METER_ROW, "records", NRL_REDUCE_SUM, NRL_BETTER_NONE}, {0}};

static nrl_status open(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    *self = NULL;
    return NRL_OK;
}

static nrl_status write(void *self, const nrl_record *record)
{
    (void)self;
    return record->kind == NRL_RECORD_TRAIN ? nrl_metric_report_f64(metrics, 1, 1) : NRL_OK;
}

static void close(void *self)
{
    (void)self;
}

static const nrl_logger table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_LOGGER, nrl_logger, METER_NAME, "1.0", "reports a metric"),
    .plugin.metrics = metrics,
    .open = open,
    .write = write,
    .close = close,
};
#endif
NRL_EXPORT(table)
