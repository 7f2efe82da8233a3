/*
 * test_profile.c - the timeline of a profile: by the host's clock, by events of a fake device, and
 * by waiting if a device has no events; phases, shapes, and that nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "profiling/profile.h"
#include "support/backend.h"

/* ---- a device over the cpu's table, whose clock moves on by a second at each event ---- */

struct nrl_event {
    double seconds;
};

static struct {
    double seconds;
    int live, recorded, event_waits, stream_waits, fail_at;
} clock_;

static nrl_status fake_stream(void *self, nrl_stream **out)
{
    *out = self;
    return NRL_OK;
}

static void fake_stream_end(void *self, nrl_stream *stream)
{
    (void)self, (void)stream;
}

static nrl_status fake_stream_wait(void *self, nrl_stream *stream)
{
    (void)self, (void)stream;
    clock_.stream_waits++;
    return NRL_OK;
}

static nrl_status fake_record(void *self, nrl_stream *stream, nrl_event **out)
{
    (void)self, (void)stream;
    if (clock_.fail_at && ++clock_.recorded == clock_.fail_at) return nrl_fail(NRL_ERR_DEVICE, "no event");
    *out = malloc(sizeof **out);
    (*out)->seconds = clock_.seconds++;
    clock_.live++;
    return NRL_OK;
}

static nrl_status fake_wait(void *self, nrl_event *event)
{
    (void)self, (void)event;
    clock_.event_waits++;
    return NRL_OK;
}

static void fake_drop(void *self, nrl_event *event)
{
    (void)self;
    free(event);
    clock_.live--;
}

static nrl_status fake_seconds(void *self, nrl_event *from, nrl_event *to, double *seconds)
{
    (void)self;
    *seconds = to->seconds - from->seconds;
    return NRL_OK;
}

enum { HOST = 0, STREAMS, EVENTS };
static device dev;
static nrl_ctx *ctx;

static void ok(nrl_status st)
{
    if (st) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

static void begin(int kind)
{
    memset(&clock_, 0, sizeof clock_);
    if (!test_device_open(&dev)) skip();
    if (kind >= STREAMS) {
        dev.table.stream_create = fake_stream;
        dev.table.stream_destroy = fake_stream_end;
        dev.table.stream_wait = fake_stream_wait;
        dev.table.event_wait = fake_wait;
        dev.table.event_destroy = fake_drop;
    }
    if (kind == EVENTS) {
        dev.table.event_record_timed = fake_record;
        dev.table.event_seconds = fake_seconds;
    }
    ok(ctx_create(&dev, &ctx));
    ctx_profile(ctx, true);
    ctx_scope_begin(ctx);
}

static void end(void)
{
    ctx_scope_end(ctx);
    ctx_destroy(ctx);
    device_close(&dev);
    assert_int_equal(clock_.live, 0);
}

static void double_of(int64_t n)
{
    nrl_tensor *x, *y;
    ok(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &n, &x));
    ok(nrl_tensor_fill(ctx, x, 1));
    ok(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 2.0, 0.0, &y));
}

/* What one step of two phases did: two fills and two unary operations. */
static void a_step(void)
{
    ctx_profile_step(ctx, true);
    assert_int_equal(ctx_phase_set(ctx, NRL_PHASE_FORWARD), NRL_PHASE_HOST);
    double_of(100);
    assert_int_equal(ctx_phase_set(ctx, NRL_PHASE_BACKWARD), NRL_PHASE_FORWARD);
    double_of(200);
    ctx_profile_step(ctx, false);
    ok(ctx_profile_read(ctx));
}

static nrl_op_time row_of(unsigned by, const char *name, nrl_phase phase, int64_t cols)
{
    int n;
    nrl_op_time found = {0}, *rows = ctx_profile_rows(ctx, by, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].name, name) && rows[i].phase == phase && rows[i].dims[1] == cols) found = rows[i];
    free(rows);
    return found;
}

/* ---- tests ---- */

/* The marks of a step: begin, forward, 4 around its operations, backward, 4 more, the end. */
static void a_devices_events_say_how_long_everything_took(void **state)
{
    nrl_phase_times t;
    (void)state;
    begin(EVENTS);
    a_step();
    a_step();
    ctx_profile_phases(ctx, &t);
    assert_int_equal(t.steps, 2);
    assert_true(t.seconds[NRL_PHASE_HOST] == 2 && t.busy[NRL_PHASE_HOST] == 0);
    assert_true(t.seconds[NRL_PHASE_FORWARD] == 10 && t.busy[NRL_PHASE_FORWARD] == 4);
    assert_true(t.seconds[NRL_PHASE_BACKWARD] == 10 && t.busy[NRL_PHASE_BACKWARD] == 4);
    assert_true(t.seconds[NRL_PHASE_NONE] == 0);
    assert_int_equal(clock_.stream_waits, 0);
    assert_int_equal(clock_.event_waits, 2);
    nrl_op_time unary = row_of(0, "unary", NRL_PHASE_NONE, 0);
    assert_true(unary.calls == 4 && unary.seconds == 4 && unary.host_seconds < 30);
    assert_true(unary.bytes == 2 * 2 * 4 * 300);
    end();
}

