/*
 * test_config.c - files and command line to one config, and the resolved config back to text.
 */
#include "base/file.h"
#include "config/config.h"
#include "config/schema.h"
#include "base/yaml.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Each test works in a fresh folder. */
static int enter_folder(void **state)
{
    char *folder = strdup("/tmp/nrl-config-XXXXXX");
    *state = folder;
    return !mkdtemp(folder) || chdir(folder) || mkdir("sub", 0755);
}

static int leave_folder(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    int failed = chdir("/") || system(command);
    free(*state);
    return failed;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char *lookup(const char *name)
{
    return !strcmp(name, "TOKEN") ? "secret" : !strcmp(name, "STEPS") ? "7" : !strcmp(name, "EMPTY") ? "" : NULL;
}

/* Strategies as plugins declare them. */
static const nrl_mesh_axis depth = {sizeof(nrl_mesh_axis), NRL_DIVIDES_DEPTH, "pipeline", 100, false};
static const nrl_mesh_axis batch = {sizeof(nrl_mesh_axis), NRL_DIVIDES_BATCH, "data", 300, true};
static const nrl_mesh_axis width = {sizeof(nrl_mesh_axis), NRL_DIVIDES_WIDTH, "tensor", 400, false};
static const nrl_option shard_rows[] = {{.name = "shard", .initial = "full", .type = NRL_TYPE_STR}};
static const nrl_parallel strategies[] = {
    {.plugin = {.name = "fsdp", .options = shard_rows, .n_options = 1, .option_size = sizeof *shard_rows}},
    {.plugin = {.name = "ddp", .priority = 1}},
    {.plugin = {.name = "tensor", .priority = 1}},
    {.plugin = {.name = "pipeline"}},
    {.plugin = {.name = "mine", .priority = 9}},
};
/* mine came from elsewhere: its higher priority does not make it the default */
static const config_server servers[] = {{&strategies[0], &batch, true},
                                        {&strategies[1], &batch, true},
                                        {&strategies[2], &width, true},
                                        {&strategies[3], &depth, true},
                                        {&strategies[4], &width, false}};

static const config_axis *axis_of(const config_run *run, const char *name)
{
    static const config_axis none = {.size = 1};
    for (size_t i = 0; i < run->n_axes; i++)
        if (!strcmp(run->axes[i].axis->name, name)) return &run->axes[i];
    return &none;
}

/* Reads c.yaml with NULL-ended overrides and fills the core's sections. */
static nrl_status load(arena *a, const char *const *overrides, config_run *run)
{
    static const char *const adapters[] = {"low", "scaled"};
    config_problems problems = {0};
    const char *section;
    nrl_node *root;
    NRL_TRY(config_read(a, "c.yaml", &root));
    for (; overrides && *overrides; overrides++)
        config_override(a, &problems, root, *overrides);
    config_substitute(a, &problems, root, lookup);
    config_fill(a, &problems, root, run);
    const nrl_node *folded = config_fold_adapter(a, &problems, adapters, 2, root, &section);
    config_fill_adapter(a, &problems, folded, section, run);
    config_axes(a, &problems, servers, sizeof servers / sizeof *servers, run);
    nrl_status st = problems_report(&problems);
    return st;
}

static const char minimal[] = "model: {path: m}\ndata: {train: d.jsonl}\ntrain: {steps: 5}\n"
                              "optimizer: {lr: 1e-3}\nout: runs/a\n";

static void a_minimal_config_has_defaults(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("c.yaml", minimal);
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(run.algorithm.name, ""); /* the default plugin, as for loggers */
    assert_string_equal(run.optimizer.name, "");
    assert_null(axis_of(&run, "data")->strategy.name);
    assert_true(run.loggers_unset);
    assert_int_equal(run.train.steps, 5);
    assert_int_equal(run.train.recompute.kind, CONFIG_RECOMPUTE_NONE);
    assert_string_equal(run.name, "a");
    assert_string_equal(nrl_node_string(nrl_node_find(nrl_node_at(run.data.train, 0), "path"), ""), "d.jsonl");
    arena_free(&a);
}

static void inherited_values_keep_their_place_and_folder(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("c.yaml", "defaults: sub/base.yaml\ntrain: {seed: 3}\nout: o\n");
    write_file("sub/base.yaml", "model: {path: m}\ndata: {train: [d.jsonl, {path: e, weight: 2}]}\n"
                                "train: {steps: 5, seed: 1}\noptimizer: {name: adamw, lr: 1}\n");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(run.model.path, "sub/m");
    assert_int_equal(run.train.seed, 3);
    assert_int_equal(run.train.steps, 5);
    const nrl_node *second = nrl_node_at(run.data.train, 1);
    assert_string_equal(nrl_node_string(nrl_node_find(second, "path"), ""), "sub/e");
    assert_true(nrl_node_f64(nrl_node_find(second, "weight"), 0) == 2);
    assert_string_equal(nrl_node_place(run.optimizer.at), "sub/base.yaml:4:1");
    arena_free(&a);
}

static void another_component_does_not_inherit_options(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("base.yaml", minimal);
    write_file("named.yaml", "defaults: base.yaml\noptimizer: adamw\n");
    write_file("c.yaml", "defaults: named.yaml\noptimizer: {name: other}\nalgorithm: {beta: 1}\n");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(run.optimizer.name, "other");
    assert_int_equal(nrl_node_size(run.optimizer.options), 0);
    write_file("c.yaml", "defaults: named.yaml\noptimizer: {name: adamw, eps: 1}\n");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_int_equal(nrl_node_size(run.optimizer.options), 2); /* lr from below, eps from above */
    arena_free(&a);
}

static void cycles_of_defaults_are_refused(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("c.yaml", "defaults: sub/b.yaml\n");
    write_file("sub/b.yaml", "defaults: ../c.yaml\n");
    assert_int_equal(load(&a, NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "inherits from itself"));
    assert_non_null(strstr(nrl_error_text(), "c.yaml:1:1: defaults"));
    write_file("c.yaml", "defaults: [c2.yaml, c2.yaml]\n");
    write_file("c2.yaml", "defaults: [c3.yaml, c3.yaml, c3.yaml, c3.yaml, c3.yaml, c3.yaml]\n");
    write_file("c3.yaml", "defaults: [c4.yaml, c4.yaml, c4.yaml, c4.yaml, c4.yaml, c4.yaml]\n");
    write_file("c4.yaml", "a: 1\n");
    assert_int_equal(load(&a, NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "more than 64 files"));
    arena_free(&a);
}

static void overrides_come_last(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("c.yaml", "defaults: base.yaml\noptimizer: adamw\nschedule: cosine\n");
    write_file("base.yaml", minimal);
    const char *const overrides[] = {"train.seed=9",    "schedule.warmup_ratio=0.1",
                                     "loggers=[jsonl]", "data.columns.prompt=question",
                                     "model.path=here", NULL};
    assert_int_equal(load(&a, overrides, &run), NRL_OK);
    assert_int_equal(run.train.seed, 9);
    assert_string_equal(run.schedule.name, "cosine");
    assert_true(nrl_node_f64(nrl_node_find(run.schedule.options, "warmup_ratio"), 0) == 0.1);
    assert_int_equal(run.n_loggers, 1);
    assert_string_equal(run.model.path, "here");
    arena_free(&a);
}

/* What the config with these lines more, and these words on the command line, says of its adapter. */
static nrl_status load_adapter(arena *a, const char *lines, const char *const *overrides, config_run *run)
{
    write_file("c.yaml", arena_printf(a, "%s%s", minimal, lines));
    return load(a, overrides, run);
}

static void a_section_of_an_adapter_is_the_component(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    const config_component *c = &run.adapter.component;
    assert_int_equal(load_adapter(&a, "", NULL, &run), NRL_OK);
    assert_null(c->name);
    assert_null(nrl_node_find(run.resolved, "adapter"));
    assert_int_equal(load_adapter(&a, "low: {rank: 4}\n", (const char *[]){"low.alpha=2", NULL}, &run), NRL_OK);
    assert_string_equal(c->name, "low");
    assert_string_equal(run.adapter.section, "low");
    assert_int_equal(nrl_node_int(nrl_node_find(c->options, "rank"), 0), 4);
    assert_int_equal(nrl_node_int(nrl_node_find(c->options, "alpha"), 0), 2);
    assert_int_equal(load_adapter(&a, "low: {}\n", NULL, &run), NRL_OK);
    assert_string_equal(c->name, "low");
    assert_int_equal(load_adapter(&a, "adapter: scaled\n", NULL, &run), NRL_OK);
    assert_string_equal(c->name, "scaled");
    assert_string_equal(run.adapter.section, "adapter");
    /* as a resume lays what was typed on OUT/config.yaml */
    assert_int_equal(load_adapter(&a, "adapter: {name: low, rank: 4}\n", (const char *[]){"low.rank=8", NULL}, &run),
                     NRL_OK);
    assert_int_equal(nrl_node_int(nrl_node_find(c->options, "rank"), 0), 8);
    assert_int_equal(load_adapter(&a, "low: {rank: 4, alpha: 2}\n", (const char *[]){"adapter.rank=8", NULL}, &run),
                     NRL_OK);
    assert_string_equal(c->name, "low");
    assert_int_equal(nrl_node_int(nrl_node_find(c->options, "rank"), 0), 8);
    assert_int_equal(nrl_node_int(nrl_node_find(c->options, "alpha"), 0), 2);
    assert_int_equal(load_adapter(&a, "low: {rank: 4}\nadapter: {name: low, rank: 8}\n", NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "low.rank: c.yaml:7:22 also has the option adapter.rank; expected one"));
    assert_int_equal(load_adapter(&a, "low: {rank: 4}\n", (const char *[]){"low=null", NULL}, &run), NRL_OK);
    assert_null(c->name);
    assert_int_equal(load_adapter(&a, "low: {rank: 4}\n", (const char *[]){"adapter=", NULL}, &run), NRL_OK);
    assert_null(c->name);
    assert_int_equal(load_adapter(&a, "low:\n", (const char *[]){"adapter=low", NULL}, &run), NRL_OK);
    assert_string_equal(c->name, "low");
    assert_int_equal(load_adapter(&a, "low: {rank: 4}\nscaled: {}\n", NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "scaled: the config also has the adapter 'low'; expected one"));
    assert_int_equal(load_adapter(&a, "low: 4\n", NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "low: expected a map of options, found"));
    assert_int_equal(load_adapter(&a, "high: {rank: 4}\n", NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "high: unknown key"));
    arena_free(&a);
}

static void paths_on_the_command_line_start_in_the_working_directory(void **state)
{
    (void)state;
    arena a = {0};
    config_problems problems = {0};
    config_run run;
    nrl_node *root;
    write_file("sub/c.yaml", minimal);
    assert_int_equal(config_read(&a, "sub/c.yaml", &root), NRL_OK);
    config_override(&a, &problems, root, "data.train=x.jsonl");
    config_fill(&a, &problems, root, &run);
    assert_int_equal(problems_report(&problems), NRL_OK);
    assert_string_equal(run.model.path, "sub/m");
    assert_string_equal(nrl_node_string(nrl_node_find(nrl_node_at(run.data.train, 0), "path"), ""), "x.jsonl");
    assert_string_equal(run.out, "runs/a"); /* out: always */
    arena_free(&a);
}

/* Whichever allocation fails, it is a lack of memory and no mistake in the config. */
static void a_lack_of_memory_is_no_mistake_in_the_config(void **state)
{
    (void)state;
    write_file("c.yaml", minimal);
    int64_t failed = 0;
    for (int64_t n = 0;; n++) {
        arena a = {0};
        nrl_node *root;
        mem_try_fail_after(n);
        nrl_status st = config_read(&a, "c.yaml", &root);
        mem_try_fail_after(-1);
        arena_free(&a);
        if (st == NRL_OK) break;
        assert_int_equal(st, NRL_ERR_MEMORY);
        failed++;
    }
    assert_true(failed > 0);
}

static void a_mistake_beside_a_lack_of_memory_does_not_hide_it(void **state)
{
    (void)state;
    config_problems problems = {0};
    problems_add(&problems, NULL, "a mistake");
    problems_take_error(&problems, mem_fail(1, "a test"), NULL);
    assert_int_equal(problems_report(&problems), NRL_ERR_MEMORY);
    assert_non_null(strstr(nrl_error_text(), "out of memory"));
    problems_add(&problems, NULL, "a mistake");
    assert_int_equal(problems_report(&problems), NRL_ERR_CONFIG);
}

static void bad_overrides_are_told(void **state)
{
    (void)state;
    static const char *const bad[] = {"x", "=1", ".a=1", "a.=1", "a..b=1", "out.x=1", "train.steps={", NULL};
    for (size_t i = 0; bad[i]; i++) {
        arena a = {0};
        config_run run;
        const char *const one[] = {bad[i], NULL};
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, one, &run), NRL_ERR_CONFIG);
        assert_int_equal(strncmp(nrl_error_text(), "command line: ", 14), 0);
        arena_free(&a);
    }
}

