/*
 * test_parts.c - the parts of a profile: regions as rows and slices, lanes of a timeline, tensors by place, and clocks
 * that are compared through a store.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "api/region.h"
#include "base/clock.h"
#include "base/json.h"
#include "profiling/clock.h"
#include "profiling/internal.h"
#include "support/backend.h"
#include "support/local_ranks.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static device dev;
static nrl_ctx *ctx;
static arena memory_;

static void ok(nrl_status st)
{
    if (st) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

static void begin(unsigned what)
{
    if (!test_device_open(&dev)) skip();
    ok(ctx_create(&dev, &ctx));
    ctx_profile_begin(ctx, what, 6);
    ctx_scope_begin(ctx);
}

static void end(void)
{
    ctx_scope_end(ctx);
    ctx_destroy(ctx);
    device_close(&dev);
    arena_free(&memory_);
    nrl_region_begin("nobody listens");
    nrl_region_end();
}

static nrl_tensor *filled(int64_t n)
{
    nrl_tensor *x;
    ok(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &n, &x));
    ok(nrl_tensor_fill(ctx, x, 1));
    return x;
}

/* The slices of the timeline with this track and name. */
static const nrl_node *slice(const nrl_node *events, const char *track, const char *name, int nth)
{
    for (size_t i = 0; i < nrl_node_size(events); i++) {
        const nrl_node *e = nrl_node_at(events, i);
        if (strcmp(nrl_node_string(nrl_node_find(e, "cat"), ""), track)) continue;
        if (!strcmp(nrl_node_string(nrl_node_find(e, "name"), ""), name) && !nth--) return e;
    }
    return NULL;
}

static const nrl_node *events_of(trace *t)
{
    char *list = trace_text(t, 3, "a \"process\"", 0), *text = mem_printf("[%s]", list);
    nrl_node *events;
    ok(nrl_json_parse(&memory_, "a trace", text, strlen(text), &events));
    free(text);
    free(list);
    return events;
}

static double number(const nrl_node *e, const char *key)
{
    return nrl_node_f64(nrl_node_find(e, key), -1);
}

static bool contains(const nrl_node *outer, const nrl_node *inner)
{
    return number(outer, "tid") == number(inner, "tid") && number(outer, "ts") <= number(inner, "ts") &&
           number(inner, "ts") + number(inner, "dur") <= number(outer, "ts") + number(outer, "dur") + 1e-3;
}

/* ---- regions ---- */

static void one_step(void)
{
    nrl_region_begin("outer");
    ok(ctx_profile_step(ctx, true));
    ctx_phase_set(ctx, NRL_PHASE_FORWARD);
    ctx_profile_unit(ctx, "layers.0", NULL);
    nrl_region_begin("inner");
    filled(1000);
    nrl_region_begin("inner");
    nrl_region_end();
    nrl_region_end();
    nrl_region_begin("inner");
    ctx_phase_set(ctx, NRL_PHASE_BACKWARD);
    filled(1000);
    nrl_region_end();
    ok(ctx_profile_step(ctx, false));
    nrl_region_end();
}

static void regions_nest_and_count_what_is_inside(void **state)
{
    (void)state;
    begin(0);
    one_step();
    one_step();
    nrl_region_end(); /* of a region that is older than the profile */
    ok(ctx_profile_read(ctx));
    const profile *p = ctx->profile;
    assert_int_equal(p->n_regions, 3);
    const nrl_region_time *outer = &p->regions[0], *inner = &p->regions[1], *innermost = &p->regions[2];
    assert_string_equal(outer->name, "outer");
    assert_string_equal(inner->name, "inner");
    assert_int_equal(outer->parent, -1);
    assert_int_equal(inner->parent, 0);
    assert_int_equal(innermost->parent, 1);
    assert_int_equal(innermost->depth, 2);
    assert_int_equal(outer->calls, 2);
    assert_int_equal(inner->calls, 4);
    assert_int_equal(innermost->calls, 2);
    assert_true(outer->seconds >= inner->seconds && inner->seconds > innermost->seconds);
    assert_true(inner->busy > 0 && inner->busy <= inner->seconds && innermost->busy == 0);
    assert_true(outer->busy == inner->busy); /* all operations were inside both */
    end();
}

static void a_timeline_nests_regions_steps_and_phases(void **state)
{
    (void)state;
    begin(NRL_PROFILE_TRACE);
    one_step();
    one_step();
    ok(ctx_profile_read(ctx));
    const nrl_node *e = events_of(ctx->profile->trace);
    const nrl_node *outer = slice(e, "regions", "outer", 1), *step = slice(e, "steps", "step 8", 0);
    assert_non_null(outer);
    assert_non_null(step); /* the profile began after six steps */
    assert_null(slice(e, "steps", "step 9", 0));
    assert_true(contains(outer, slice(e, "regions", "inner", 3)));
    assert_non_null(slice(e, "phases", "backward", 1));
    assert_non_null(slice(e, "units", "layers.0", 1));
    const nrl_node *fill = slice(e, "operations", "fill", 3);
    assert_non_null(fill);
    assert_string_equal(nrl_node_string(nrl_node_find(nrl_node_find(fill, "args"), "shape"), ""), "1x1000x0");
    assert_true(number(step, "ts") >= number(outer, "ts"));
    assert_true(number(step, "pid") == 3);
    end();
}

static void *work(void *unused)
{
    (void)unused;
    nrl_region_begin("elsewhere");
    double now = clock_seconds();
    nrl_region_end();
    nrl_region_span("data", "a span", now, now + 1);
    return NULL;
}