static void phases_and_shapes_are_told_apart_where_asked_for(void **state)
{
    int n;
    (void)state;
    begin(EVENTS);
    a_step();
    free(ctx_profile_rows(ctx, 0, &n));
    assert_int_equal(n, 2);
    free(ctx_profile_rows(ctx, NRL_BY_PHASE, &n));
    assert_int_equal(n, 4);
    free(ctx_profile_rows(ctx, NRL_BY_SHAPE, &n));
    assert_int_equal(n, 4);
    assert_int_equal(row_of(NRL_BY_PHASE, "fill", NRL_PHASE_FORWARD, 0).calls, 1);
    assert_int_equal(row_of(NRL_BY_SHAPE, "fill", NRL_PHASE_NONE, 200).calls, 1);
    assert_int_equal(row_of(NRL_BY_PHASE | NRL_BY_SHAPE, "fill", NRL_PHASE_BACKWARD, 200).calls, 1);
    assert_int_equal(row_of(NRL_BY_PHASE | NRL_BY_SHAPE, "fill", NRL_PHASE_BACKWARD, 100).calls, 0);
    end();
}

static void phases_add_up_to_the_steps_on_the_hosts_clock(void **state)
{
    nrl_phase_times t;
    double sum = 0, host = 0;
    (void)state;
    begin(HOST);
    a_step();
    ctx_profile_phases(ctx, &t);
    for (int p = 1; p < NRL_PHASE_COUNT; p++) {
        assert_true(t.busy[p] <= t.seconds[p] && t.busy[p] >= 0);
        sum += t.seconds[p];
        host += t.host_seconds[p];
    }
    assert_true(sum > 0 && sum == host && t.seconds[NRL_PHASE_FORWARD] > 0);
    nrl_op_time unary = row_of(0, "unary", NRL_PHASE_NONE, 0);
    assert_true(unary.seconds > 0 && unary.seconds - unary.host_seconds < 1e-9);
    end();
}

static void a_device_without_timed_events_is_waited_for(void **state)
{
    (void)state;
    begin(STREAMS);
    a_step();
    assert_int_equal(clock_.stream_waits, 12);
    assert_true(row_of(0, "unary", NRL_PHASE_NONE, 0).seconds > 0);
    end();
}

static void outside_of_a_step_operations_count_and_phases_do_not(void **state)
{
    nrl_phase_times t;
    (void)state;
    begin(EVENTS);
    assert_int_equal(ctx_phase_set(ctx, NRL_PHASE_FORWARD), NRL_PHASE_NONE);
    double_of(7);
    ok(ctx_profile_read(ctx));
    ctx_profile_phases(ctx, &t);
    for (int p = 1; p < NRL_PHASE_COUNT; p++)
        assert_true(t.seconds[p] == 0);
    assert_int_equal(t.steps, 0);
    assert_true(row_of(0, "unary", NRL_PHASE_NONE, 0).seconds == 1);
    end();
}

/* More marks than are kept: they are read in between, and no second is lost. */
static void a_step_of_very_many_operations_keeps_its_time(void **state)
{
    enum { N = 40000 };
    nrl_phase_times t;
    int64_t one = 1;
    nrl_tensor *x;
    (void)state;
    begin(EVENTS);
    ok(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &one, &x));
    ctx_profile_step(ctx, true);
    for (int i = 0; i < N; i++)
        ok(nrl_tensor_fill(ctx, x, 1));
    ctx_profile_step(ctx, false);
    ok(ctx_profile_read(ctx));
    ctx_profile_phases(ctx, &t);
    assert_true(t.seconds[NRL_PHASE_HOST] == 2 * N + 1 && t.busy[NRL_PHASE_HOST] == N);
    assert_true(row_of(0, "fill", NRL_PHASE_NONE, 0).seconds == N);
    end();
}

static void more_shapes_than_are_kept_are_still_counted(void **state)
{
    enum { N = 9000 };
    nrl_tensor *x;
    int n;
    (void)state;
    begin(EVENTS);
    for (int64_t i = 1; i <= N; i++) {
        ctx_scope_begin(ctx);
        ok(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &i, &x));
        ok(nrl_tensor_fill(ctx, x, 1));
        ctx_scope_end(ctx);
    }
    ok(ctx_profile_read(ctx));
    free(ctx_profile_rows(ctx, NRL_BY_SHAPE, &n));
    assert_in_range(n, 8192, 8193);
    assert_int_equal(row_of(0, "fill", NRL_PHASE_NONE, 0).calls, N);
    end();
}

static void an_event_that_cannot_be_had_is_an_error(void **state)
{
    nrl_tensor *x;
    int64_t one = 1;
    (void)state;
    begin(EVENTS);
    ok(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &one, &x));
    clock_.fail_at = 2; /* the one behind the operation */
    assert_int_equal(nrl_tensor_fill(ctx, x, 1), NRL_ERR_DEVICE);
    clock_.fail_at = 1;
    clock_.recorded = 0;
    ctx_profile_step(ctx, true); /* returns nothing: told when marks are read */
    assert_int_equal(ctx_profile_read(ctx), NRL_ERR_DEVICE);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_devices_events_say_how_long_everything_took),
        cmocka_unit_test(phases_and_shapes_are_told_apart_where_asked_for),
        cmocka_unit_test(phases_add_up_to_the_steps_on_the_hosts_clock),
        cmocka_unit_test(a_device_without_timed_events_is_waited_for),
        cmocka_unit_test(outside_of_a_step_operations_count_and_phases_do_not),
        cmocka_unit_test(a_step_of_very_many_operations_keeps_its_time),
        cmocka_unit_test(more_shapes_than_are_kept_are_still_counted),
        cmocka_unit_test(an_event_that_cannot_be_had_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