static void variables_are_replaced_and_never_written(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    char text[512];
    snprintf(text, sizeof text, "%sname: \"t-${env:TOKEN}\"\neval: {every: '${env:STEPS}'}\n", minimal);
    write_file("c.yaml", text);
    const char *const more[] = {"data.eval=e.jsonl", NULL};
    assert_int_equal(load(&a, more, &run), NRL_OK);
    assert_string_equal(run.name, "t-secret");
    assert_int_equal(run.eval.every, 7);
    char *out = yaml_write(run.resolved);
    assert_null(strstr(out, "secret"));
    assert_non_null(strstr(out, "name: \"t-${env:TOKEN}\""));
    assert_non_null(strstr(out, "every: \"${env:STEPS}\""));
    free(out);
    const char *const missing[] = {"name=${env:NOPE}", NULL}, *const open[] = {"name=${env:X", NULL};
    assert_int_equal(load(&a, missing, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "NOPE is not set"));
    assert_int_equal(load(&a, open, &run), NRL_ERR_CONFIG);
    arena_free(&a);
}

/* OUT/config.yaml must name the same files from its own folder, also with a variable in their paths. */
static void paths_are_absolute_and_keep_their_variables(void **state)
{
    static const char *const paths[] = {"m/", "t/", "d/", "e/", "./", "p/"};
    arena a = {0};
    config_run run;
    write_file("c.yaml", "defaults: sub/base.yaml\n");
    write_file("sub/base.yaml",
               "model: {path: \"m/${env:TOKEN}\", tokenizer: \"t/${env:TOKEN}\", config: \"${env:EMPTY}\"}\n"
               "data: {train: {path: \"d/${env:TOKEN}\", weight: \"${env:STEPS}\"}, eval: \"e/${env:TOKEN}\",\n"
               "       template: {path: \"./${env:TOKEN}\"}, cache: \"/c/${env:TOKEN}\"}\n"
               "train: {steps: 5}\noptimizer: {lr: 1e-3}\nplugins: [\"p/${env:TOKEN}\"]\nout: runs/a\n");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(run.model.path, "sub/m/secret");
    assert_string_equal(run.model.tokenizer_from.source, "sub/t/secret");
    assert_string_equal(run.plugins[0], "sub/p/secret");
    char *once = yaml_write(run.resolved);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *want = arena_printf(&a, "\"%s/sub/%s${env:TOKEN}\"", (const char *)*state, paths[i]);
        if (!strstr(once, want)) fail_msg("no %s in:\n%s", want, once);
    }
    assert_non_null(strstr(once, "cache: \"/c/${env:TOKEN}\""));
    assert_non_null(strstr(once, "config: \"${env:EMPTY}\""));
    assert_non_null(strstr(once, "weight: \"${env:STEPS}\""));
    assert_null(strstr(once, "secret"));
    assert_int_equal(mkdir("out", 0755), 0);
    write_file("out/c.yaml", once);
    assert_int_equal(chdir("out"), 0);
    const char *const lr[] = {"optimizer.lr=1e-3", NULL};
    assert_int_equal(load(&a, lr, &run), NRL_OK);
    assert_string_equal(run.model.path, arena_printf(&a, "%s/sub/m/secret", (const char *)*state));
    char *twice = yaml_write(run.resolved);
    assert_string_equal(once, twice);
    free(once);
    free(twice);
    arena_free(&a);
}

