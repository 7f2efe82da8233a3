/*
 * The script host on fake runs: what a script sees, how failures and exit codes pass through Lua.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_run.h"
#include <stdio.h>
#include <unistd.h>

static const char script_path[] = "host_test.lua";
static int exit_code;

static const char *no_variable(const char *name)
{
    return strcmp(name, "NRL_FAKE") ? NULL : "from-env";
}

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

static void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

static nrl_status run_with(const char *text, const char *const *words, size_t n)
{
    nrl_environment surroundings = {.size = sizeof surroundings, .variable = no_variable};
    const nrl_frontend_job job = {
        .size = sizeof job, .script = script_path, .words = words, .n_words = n, .environment = &surroundings};
    write_text(script_path, text);
    nrl_status st = script_run(&job, &exit_code);
    remove(script_path);
    assert_int_equal(fake.opened, fake.closed);
    return st;
}

static nrl_status run_text(const char *text)
{
    return run_with(text, NULL, 0);
}

static void assert_ok(nrl_status st)
{
    if (st != NRL_OK) fail_msg("%s", nrl_error_text());
}

static void assert_error(nrl_status st, nrl_status expected, const char *text)
{
    assert_int_equal(st, expected);
    if (!strstr(nrl_error_text(), text)) fail_msg("'%s' lacks '%s'", nrl_error_text(), text);
}

#define HEAD "local nrl = require 'nrl'\n"
#define OPEN HEAD "local run = nrl.open{train = {steps = 3}}\n"

/* ---- running and failing ---- */

static void a_script_runs_and_its_runs_are_closed(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "assert(run.step == 0 and run.total_steps == 3 and run.out == 'runs/fake')\n"
                            "run:train() assert(run.step == 3)"));
    assert_int_equal(fake.opened, 1);
    assert_int_equal(exit_code, -1);
}

static void a_mistake_of_the_script_names_file_and_line(void **state)
{
    (void)state;
    assert_error(run_text("\nlocal x = nil + 1"), NRL_ERR_CONFIG, "host_test.lua:2: ");
    assert_error(run_text("\nlocal x = = 1"), NRL_ERR_CONFIG, "host_test.lua:2: ");
    assert_error(run_text("error{}"), NRL_ERR_CONFIG, "error object is a table value");
    assert_error(run_text("error()"), NRL_ERR_CONFIG, "error object is a nil value");
}

static void a_missing_script_is_a_usage_error(void **state)
{
    (void)state;
    nrl_environment surroundings = {.size = sizeof surroundings, .variable = no_variable};
    const nrl_frontend_job job = {.size = sizeof job, .script = "nowhere.lua", .environment = &surroundings};
    assert_error(script_run(&job, &exit_code), NRL_ERR_CONFIG, "nowhere.lua");
}

static void a_failure_of_the_core_keeps_its_status(void **state)
{
    (void)state;
    fake.step_fails = NRL_ERR_DIVERGED;
    assert_error(run_text(OPEN "run:train()"), NRL_ERR_DIVERGED, "host_test.lua:3: step 1 broke");
    assert_error(run_text(OPEN "for e in run:steps() do end"), NRL_ERR_DIVERGED, "host_test.lua:3: step 1");
}

static void a_failure_can_be_caught_and_raised_again(void **state)
{
    (void)state;
    fake.open_fails = NRL_ERR_MEMORY;
    assert_ok(run_text(HEAD "local ok, e = pcall(nrl.open, {})\n"
                            "assert(not ok and e:find 'cannot be opened', e)"));
    assert_error(run_text(HEAD "local ok, e = pcall(nrl.open, {}) error('while testing: ' .. e)"), NRL_ERR_MEMORY,
                 "while testing: ");
    assert_error(run_text(HEAD "pcall(nrl.open, {}) error 'another'"), NRL_ERR_CONFIG, "another");
}

static void os_exit_ends_the_script_with_its_code(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "os.exit(nrl.exit.diverged)"));
    assert_int_equal(exit_code, 3);
    assert_ok(run_text(OPEN "run:on('step', function() os.exit(75) end) run:train() error 'not reached'"));
    assert_int_equal(exit_code, 75);
    assert_ok(run_text("os.exit(false)"));
    assert_int_equal(exit_code, 1);
    assert_error(run_text("os.exit(256)"), NRL_ERR_CONFIG, "0 to 255");
}