static void other_threads_add_slices_but_no_rows(void **state)
{
    pthread_t thread;
    (void)state;
    begin(NRL_PROFILE_TRACE);
    assert_int_equal(pthread_create(&thread, NULL, work, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(ctx->profile->n_regions, 0);
    const nrl_node *e = events_of(ctx->profile->trace);
    assert_non_null(slice(e, "data", "a span", 0));
    bool found = false;
    for (size_t i = 0; i < nrl_node_size(e); i++)
        found |= !strcmp(nrl_node_string(nrl_node_find(nrl_node_at(e, i), "name"), ""), "elsewhere");
    assert_true(found);
    end();
}

/* Slices of one thread may only nest: what overlaps lies on another lane. */
static void slices_that_overlap_are_on_lanes_of_their_own(void **state)
{
    (void)state;
    trace *t = trace_create();
    trace_slice(t, "communication", "a", 0, 4, NULL);
    trace_slice(t, "communication", "b", 2, 6, NULL);
    trace_slice(t, "communication", "c", 2, 3, NULL);
    trace_slice(t, "communication", "d", 4, 5, NULL);
    const nrl_node *e = events_of(t);
    const double a = number(slice(e, "communication", "a", 0), "tid");
    assert_true(number(slice(e, "communication", "b", 0), "tid") == a + 1);
    assert_true(number(slice(e, "communication", "c", 0), "tid") != a + 2);
    assert_true(number(slice(e, "communication", "d", 0), "tid") == a);
    trace_destroy(t);
    arena_free(&memory_);
}

/* ---- tensors by place ---- */

static int64_t peak_of(const nrl_memory_site *rows, size_t n, const char *operation, nrl_phase phase)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].phase == phase && rows[i].operation && !strcmp(rows[i].operation, operation))
            bytes += rows[i].peak_bytes;
    return bytes;
}

static void the_peak_is_divided_among_the_places_that_made_it(void **state)
{
    nrl_tensor *kept, *y;
    const int64_t n = 4096;
    (void)state;
    if (!test_device_open(&dev)) skip();
    ok(ctx_create(&dev, &ctx));
    ok(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &n, true, &kept));
    ctx_profile_begin(ctx, NRL_PROFILE_MEMORY, 0);
    ok(ctx_profile_step(ctx, true));
    ctx_phase_set(ctx, NRL_PHASE_FORWARD);
    ctx_scope_begin(ctx);
    nrl_tensor *x = filled(n);
    ok(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 2.0, 0.0, &y));
    ctx_phase_set(ctx, NRL_PHASE_BACKWARD);
    ctx_scope_begin(ctx);
    filled(n); /* the peak: kept, x, y, this one */
    ctx_scope_end(ctx);
    filled(n / 2);
    ctx_scope_end(ctx);
    ctx_scope_begin(ctx);
    filled(n); /* below the peak */
    nrl_memory_site *rows;
    size_t n_rows;
    int64_t held, peak, sum = 0;
    memory_sites(ctx->profile->memory, &rows, &n_rows);
    memory_peak(ctx->profile->memory, &held, &peak);
    for (size_t i = 0; i < n_rows; i++)
        sum += rows[i].peak_bytes;
    ctx_memory use;
    ctx_memory_use(ctx, &use);
    assert_int_equal(held + sum, peak);
    assert_int_equal(peak_of(rows, n_rows, "unary", NRL_PHASE_FORWARD),
                     peak_of(rows, n_rows, "fill", NRL_PHASE_FORWARD));
    assert_int_equal(peak_of(rows, n_rows, "fill", NRL_PHASE_BACKWARD),
                     peak_of(rows, n_rows, "fill", NRL_PHASE_FORWARD));
    assert_true(peak_of(rows, n_rows, "unary", NRL_PHASE_FORWARD) >= n * 4);
    assert_true(held >= n * 4 && held < n * 8);
    free(rows);
    ctx_set_profiler(ctx, NULL, NULL);
    tensor_release(ctx, kept);
    end();
}

/* ---- clocks ---- */

enum { WORLD = 4 };
static double shift_of(int32_t rank)
{
    return 1000.0 * rank - 7;
}

static double shifted(void *rank)
{
    return clock_seconds() + shift_of(*(int32_t *)rank);
}

static nrl_status compare(nrl_mesh *mesh, int32_t rank, void *user)
{
    double offset, round_trip, want = shift_of(0) - shift_of(rank);
    (void)user;
    NRL_TRY(clock_compare(mesh_store(mesh), "clock", rank, WORLD, shifted, &rank, &offset, &round_trip));
    if (offset - want > round_trip / 2 + 1e-6 || want - offset > round_trip / 2 + 1e-6 || round_trip > 30)
        return nrl_fail(NRL_ERR_BUG, "rank %d: offset %.9f, expected %.9f within %.9f", (int)rank, offset, want,
                        round_trip / 2);
    return NRL_OK;
}

static void clocks_that_differ_are_compared_within_half_a_round_trip(void **state)
{
    (void)state;
    ok(local_ranks_run(WORLD, compare, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_nest_and_count_what_is_inside),
        cmocka_unit_test(a_timeline_nests_regions_steps_and_phases),
        cmocka_unit_test(other_threads_add_slices_but_no_rows),
        cmocka_unit_test(slices_that_overlap_are_on_lanes_of_their_own),
        cmocka_unit_test(the_peak_is_divided_among_the_places_that_made_it),
        cmocka_unit_test(clocks_that_differ_are_compared_within_half_a_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