static void rules_between_options_are_checked(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"train.epochs=1", "steps or epochs, not both: steps is "},
        {"train.epochs=1", "hint: on the command line, train.steps=0 beside train.epochs=1"},
        {"train.steps=1e18", "train.steps: 1e+18 is out of range, expected 0 to 2^53"},
        {"train={}", "steps or epochs is required"},
        {"train.micro_batch=2", "requires data.packing: false"},
        {"data.max_length=9999", "cannot hold a sample"},
        {"model.config=c.json", "path or config, not both"},
        {"model={}", "path or config is required"},
        {"eval.every=5", "requires data.eval"},
        {"eval.early_stop=5", "requires eval.every"},
        {"train.activation_checkpointing=some", "expected none, all"},
        {"train.activation_checkpointing={every: 0}", "expected 1 to"},
        {"train.activation_checkpointing={every: 2, ratio: 0.5}", "one of every, ratio or layers"},
        {"train.activation_checkpointing={layers: [-1]}", "whole numbers from 0"},
        {"data.columns=[a]", "expected a map of words"},
        {"data.extra=[1]", "expected a word"},
        {"data.train=[]", "an empty list"},
        {"data.train={weight: 1}", "data.train.path: required"},
        {"train.precision=fp4", "not one of: fp32, bf16, fp16, fp8"},
        {"train.fp8={history: 4}", "has no effect without train.precision: fp8"},
        {"train={steps: 1, precision: fp8, fp8: {history: 0}}", "train.fp8.history: "},
        {"train={steps: 1, precision: fp8, fp8: {margin: -1}}", "train.fp8.margin: "},
        {"train={steps: 1, precision: fp8, fp8: {recipe: tile}}", "not one of: delayed, current, block"},
        {"train={steps: 1, precision: fp8, fp8: {recipe: current, margin: 1}}", "recipe current has no margin"},
        {"train={steps: 1, precision: fp8, fp8: {recipe: block, history: 1}}", "recipe block has no history"},
        {"train={steps: 1, precision: fp8, fp8: {interval: 1}}", "train.fp8.interval: unknown"},
        {"train.loss_scale=dynamic", "has no effect without train.precision: fp16"},
        {"train={steps: 1, precision: bf16, loss_scale: 8}", "has no effect without train.precision: fp16"},
        {"train={steps: 1, precision: fp16, loss_scale: 0}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: -8}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: .nan}", "train.loss_scale: "},
        {"train={steps: 1, precision: fp16, loss_scale: .inf}", "train.loss_scale: "},
        {"train={steps: 1, precision: fp16, loss_scale: 1e31}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: static}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: [8]}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: true}", "expected dynamic, a number from"},
        {"train={steps: 1, precision: fp16, loss_scale: {initial: 8}}", "train.loss_scale.initial: unknown"},
        {"train={steps: 1, precision: fp16, loss_scale: {init: -1}}", "train.loss_scale.init: "},
        {"train={steps: 1, precision: fp16, loss_scale: {backoff: 1}}", "train.loss_scale.backoff: "},
        {"train={steps: 1, precision: fp16, loss_scale: {init: 1, min: 2}}", "init 1 is below min 2"},
        {"launch.timeout_step=0", "expected 1 to"},
        {"parallel={data: ddp, tensor: 0}", "parallel.tensor: expected 1 to 1048576 ranks"},
        {"parallel={data: ddp, tensor: {name: tensor}}", "parallel.tensor.size: required"},
        {"parallel={data: ddp, tensor: {size: 99999999}}", "parallel.tensor.size: expected 1 to 1048576 ranks"},
        {"parallel={dato: ddp, tensor: 1}", "parallel.dato: unknown key"},
        {"parallel={data: ddp, expert: 2}", "parallel.expert: unknown key; expected one of: pipeline, data, tensor"},
        {"parallel={data: ddp, pipeline: two}", "parallel.pipeline: expected a number of ranks or {size: RANKS"},
        {"parallel={name: ddp, data: 2}", "expected parallel: {data: {name: ddp, ...}, ...}"},
        {"parallel={data: {name: ddp, size: 0}}", "parallel.data.size: expected 1 to 1048576 ranks"},
        {"parallel={name: none, shard: full}", "parallel: none has no options"},
        {"debug=maybe", "debug: expected true, false or {every: 10}"},
        {"debug='yes'", "debug: expected true, false or {every: 10}"},
        {"debug={every: 0}", "expected 1 to"},
        {"out=\"\"", "out: empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena a = {0};
        config_run run;
        const char *const one[] = {cases[i][0], NULL};
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, one, &run), NRL_ERR_CONFIG);
        if (!strstr(nrl_error_text(), cases[i][1])) fail_msg("%s: %s", cases[i][0], nrl_error_text());
        arena_free(&a);
    }
    arena a = {0};
    config_run run;
    const char *const one[] = {"model={config: {type: llama}}", NULL};
    assert_int_equal(load(&a, one, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "model.config: expected a path, found a map"));
    assert_null(strstr(nrl_error_text(), "path or config is required"));
    arena_free(&a);
}