static void a_signal_ends_a_script_that_no_run_would_stop(void **state)
{
    (void)state;
    volatile int number = 15;
    nrl_environment surroundings = {.size = sizeof surroundings, .variable = no_variable, .signal = &number};
    const nrl_frontend_job job = {.size = sizeof job, .script = script_path, .environment = &surroundings};
    write_text(script_path, "while true do end");
    assert_error(script_run(&job, &exit_code), NRL_ERR_STOPPED, "stopped by signal 15");
    write_text(script_path, OPEN "for i = 1, 100000 do end run:train() while true do end");
    assert_error(script_run(&job, &exit_code), NRL_ERR_STOPPED, "stopped by signal 15");
    assert_int_equal(fake.saves, 1);
    remove(script_path);
}

/* ---- hooks ---- */

static void hooks_see_every_value_by_name(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "local seen = {}\n"
                            "run:on('step', function(e, r) assert(r == run)\n"
                            "  seen[#seen + 1] = e.step .. ':' .. e.loss .. ':' .. e['rewards/chosen'] end)\n"
                            "run:on('step', function() seen[#seen + 1] = 'b' end)\n"
                            "run:on('eval', function(e) seen[#seen + 1] = e.eval_loss end)\n"
                            "run:on('save', function(e) seen[#seen + 1] = e.path end)\n"
                            "local last = run:train() assert(last.step == 3 and last.lr == 1e-3 and run.lr == 1e-3)\n"
                            "assert(run:evaluate().loss == 0.25)\n"
                            "local all = table.concat(seen, ' ')\n"
                            "assert(all == '1:1.0:0.5 b 2:0.5:0.5 b 3:' .. 1/3 .. ':0.5 b out/checkpoints/step-1 "
                            "0.25', all)"));
}

static void an_error_in_a_hook_stops_the_run_with_its_line(void **state)
{
    (void)state;
    assert_error(run_text(OPEN "run:on('step', function(e)\n"
                               "  if e.step == 2 then error 'too far' end end)\n"
                               "run:train()"),
                 NRL_ERR_CONFIG, "host_test.lua:4: too far");
    assert_int_equal(fake.saves, 0);
    assert_int_equal(fake.abandoned, 1); /* the other ranks would hear of it */
    assert_null(strstr(nrl_error_text(), "host_test.lua:5: host_test.lua:4"));
}

static void a_hook_in_a_coroutine_works(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "local n = 0 run:on('step', function() n = n + 1 end)\n"
                            "assert(coroutine.wrap(function() run:train() return 7 end)() == 7)\n"
                            "assert(n == 3)"));
}

static void hooks_may_stop_set_the_rate_and_sample_but_not_train(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "run:on('step', function(e) run:set_lr(0.5) run.lr = 0.25\n"
                            "  run:sample{prompts = 'x'} run:evaluate() run:stop 'enough' end)\n"
                            "run:train() assert(run.step == 1)"));
    assert_string_equal(fake.stop_reason, "enough");
    assert_true(fake.lr == 0.25);
    assert_error(run_text(OPEN "run:on('step', function() run:train() end) run:train()"), NRL_ERR_CONFIG,
                 "cannot call run:train from a hook");
    assert_error(run_text(OPEN "run:on('step', function() run:close() end) run:train()"), NRL_ERR_CONFIG,
                 "cannot call run:close from a hook");
    assert_error(run_text(OPEN "run:on('stop', print)"), NRL_ERR_CONFIG, "unknown event 'stop'");
}

static void steps_end_with_the_final_save(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "local n = 0 for e in run:steps() do n = n + 1 assert(e.step == n) end\n"
                            "assert(n == 3)"));
    assert_int_equal(fake.finishes, 1);
    assert_int_equal(fake.saves, 1);
}

static void a_closed_run_says_so(void **state)
{
    (void)state;
    assert_error(run_text(OPEN "run:close() run:close() run:train()"), NRL_ERR_CONFIG, "this run is closed");
    assert_ok(run_text(HEAD "for i = 1, 3 do local run <close> = nrl.open{} run:train() end"));
    assert_error(run_text(OPEN "return run.loss"), NRL_ERR_CONFIG, "no field or method 'loss'");
    assert_error(run_text(OPEN "run.step = 3"), NRL_ERR_CONFIG, "only run.lr and run.state");
}

