/*
 * test_hostile.c - hostile documents: each is refused with its position, in time and within 64 MB,
 * in a separate process so that memory is measured from its start.
 */
#include "base/yaml.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_SECONDS = 30 }; /* of the processor: what grows exponentially takes longer anywhere */

/* Sanitizers keep freed memory and shadows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAX_KB = 1 << 20 };
#else
enum { MAX_KB = 64 << 10 };
#endif

typedef struct {
    char *text;
    size_t size;
} document;

/* Head, then `unit` repeated to about `size` bytes, then tail. */
static document repeat(const char *head, const char *unit, size_t size, const char *tail)
{
    size_t n = strlen(unit), h = strlen(head), t = strlen(tail), count = size / n;
    char *text = malloc(h + n * count + t + 1);
    memcpy(text, head, h);
    for (size_t i = 0; i < count; i++)
        memcpy(text + h + i * n, unit, n);
    memcpy(text + h + n * count, tail, t + 1);
    return (document){text, h + n * count + t};
}

/* In the child: 0 = refused as it should be. */
static int judge(document d, const char *expected)
{
    struct rusage before, after;
    arena a = {0};
    nrl_node *n;
    getrusage(RUSAGE_SELF, &before);
    clock_t start = clock();
    nrl_status st = yaml_parse(&a, "h.yaml", d.text, d.size, &n);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    getrusage(RUSAGE_SELF, &after);
    long kb = after.ru_maxrss - before.ru_maxrss;
    arena_free(&a);
    if (seconds > MAX_SECONDS || kb > MAX_KB) {
        fprintf(stderr, "%s: %.2f s, %ld KB\n", expected, seconds, kb);
        return 1;
    }
    if (st == NRL_ERR_CONFIG && strstr(nrl_error_text(), expected) && !strncmp(nrl_error_text(), "h.yaml:", 7))
        return 0;
    fprintf(stderr, "status %d, expected '%s', got: %s\n", (int)st, expected, st ? nrl_error_text() : "success");
    return 1;
}

static void refused(document d, const char *expected)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(judge(d, expected));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    free(d.text);
}

static document text(const char *t)
{
    return (document){strdup(t), strlen(t)};
}

static document bytes(const char *t, size_t size)
{
    char *copy = malloc(size + 1);
    memcpy(copy, t, size);
    copy[size] = 0;
    return (document){copy, size};
}

static void an_alias_bomb_is_refused(void **state)
{
    (void)state;
    refused(text("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                 "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
                 "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
                 "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"),
            "the aliases expand to too many values");
}

static void one_large_scalar_cannot_be_multiplied(void **state)
{
    (void)state;
    document big = repeat("a: &a ", "x", 500000, "\nb: [");
    document all = repeat(big.text, "*a,", 300000, "]\n");
    free(big.text);
    refused(all, "the aliases expand to too many values");
}

static void a_recursive_alias_is_refused(void **state)
{
    (void)state;
    refused(text("a: &a [1, *a]\n"), "inside its own anchor");
    refused(text("a: *nothing\n"), "the alias has no preceding anchor");
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    refused(repeat("a: ", "[", 900000, ""), "nested too deeply");
    refused(repeat("", "{a: ", 900000, ""), "nested too deeply");
    refused(repeat("", "- ", 900000, ""), "nested too deeply");
    refused(repeat("", "? ", 900000, ""), "");
}

static void huge_documents_are_refused_unread(void **state)
{
    (void)state;
    document d = repeat("a: ", "x", 100 << 20, "\n");
    arena a = {0};
    nrl_node *n;
    assert_int_equal(yaml_parse(&a, "h.yaml", d.text, d.size, &n), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "larger than the limit of 1048576 bytes"));
    assert_null(a.head);
    free(d.text);
    assert_int_equal(yaml_read_file(&a, "/dev/zero", &n), NRL_ERR_CONFIG);
    arena_free(&a);
}

static void very_many_values_are_refused(void **state)
{
    (void)state;
    refused(repeat("a: [", "1,", 1000000, "]"), "too many values");
    refused(repeat("a: [", "[],", 1000000, "]"), "too many values");
}

static void very_many_anchors_and_directives_are_refused(void **state)
{
    (void)state;
    refused(repeat("a: [", "&x 1,", 1000000, "]"), "more than 1000 anchors");
    refused(repeat("", "%TAG !a! b\n", 1000000, "--- {}\n"), "directives");
    refused(text("%YAML 1.1\n--- {}\n"), "directives");
}

static void bad_characters_are_refused(void **state)
{
    (void)state;
    refused(text("a: 1\nb: \xff\n"), "h.yaml:2:4");
    refused(text("a: \xc0\xaf\n"), "UTF-8");
    refused(text("a: \xed\xa0\x80\n"), "Unicode");
    refused(bytes("a: 1\nb\0: 2\n", 11), "control characters");
    refused(text("a: \"\\0\"\n"), "NUL");
    refused(text("a: \x01\n"), "control characters");
}

static void keys_must_be_single_words(void **state)
{
    (void)state;
    refused(text("a: 1\nb: {c: 1, c: 2}\n"), "h.yaml:2:11: duplicate key 'c', first given at h.yaml:2:5");
    refused(text("? [a, b]\n: 1\n"), "a key must be a word");
    refused(text("'': 1\n"), "must not be empty");
    refused(text("a: 1\n\"b\\0\": 1\n"), "must not be empty");
}

static void other_documents_and_tags_are_refused(void **state)
{
    (void)state;
    refused(text("a: 1\n---\nb: 2\n"), "found a second document, expected one");
    refused(text("a: !!python/object:os.system x\n"), "tags");
    refused(text("a: !x [1]\n"), "tags");
    refused(text("a: [1\n"), "h.yaml:2:1");
    refused(text("a: 'x\n"), "h.yaml:2:1");
    refused(text("a:\n\t- b\n"), "h.yaml:2:1");
}

/* Slow shapes for the scanner that are no error: only time and memory count. */
static void long_but_harmless_documents_are_quick(void **state)
{
    (void)state;
    static const char *const units[] = {"# x\n", "\n", "          \n", "...\n"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        document d = repeat("", units[i], 1000000, "");
        arena a = {0};
        nrl_node *n;
        clock_t start = clock();
        yaml_parse(&a, "h.yaml", d.text, d.size, &n);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < MAX_SECONDS);
        arena_free(&a);
        free(d.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_alias_bomb_is_refused),
        cmocka_unit_test(one_large_scalar_cannot_be_multiplied),
        cmocka_unit_test(a_recursive_alias_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(huge_documents_are_refused_unread),
        cmocka_unit_test(very_many_values_are_refused),
        cmocka_unit_test(very_many_anchors_and_directives_are_refused),
        cmocka_unit_test(bad_characters_are_refused),
        cmocka_unit_test(keys_must_be_single_words),
        cmocka_unit_test(other_documents_and_tags_are_refused),
        cmocka_unit_test(long_but_harmless_documents_are_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