static void debug_is_a_truth_value_or_a_map(void **state)
{
    (void)state;
    static const char *const forms[] = {"debug=true", "debug=Yes", "debug=ON", "debug={every: 10}"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        arena a = {0};
        config_run run;
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, (const char *[]){forms[i], NULL}, &run), NRL_OK);
        assert_int_equal(run.debug_every, 10);
        arena_free(&a);
    }
}

static void axes_have_sizes_and_strategies(void **state)
{
    (void)state;
    static const struct {
        const char *text, *data, *tensor;
        int64_t data_size, tensor_size;
    } forms[] = {{"fsdp", "fsdp", NULL, 0, 1},
                 {"{data: fsdp, tensor: 2}", "fsdp", "tensor", 0, 2},
                 {"{tensor: 4}", NULL, "tensor", 0, 4},
                 {"{data: 2, tensor: {size: 2, sequence: true}}", NULL, "tensor", 2, 2},
                 {"{data: {name: fsdp, size: 2}, tensor: {name: mine, size: 2}}", "fsdp", "mine", 2, 2},
                 {"{name: ddp, tensor: 2}", "ddp", "tensor", 0, 2},
                 {"{data: ddp, tensor: 1}", "ddp", NULL, 0, 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        arena a = {0};
        config_run run;
        const char *const one[] = {arena_printf(&a, "parallel=%s", forms[i].text), NULL};
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, one, &run), NRL_OK);
        const config_axis *data = axis_of(&run, "data"), *tensor = axis_of(&run, "tensor");
        assert_int_equal(data->size, forms[i].data_size);
        assert_int_equal(tensor->size, forms[i].tensor_size);
        assert_string_equal(data->strategy.name ? data->strategy.name : "", forms[i].data ? forms[i].data : "");
        assert_string_equal(tensor->strategy.name ? tensor->strategy.name : "", forms[i].tensor ? forms[i].tensor : "");
        const nrl_node *resolved = nrl_node_find(run.resolved, "parallel");
        assert_true(!nrl_node_find(resolved, "tensor") == !forms[i].tensor);
        assert_int_equal(nrl_node_int(nrl_node_find(nrl_node_find(resolved, "tensor"), "size"), 1),
                         forms[i].tensor_size);
        arena_free(&a);
    }
}