/* ---- state ---- */

static void the_state_table_reaches_the_core_before_a_save(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "run.state.best = 1.5\n"
                            "run:on('step', function(e) run.state.step = e.step end)\n"
                            "run:on('save', function(e) assert(run.state.step == 3) end)\n"
                            "run:train()"));
    assert_string_equal(fake.state, "{\"best\": 1.5, \"step\": 3}");
}

static void a_resumed_state_comes_back(void **state)
{
    (void)state;
    fake.start_state = "{\"list\":[1,2],\"best\":0.5}";
    assert_ok(run_text(OPEN "assert(run.state.best == 0.5 and #run.state.list == 2) run.state = {} run:save()"));
    assert_string_equal(fake.state, "{}");
    assert_error(run_text(OPEN "run.state.f = print run:save()"), NRL_ERR_CONFIG, "f: expected a number");
}

/* ---- configs ---- */

static void a_table_becomes_the_tree_that_yaml_gives(void **state)
{
    (void)state;
    assert_ok(run_text(HEAD "nrl.open{z = 1, a = 1.0, b = {1, 'x', true}, e = {}, l = nrl.list{}, n = nrl.null}"));
    assert_string_equal(fake.config, "{\"a\": 1.0, \"b\": [1, \"x\", true], \"e\": {}, \"l\": [], "
                                     "\"n\": null, \"z\": 1}");
}

static void unchanged_values_of_a_file_keep_their_place(void **state)
{
    (void)state;
    write_text("host_test.yaml", "train:\n  steps: 2\n  seed: 7\noptimizer: {lr: 5e-6}\nloggers: []\nout: null\n");
    assert_ok(run_text(HEAD "local cfg = nrl.config 'host_test.yaml'\n"
                            "assert(cfg.train.steps == 2 and cfg.optimizer.lr == 5e-6 and cfg.out == nil)\n"
                            "cfg.train.seed = 8 cfg.new = 'x' nrl.open(cfg)"));
    assert_string_equal(fake.config, "{\"loggers\": [], \"new\": \"x\", \"optimizer\": {\"lr\": 5e-06}, "
                                     "\"train\": {\"seed\": 8, \"steps\": 2}}");
    assert_non_null(strstr(fake.places, "steps=host_test.yaml:2:3 "));
    assert_non_null(strstr(fake.places, "lr=host_test.yaml:4:13 "));
    assert_non_null(strstr(fake.places, "seed=host_test.lua "));
    assert_non_null(strstr(fake.places, "new=host_test.lua "));
    remove("host_test.yaml");
}

static void what_no_config_can_hold_is_refused_with_its_path(void **state)
{
    (void)state;
    assert_error(run_text(HEAD "nrl.open{a = {b = print}}"), NRL_ERR_CONFIG, "a.b: expected a number");
    assert_error(run_text(HEAD "nrl.open{a = {1, nil, 3}}"), NRL_ERR_CONFIG, "a: a list without item 2");
    assert_error(run_text(HEAD "nrl.open{a = {1, x = 2}}"), NRL_ERR_CONFIG, "a: a table with both");
    assert_error(run_text(HEAD "local t = {} t.t = t nrl.open(t)"), NRL_ERR_CONFIG, "nested tables");
    assert_error(run_text(HEAD "nrl.open{[1 << 40] = 2}"), NRL_ERR_CONFIG, "config: a list without item 1");
    assert_error(run_text(HEAD "nrl.open(3)"), NRL_ERR_CONFIG, "table expected");
}

