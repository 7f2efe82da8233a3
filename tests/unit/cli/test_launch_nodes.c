/*
 * test_launch_nodes.c - lists of machines in the forms that users write.
 */
#include "cli/launch_nodes.h"
#include "config/tree.h"
#include <nrl/run.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static arena memory;

static launch_nodes words(const char *list, int32_t slots)
{
    launch_nodes n;
    nrl_status st = launch_nodes_words(&memory, list, slots, &n);
    if (st != NRL_OK) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
    return n;
}

static void assert_says(const char *text)
{
    if (!strstr(nrl_error_text(), text)) fail_msg("'%s' is not in: %s", text, nrl_error_text());
}

static void assert_refused(const char *list, int32_t slots, const char *text)
{
    launch_nodes n;
    assert_int_equal(launch_nodes_words(&memory, list, slots, &n), NRL_ERR_CONFIG);
    assert_says(text);
}

static void assert_node(const launch_node *n, const char *address, int slots)
{
    assert_string_equal(n->address, address);
    assert_int_equal(n->slots, slots);
}

static nrl_status read_file(const char *text, int32_t slots, launch_nodes *out)
{
    char path[] = "/tmp/nrl-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    nrl_status st = launch_nodes_file(&memory, path, slots, out);
    unlink(path);
    return st;
}

static void words_give_hosts_and_slots(void **state)
{
    (void)state;
    launch_nodes n = words("a:2,b.example:4,10.0.0.3", 8);
    assert_int_equal(n.n, 3);
    assert_node(&n.list[0], "a", 2);
    assert_node(&n.list[1], "b.example", 4);
    assert_node(&n.list[2], "10.0.0.3", 8);
    n = words("[fe80::1]:2,fe80::2,[::1]", 1);
    assert_node(&n.list[0], "fe80::1", 2);
    assert_node(&n.list[1], "fe80::2", 1);
    assert_node(&n.list[2], "::1", 1);
}

static void words_that_say_nothing_are_refused(void **state)
{
    (void)state;
    assert_refused("", 1, "--nodes: got ''; expected a host name");
    assert_refused("a:2,,b:2", 1, "expected a host name");
    assert_refused("a:0", 1, "slots: got '0'; expected a number from 1");
    assert_refused("a:two", 1, "slots: got 'two'");
    assert_refused("a:", 1, "slots: got ''");
    assert_refused("a:99999999999999999999", 1, "slots: got '99999999999999999999'");
    assert_refused("[::1]2", 1, "expected [ADDRESS]:SLOTS");
    assert_refused("a", 0, "a: number of ranks is unknown");
}

static void a_host_file_has_a_line_a_node(void **state)
{
    (void)state;
    launch_nodes n;
    const char *text = "# the cluster\n\nhead slots=4\n  gpu1\tgpus=0,2 # two\r\ngpu2 slots=2 gpus=1,3\nlast:3";
    assert_int_equal(read_file(text, 0, &n), NRL_OK);
    assert_int_equal(n.n, 4);
    assert_node(&n.list[0], "head", 4);
    assert_node(&n.list[1], "gpu1", 2);
    assert_int_equal(n.list[1].gpus[1], 2);
    assert_node(&n.list[2], "gpu2", 2);
    assert_int_equal(n.list[2].gpus[0], 1);
    assert_node(&n.list[3], "last", 3);
}

static void a_broken_host_file_is_told_with_its_line(void **state)
{
    static const char *const cases[][2] = {
        {"a slots=1\nb slot=2\n", ":2: got 'slot=2'; expected slots=N or gpus=0,1"},
        {"a gpus=0,x\n", ":1: gpus: got 'x'"},
        {"a gpus=0,1 gpus=2,3\n", ":1: gpus=: given twice"},
        {"a slots=3 gpus=0,1\n", "a: got 2 GPUs for 3 slots"},
        {"\n\na\n", ":3: a: number of ranks is unknown"},
        {"# nobody\n", "contains no host"},
        {"a slots=\n", "got 'slots='; expected"},
    };
    (void)state;
    launch_nodes n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_file(cases[i][0], 0, &n), NRL_ERR_CONFIG);
        assert_says(cases[i][1]);
    }
    assert_int_equal(launch_nodes_file(&memory, "/nowhere/hosts", 0, &n), NRL_ERR_CONFIG);
    assert_says("--hostfile");
}