static void another_axis_stands_beside_a_strategy_of_the_file(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    const char *const one[] = {"parallel.tensor=2", NULL};
    write_file("c.yaml", arena_printf(&a, "%sparallel: {name: fsdp, shard: grads}\n", minimal));
    assert_int_equal(load(&a, one, &run), NRL_OK);
    assert_string_equal(axis_of(&run, "data")->strategy.name, "fsdp");
    assert_string_equal(nrl_node_string(nrl_node_find(axis_of(&run, "data")->strategy.options, "shard"), ""), "grads");
    assert_string_equal(axis_of(&run, "tensor")->strategy.name, "tensor");
    arena_free(&a);
}

static void an_axis_replaces_the_strategy_of_another_file(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("base.yaml", arena_printf(&a, "%sparallel: {name: fsdp, shard: grads}\n", minimal));
    write_file("c.yaml", "defaults: base.yaml\nparallel: {data: ddp, tensor: 2}\n");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(axis_of(&run, "data")->strategy.name, "ddp");
    assert_string_equal(axis_of(&run, "tensor")->strategy.name, "tensor");
    write_file("c.yaml", "defaults: base.yaml\nparallel: {tensor: 2}\n");
    assert_int_equal(load(&a, (const char *[]){"parallel.data=ddp", NULL}, &run), NRL_OK);
    assert_string_equal(axis_of(&run, "data")->strategy.name, "ddp");
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    assert_string_equal(axis_of(&run, "data")->strategy.name, "fsdp");
    assert_int_equal(load(&a, (const char *[]){"parallel.name=ddp", "parallel.data=fsdp", NULL}, &run), NRL_ERR_CONFIG);
    arena_free(&a);
}