static void assignments_of_the_command_line_come_last(void **state)
{
    (void)state;
    const char *words[] = {"train.steps=5", "input.txt", "out=${env:NRL_FAKE}", "second"};
    assert_ok(run_with(HEAD "assert(nrl.args['train.steps'] == 5 and #arg == 2 and arg[1] == 'input.txt')\n"
                            "assert(arg[0] == 'host_test.lua')\n"
                            "local run = nrl.open{train = {steps = 3, seed = 1}} assert(run.total_steps == 5)",
                       words, 4));
    assert_string_equal(fake.config, "{\"train\": {\"seed\": 1, \"steps\": 5}, \"out\": \"from-env\"}");
    const char *out[] = {"out=elsewhere"};
    assert_ok(run_with(HEAD "nrl.open({}, {quiet = true, out = 'here'})", out, 1));
    assert_string_equal(fake.config, "{\"out\": \"here\"}");
    const char *model[] = {"model.path=elsewhere"};
    assert_ok(run_with(HEAD "nrl.open({model = {config = 'x'}}, {model = 'here'})", model, 1));
    assert_string_equal(fake.config, "{\"model\": {\"path\": \"here\"}}");
    assert_error(run_text(HEAD "nrl.open({}, {quit = true})"), NRL_ERR_CONFIG, "did you mean 'quiet'?");
    const char *bad[] = {"=3"};
    assert_error(run_with(HEAD "nrl.open{}", bad, 1), NRL_ERR_CONFIG, "key=value");
}

/* ---- the rest of the module ---- */

static void sampling_checks_its_arguments(void **state)
{
    (void)state;
    assert_ok(run_text(OPEN "local t = run:sample{prompts = {'a', 'b'}, max_tokens = 9, temperature = 0.5,\n"
                            "  top_p = 0.9, seed = 4, chat = true}\n"
                            "assert(#t == 2 and t[1] == 'a!' and t[2] == 'b!')\n"
                            "assert(#run:sample{prompts = {}} == 0)"));
    assert_int_equal(fake.sample.max_tokens, 9);
    assert_int_equal(fake.sample.seed, 4);
    assert_true(fake.sample.chat && fake.sample.top_p == 0.9 && fake.sample.temperature == 0.5);
    assert_error(run_text(OPEN "run:sample{prompt = {'a'}}"), NRL_ERR_CONFIG, "did you mean 'prompts'?");
    assert_error(run_text(OPEN "run:sample{prompts = {3}}"), NRL_ERR_CONFIG, "prompts[1]: expected text");
    assert_error(run_text(OPEN "run:sample{prompts = 'a', max_tokens = 'b'}"), NRL_ERR_CONFIG,
                 "max_tokens: expected a whole number");
    assert_error(run_text(OPEN "run:sample{prompts = 'a', top_p = 2}"), NRL_ERR_CONFIG, "top_p");
    assert_error(run_text(OPEN "run:sample{prompts = 'a', n = 1 << 61}"), NRL_ERR_CONFIG, "n: expected 1 to");
}

static void json_and_jsonl_round_trip(void **state)
{
    (void)state;
    assert_ok(run_text(HEAD "local row = nrl.json.decode "
                            "[[{\"a\":[1,2.5,null],\"b\":\"\\u0000x\",\"e\":[],\"m\":{}}]]\n"
                            "assert(row.a[3] == nrl.null and row.b == '\\0x' and math.type(row.a[1]) == 'integer')\n"
                            "local text = nrl.json.encode(row)\n"
                            "assert(text == [[{\"a\": [1, 2.5, null], \"b\": \"\\u0000x\", \"e\": [], \"m\": {}}]], "
                            "text)\n"
                            "nrl.write_jsonl('host_test_dir/deep/x.jsonl', {row, {k = 'v'}})\n"
                            "local rows = nrl.read_jsonl 'host_test_dir/deep/x.jsonl'\n"
                            "assert(#rows == 2 and rows[2].k == 'v' and nrl.json.encode(rows[1]) == text)"));
    write_text("host_test_dir/bad.jsonl", "{\"a\":1}\n\n{oops}\n");
    assert_error(run_text(HEAD "nrl.read_jsonl 'host_test_dir/bad.jsonl'"), NRL_ERR_DATA, "bad.jsonl:3");
    static const char at_the_start[] = "{\"a\":1}\n\0\n{\"a\":2}\n", behind_a_row[] = "{\"a\":1}\n{\"a\":2}\0\n";
    write_bytes("host_test_dir/bad.jsonl", at_the_start, sizeof at_the_start - 1);
    assert_error(run_text(HEAD "nrl.read_jsonl 'host_test_dir/bad.jsonl'"), NRL_ERR_DATA, "bad.jsonl:2");
    write_bytes("host_test_dir/bad.jsonl", behind_a_row, sizeof behind_a_row - 1);
    assert_error(run_text(HEAD "nrl.read_jsonl 'host_test_dir/bad.jsonl'"), NRL_ERR_DATA, "bad.jsonl:2");
    assert_error(run_text(HEAD "nrl.read_jsonl 'host_test_dir/none.jsonl'"), NRL_ERR_IO, "none.jsonl");
    assert_error(run_text(HEAD "nrl.write_jsonl('/dev/full', {{a = 1}})"), NRL_ERR_FULL, "/dev/full");
    remove("host_test_dir/deep/x.jsonl");
    remove("host_test_dir/bad.jsonl");
    rmdir("host_test_dir/deep");
    rmdir("host_test_dir");
}

