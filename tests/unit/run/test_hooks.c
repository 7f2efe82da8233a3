/*
 * test_hooks.c - which code a run is calling, and the calls that are refused from it.
 */
#include "run/output/hooks.h"
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void calls_are_refused_by_where_they_come_from(void **state)
{
    static const char *const calls[] = {"evaluate", RUN_CALL_STEP, RUN_CALL_FINISH, RUN_CALL_SAVE};
    static const bool allowed[][4] = {
        [INSIDE_NOTHING] = {true, true, true, true},         [INSIDE_LOSS] = {false, false, false, false},
        [INSIDE_STEP_HOOK] = {true, false, false, true},     [INSIDE_EVAL_HOOK] = {true, false, false, true},
        [INSIDE_SAMPLES_HOOK] = {false, false, false, true}, [INSIDE_SAVE_HOOK] = {true, false, false, false}};
    (void)state;
    for (int inside = INSIDE_NOTHING; inside <= INSIDE_SAVE_HOOK; inside++)
        for (int i = 0; i < 4; i++) {
            const hooks h = {.inside = (run_inside)inside};
            nrl_status want = allowed[inside][i] ? NRL_OK : NRL_ERR_CONFIG;
            assert_int_equal(hooks_check_call(&h, calls[i]), want);
            if (want != NRL_OK) assert_non_null(strstr(nrl_error_text(), calls[i]));
        }
}

static nrl_status listen(void *user, nrl_run *run, const nrl_run_event *event)
{
    const hooks *h = user;
    assert_int_equal(h->inside, INSIDE_EVAL_HOOK);
    assert_int_equal(event->size, sizeof *event);
    assert_null(run); /* no run is handed out before it is open */
    return nrl_fail(NRL_ERR_CONFIG, "no");
}

static void a_hook_is_inside_while_it_is_called(void **state)
{
    hooks h = {.event = listen, .user = &h, .inside = INSIDE_STEP_HOOK};
    nrl_run_event e = {.kind = NRL_EVENT_EVAL};
    (void)state;
    assert_int_equal(hooks_emit(&h, INSIDE_EVAL_HOOK, &e), NRL_ERR_CONFIG); /* what it returned */
    assert_int_equal(h.inside, INSIDE_STEP_HOOK);
    h.event = NULL;
    assert_int_equal(hooks_emit(&h, INSIDE_EVAL_HOOK, &e), NRL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_refused_by_where_they_come_from),
        cmocka_unit_test(a_hook_is_inside_while_it_is_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