static void activation_checkpointing_has_five_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        config_recompute_kind kind;
    } forms[] = {{"none", CONFIG_RECOMPUTE_NONE},
                 {"all", CONFIG_RECOMPUTE_ALL},
                 {"{every: 4}", CONFIG_RECOMPUTE_EVERY},
                 {"{ratio: 0.5}", CONFIG_RECOMPUTE_RATIO},
                 {"{layers: [0, 4]}", CONFIG_RECOMPUTE_LAYERS}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        arena a = {0};
        config_run run;
        const char *const one[] = {arena_printf(&a, "train.activation_checkpointing=%s", forms[i].text), NULL};
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, one, &run), NRL_OK);
        assert_int_equal(run.train.recompute.kind, forms[i].kind);
        arena_free(&a);
    }
}

static void the_loss_scale_has_three_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        config_loss_scale scale;
    } forms[] = {{"{precision: fp16}", {true, 65536, 2, 0.5, 0x1p-14, 2000}},
                 {"{precision: fp16, loss_scale: dynamic}", {true, 65536, 2, 0.5, 0x1p-14, 2000}},
                 {"{precision: fp16, loss_scale: null}", {true, 65536, 2, 0.5, 0x1p-14, 2000}},
                 {"{precision: fp16, loss_scale: 1024}", {.init = 1024}},
                 {"{precision: fp16, loss_scale: {init: 8, growth_interval: 5}}", {true, 8, 2, 0.5, 0x1p-14, 5}},
                 {"{precision: bf16}", {.init = 1}},
                 {"{}", {.init = 1}}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        arena a = {0};
        config_run run;
        const char *const two[] = {arena_printf(&a, "train=%s", forms[i].text), "train.steps=1", NULL};
        write_file("c.yaml", minimal);
        assert_int_equal(load(&a, two, &run), NRL_OK);
        const config_loss_scale *is = &run.train.scale, *want = &forms[i].scale;
        assert_true(is->dynamic == want->dynamic && is->init == want->init && is->growth == want->growth &&
                    is->backoff == want->backoff && is->min == want->min &&
                    is->growth_interval == want->growth_interval);
        arena_free(&a);
    }
}