static void rows_that_cannot_be_written_leave_the_file_alone(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{prompt = 'a', completion = 'b'}", "expected a list of rows without gaps, found a table with the field '"},
        {"{{a = 1}, x = 2}", "found a table with the field 'x'"},
        {"{[0] = {a = 1}, {a = 2}}", "found a table with the field '0'"},
        {"{{a = 1}, [7] = {a = 2}}", "found a table with the field '7'"},
        {"{{a = 1}, {a = print}}", "a: expected a number"},
        {"{{a = 1}, nil, {a = 2}}", "row 2: expected a number"},
    };
    write_text("host_test_kept.jsonl", "{\"kept\":1}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char script[256];
        snprintf(script, sizeof script, HEAD "nrl.write_jsonl('host_test_kept.jsonl', %s)", rows[i][0]);
        assert_error(run_text(script), NRL_ERR_CONFIG, rows[i][1]);
        snprintf(script, sizeof script, HEAD "nrl.write_jsonl('host_test_no/x.jsonl', %s)", rows[i][0]);
        assert_error(run_text(script), NRL_ERR_CONFIG, rows[i][1]);
    }
    assert_int_equal(access("host_test_no", F_OK), -1);
    assert_ok(run_text(HEAD "assert(nrl.read_jsonl('host_test_kept.jsonl')[1].kept == 1)\n"
                            "nrl.write_jsonl('host_test_kept.jsonl', {})\n"
                            "assert(#nrl.read_jsonl 'host_test_kept.jsonl' == 0)"));
    remove("host_test_kept.jsonl");
}

static void modules_beside_the_script_are_found_and_random_numbers_repeat(void **state)
{
    (void)state;
    write_text("host_test_module.lua", "return {x = 5}");
    assert_ok(run_text("assert(require('host_test_module').x == 5)"));
    remove("host_test_module.lua");
    assert_ok(run_text(HEAD "nrl.write_jsonl('host_test_random.jsonl', {{r = math.random()}})"));
    assert_ok(run_text(HEAD "assert(nrl.read_jsonl('host_test_random.jsonl')[1].r == math.random())"));
    remove("host_test_random.jsonl");
}

static int reset(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, reset, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_script_runs_and_its_runs_are_closed),
        TEST(a_mistake_of_the_script_names_file_and_line),
        TEST(a_missing_script_is_a_usage_error),
        TEST(a_failure_of_the_core_keeps_its_status),
        TEST(a_failure_can_be_caught_and_raised_again),
        TEST(os_exit_ends_the_script_with_its_code),
        TEST(a_signal_ends_a_script_that_no_run_would_stop),
        TEST(hooks_see_every_value_by_name),
        TEST(an_error_in_a_hook_stops_the_run_with_its_line),
        TEST(a_hook_in_a_coroutine_works),
        TEST(hooks_may_stop_set_the_rate_and_sample_but_not_train),
        TEST(steps_end_with_the_final_save),
        TEST(a_closed_run_says_so),
        TEST(the_state_table_reaches_the_core_before_a_save),
        TEST(a_resumed_state_comes_back),
        TEST(a_table_becomes_the_tree_that_yaml_gives),
        TEST(unchanged_values_of_a_file_keep_their_place),
        TEST(what_no_config_can_hold_is_refused_with_its_path),
        TEST(assignments_of_the_command_line_come_last),
        TEST(sampling_checks_its_arguments),
        TEST(json_and_jsonl_round_trip),
        TEST(rows_that_cannot_be_written_leave_the_file_alone),
        TEST(modules_beside_the_script_are_found_and_random_numbers_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