static void the_own_node_is_found_by_address_or_name(void **state)
{
    (void)state;
    size_t own = 9;
    char name[256];
    assert_int_equal(gethostname(name, sizeof name), 0);
    launch_nodes n = words("203.0.113.1,127.0.0.1,203.0.113.2", 1);
    assert_int_equal(launch_nodes_own(&n, &own), NRL_OK);
    assert_int_equal(own, 1);
    n = words(arena_printf(&memory, "203.0.113.1,203.0.113.2,%s", name), 1);
    assert_int_equal(launch_nodes_own(&n, &own), NRL_OK);
    assert_int_equal(own, 2);
}

static void nodes_that_are_alike_need_a_number(void **state)
{
    (void)state;
    size_t own;
    launch_nodes n = words("127.0.0.1,127.0.0.2", 1);
    assert_int_equal(launch_nodes_own(&n, &own), NRL_ERR_CONFIG);
    assert_says("several of the 2 nodes are this machine");
    assert_says("--node-rank");
    n = words("203.0.113.1,203.0.113.2", 1);
    assert_int_equal(launch_nodes_own(&n, &own), NRL_ERR_CONFIG);
    assert_says("none of the 2 nodes is this machine");
}

static size_t hosts_of(const char *text, launch_host **hosts, nrl_status *st)
{
    nrl_config *config = nrl_config_create(&memory);
    const char *tree = arena_printf(&memory, "launch: {nodes: %s}", text);
    assert_int_equal(nrl_config_parse(config, "a test", tree, strlen(tree)), NRL_OK);
    const size_t n = hosts_read(&memory, config, hosts);
    *st = problems_report(&config->problems);
    nrl_config_destroy(config);
    return n;
}

static void a_config_lists_hosts(void **state)
{
    (void)state;
    launch_host *hosts;
    launch_nodes n;
    nrl_status st;
    assert_int_equal(hosts_of("[{address: a}, {address: b, slots: 2, gpus: [3, 1]}]", &hosts, &st), 2);
    assert_int_equal(st, NRL_OK);
    assert_int_equal(launch_nodes_config(&memory, hosts, 2, &n), NRL_OK);
    assert_string_equal(n.list[0].address, "a");
    assert_int_equal(n.list[0].slots, 1);
    assert_int_equal(n.list[1].slots, 2);
    assert_int_equal(n.list[1].gpus[0], 3);
    assert_int_equal(hosts_of("null", &hosts, &st), 0);
    assert_int_equal(st, NRL_OK);
}

static void every_mistake_in_a_list_of_hosts_is_told(void **state)
{
    static const char *const wrong[][2] = {
        {"here", "launch.nodes: expected a list"},
        {"[here]", "launch.nodes.address: required"},
        {"[{slots: 2}]", "launch.nodes.address: required"},
        {"[{address: a, slots: 0}]", "launch.nodes.slots: expected 1 to 65536 ranks"},
        {"[{address: a, slot: 2}]", "launch.nodes.slot: unknown key"},
        {"[{address: a, slots: 2, gpus: [0]}]", "a list of device numbers, one per slot"},
        {"[{address: a, gpus: [-1]}]", "expected whole numbers from 0"},
        {"[{slots: 2}, {address: a, slots: x}]", "2 mistakes"},
    };
    (void)state;
    launch_host *hosts;
    nrl_status st;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hosts_of(wrong[i][0], &hosts, &st);
        assert_int_equal(st, NRL_ERR_CONFIG);
        assert_says(wrong[i][1]);
    }
}

static int forget(void **state)
{
    (void)state;
    arena_free(&memory);
    memory = (arena){0};
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(words_give_hosts_and_slots, forget),
        cmocka_unit_test_teardown(words_that_say_nothing_are_refused, forget),
        cmocka_unit_test_teardown(a_host_file_has_a_line_a_node, forget),
        cmocka_unit_test_teardown(a_broken_host_file_is_told_with_its_line, forget),
        cmocka_unit_test_teardown(the_own_node_is_found_by_address_or_name, forget),
        cmocka_unit_test_teardown(nodes_that_are_alike_need_a_number, forget),
        cmocka_unit_test_teardown(a_config_lists_hosts, forget),
        cmocka_unit_test_teardown(every_mistake_in_a_list_of_hosts_is_told, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