/* The file beside a run must mean the same from any folder. */
static void the_resolved_config_resolves_to_itself(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    char text[1024];
    snprintf(text, sizeof text, "%s%s", minimal,
             "plugins: [., '/tmp']\nloggers: [console, {name: jsonl, file: x}]\n"
             "resume: \"on\"\nname: '# : \" \\ \xc3\xa9'\ncheckpoint: {every_minutes: 1e-8}\n");
    write_file("c.yaml", text);
    assert_int_equal(load(&a, NULL, &run), NRL_OK);
    char *once = yaml_write(run.resolved);
    assert_non_null(strstr(once, "every_minutes: 1.0e-08"));
    assert_non_null(strstr(once, "resume: \"on\""));
    write_file("sub/c.yaml", once);
    assert_int_equal(chdir("sub"), 0);
    const char *const lr[] = {"optimizer.lr=1e-3", NULL};
    assert_int_equal(load(&a, lr, &run), NRL_OK);
    char *twice = yaml_write(run.resolved);
    assert_string_equal(once, twice);
    free(once);
    free(twice);
    arena_free(&a);
}

static void a_config_that_is_no_map_is_refused(void **state)
{
    (void)state;
    arena a = {0};
    config_run run;
    write_file("c.yaml", "- a\n");
    assert_int_equal(load(&a, NULL, &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "c.yaml:1:1: expected a map"));
    write_file("c.yaml", "model: 5\ndata: [x]\ntrain: no\neval: 3\nloggers: 7\nplugins: {a: b}\nout: [x]\n");
    assert_int_equal(load(&a, NULL, &run), NRL_ERR_CONFIG);
    write_file("c.yaml", "");
    assert_int_equal(load(&a, NULL, &run), NRL_ERR_CONFIG);
    arena_free(&a);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_minimal_config_has_defaults),
        TEST(inherited_values_keep_their_place_and_folder),
        TEST(another_component_does_not_inherit_options),
        TEST(cycles_of_defaults_are_refused),
        TEST(overrides_come_last),
        TEST(a_section_of_an_adapter_is_the_component),
        TEST(paths_on_the_command_line_start_in_the_working_directory),
        TEST(bad_overrides_are_told),
        TEST(a_lack_of_memory_is_no_mistake_in_the_config),
        TEST(a_mistake_beside_a_lack_of_memory_does_not_hide_it),
        TEST(variables_are_replaced_and_never_written),
        TEST(paths_are_absolute_and_keep_their_variables),
        TEST(rules_between_options_are_checked),
        TEST(activation_checkpointing_has_five_forms),
        TEST(debug_is_a_truth_value_or_a_map),
        TEST(axes_have_sizes_and_strategies),
        TEST(another_axis_stands_beside_a_strategy_of_the_file),
        TEST(an_axis_replaces_the_strategy_of_another_file),
        TEST(the_loss_scale_has_three_forms),
        TEST(the_resolved_config_resolves_to_itself),
        TEST(a_config_that_is_no_map_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
