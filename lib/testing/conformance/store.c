/*
 * store.c - rules for every store: a value that one client sets reaches the others, complete and
 * soon; waits time out and delay no other call; one of several set_once calls wins; no addition is
 * lost; clients may come and go. Two clients, and threads.
 */
#include "base/clock.h"
#include "base/secret.h"
#include "suites.h"
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ADDITIONS = 25, MANY = 300, OPEN_SECONDS = 10 };
#define LATE_S 3.0 /* tolerance for immediate replies on a busy machine */

typedef struct {
    const nrl_store_plugin *t;
    const void *options;
    conformance_report *r;
    char address[4200];
    void *server, *a, *b; /* two clients */
} suite;

static nrl_store_setup setup_of(const suite *s, const uint8_t *secret)
{
    return (nrl_store_setup){.size = sizeof(nrl_store_setup),
                             .address = s->address,
                             .job = "suite",
                             .secret = secret,
                             .timeout_s = OPEN_SECONDS};
}

/* Finds an address that the plugin recognises: of this machine, a directory, or "NAME:PATH". */
static bool find_address(suite *s, const conformance_setup *setup)
{
    static const char rule[] = "a probe recognises an address";
    char named[4200], scheme[4200];
    snprintf(named, sizeof named, "%s:%s/store", s->t->plugin.name, setup->folder);
    snprintf(scheme, sizeof scheme, "%s://%s/store", s->t->plugin.name, setup->folder);
    const char *tries[] = {setup->address, SUITE_STORE_ADDRESS, setup->folder, named, scheme};
    for (size_t i = setup->address == NULL; i < (setup->address ? 1 : sizeof tries / sizeof *tries); i++)
        if (s->t->probe(tries[i]) > NRL_PROBE_NO) {
            snprintf(s->address, sizeof s->address, "%s", tries[i]);
            return report_check(s->r, true, rule, " ");
        }
    return report_check(s->r, false, rule, "neither %s, nor a directory, nor %s; give --address", SUITE_STORE_ADDRESS,
                        named);
}

static int n_open(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n;
}

/* ---- set and get ---- */

static bool has(suite *s, void *client, const char *rule, const char *key, const void *want, size_t size)
{
    void *value = NULL;
    size_t got = 0;
    bool found = false;
    if (!report_ok(s->r, s->t->get(client, key, LATE_S, &found, &value, &got), rule)) return false;
    bool same = found && got == size && !memcmp(value, want, size);
    bool ended = !found || !((char *)value)[got];
    report_check(s->r, same, rule, "'%.40s': %s, %zu bytes, expected %zu", key, found ? "there" : "not there", got,
                 size);
    if (same) report_check(s->r, ended, "a value is followed by a NUL", "'%.40s' has none", key);
    if (found) free(value);
    return same;
}

static void check_values(suite *s)
{
    static const char bytes[] = "a\0b\n\377";
    const char *rule = "what one client sets the other gets";
    report_ok(s->r, s->t->set(s->a, "bytes", bytes, sizeof bytes - 1), rule);
    has(s, s->b, rule, "bytes", bytes, sizeof bytes - 1);
    has(s, s->a, rule, "bytes", bytes, sizeof bytes - 1);
    report_ok(s->r, s->t->set(s->b, "empty", "", 0), rule);
    has(s, s->a, rule, "empty", "", 0);
    rule = "a value of 8 MiB passes";
    char *big = malloc(NRL_STORE_MAX_VALUE);
    for (size_t i = 0; i < NRL_STORE_MAX_VALUE; i++)
        big[i] = (char)(i * 31 + i / 4096);
    report_ok(s->r, s->t->set(s->a, "big", big, NRL_STORE_MAX_VALUE), rule);
    has(s, s->b, rule, "big", big, NRL_STORE_MAX_VALUE);
    free(big);
}

static void check_many(suite *s)
{
    const char *rule = "different keys stay apart";
    char key[64], value[64], *values[MANY], *names[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many/%d%s", i / 3, i % 3 == 0 ? "" : i % 3 == 1 ? "/" : "~2");
        names[i] = strdup(key);
    }
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(value, sizeof value, "value %d", i);
        if (!report_ok(s->r, s->t->set(s->a, names[i], value, (size_t)n), rule)) break;
    }
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(value, sizeof value, "value %d", i);
        if (!has(s, s->b, rule, names[i], value, (size_t)n)) break;
    }
    char *longest = malloc(NRL_STORE_MAX_KEY);
    memset(longest, 'k', NRL_STORE_MAX_KEY - 1);
    longest[NRL_STORE_MAX_KEY - 1] = 0;
    report_ok(s->r, s->t->set(s->a, longest, "1", 1), rule);
    longest[NRL_STORE_MAX_KEY - 2] = 'l';
    report_ok(s->r, s->t->set(s->a, longest, "2", 1), rule);
    has(s, s->b, rule, longest, "2", 1);
    longest[NRL_STORE_MAX_KEY - 2] = 'k';
    has(s, s->b, rule, longest, "1", 1);
    free(longest);
    rule = "get_all returns values in the order of the keys";
    if (!s->t->get_all) report_skip(s->r, rule, "the table has no get_all");
    if (s->t->get_all && report_ok(s->r, s->t->get_all(s->b, (const char *const *)names, MANY, values), rule))
        for (int i = 0; i < MANY; i++) {
            snprintf(value, sizeof value, "value %d", i);
            report_check(s->r, !strcmp(values[i], value), rule, "'%s' is '%.40s'", names[i], values[i]);
            free(values[i]);
        }
    rule = "all_there is false if a key is missing";
    bool all = false;
    if (!s->t->all_there) report_skip(s->r, rule, "the table has no all_there");
    if (s->t->all_there && report_ok(s->r, s->t->all_there(s->b, (const char *const *)names, MANY, &all), rule)) {
        const char *missing[] = {names[0], "nobody set this", names[1]};
        report_check(s->r, all, rule, "%d keys were set, but all_there is false", MANY);
        report_ok(s->r, s->t->all_there(s->b, missing, 3, &all), rule);
        report_check(s->r, !all, rule, "one of three keys was not set");
    }
    for (int i = 0; i < MANY; i++)
        free(names[i]);
}

static void check_removed(suite *s)
{
    const char *rule = "a removed key is gone";
    void *value = NULL;
    size_t size;
    bool found = true;
    report_ok(s->r, s->t->set(s->a, "removed", "x", 1), rule);
    report_ok(s->r, s->t->remove(s->b, "removed"), rule);
    if (report_ok(s->r, s->t->get(s->a, "removed", 0, &found, &value, &size), rule))
        report_check(s->r, !found, rule, "it is still there");
    if (found) free(value);
    report_ok(s->r, s->t->remove(s->b, "removed"), "removing a missing key succeeds");
    report_ok(s->r, s->t->set(s->b, "removed", "again", 5), rule);
    has(s, s->a, rule, "removed", "again", 5);
}

/* ---- waiting ---- */

typedef struct {
    suite *s;
    void *client;
    const char *key;
    double timeout_s, ended;
    atomic_bool begun;
    nrl_status st;
    bool found;
    int index;
    char *seen;
} caller;

static void *wait_for(void *user)
{
    caller *c = user;
    void *value = NULL;
    size_t size;
    atomic_store(&c->begun, true);
    c->st = c->s->t->get(c->client, c->key, c->timeout_s, &c->found, &value, &size);
    c->ended = clock_seconds();
    if (c->st == NRL_OK && c->found) free(value);
    return NULL;
}

static void check_waits(suite *s)
{
    const char *rule = "a wait with a timeout of 0 returns at once";
    double begin = clock_seconds();
    caller c = {.s = s, .client = s->a, .key = "never"};
    wait_for(&c);
    report_check(s->r, c.st == NRL_OK && !c.found, rule, "status %d, %s", c.st, c.found ? "found" : "not found");
    report_check(s->r, c.ended - begin < LATE_S, rule, "it took %.1f s", c.ended - begin);
    rule = "a wait times out";
    begin = clock_seconds();
    c.timeout_s = 0.4;
    wait_for(&c);
    report_check(s->r, c.st == NRL_OK && !c.found, rule, "status %d, %s", c.st, c.found ? "found" : "not found");
    report_check(s->r, c.ended - begin > 0.3 && c.ended - begin < 0.4 + LATE_S, rule, "0.4 s took %.2f",
                 c.ended - begin);

    caller late = {.s = s, .client = s->a, .key = "late", .timeout_s = 8};
    pthread_t thread;
    NRL_ASSERT(pthread_create(&thread, NULL, wait_for, &late), ==, 0);
    while (!atomic_load(&late.begun))
        clock_sleep(0.01);
    clock_sleep(0.5); /* it is inside the call by now */
    begin = clock_seconds();
    report_ok(s->r, s->t->set(s->a, "beside", "x", 1), "a wait delays no other call");
    has(s, s->a, "a wait delays no other call", "beside", "x", 1);
    report_check(s->r, clock_seconds() - begin < LATE_S, "a wait delays no other call", "others took %.1f s",
                 clock_seconds() - begin);
    begin = clock_seconds();
    report_ok(s->r, s->t->set(s->b, "late", "x", 1), "a wait ends when the key is set");
    pthread_join(thread, NULL);
    report_check(s->r, late.st == NRL_OK && late.found, "a wait ends when the key is set", "status %d, %s", late.st,
                 late.found ? "found" : "not found");
    report_check(s->r, late.ended - begin < LATE_S, "a wait ends when the key is set", "%.1f s after it",
                 late.ended - begin);
}

/* ---- several clients ---- */

static void *set_once(void *user)
{
    caller *c = user;
    char mine[16];
    snprintf(mine, sizeof mine, "thread %d", c->index);
    c->st = c->s->t->set_once(c->client, c->key, mine, &c->seen);
    return NULL;
}

static void *add_many(void *user)
{
    caller *c = user;
    int64_t sum;
    for (int i = 0; i < ADDITIONS && c->st == NRL_OK; i++)
        c->st = c->s->t->add(c->client, c->key, 1, &sum);
    return NULL;
}

static void run_threads(suite *s, const char *key, void *(*body)(void *), caller *callers)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (caller){.s = s, .client = i % 2 ? s->a : s->b, .key = key, .index = i};
        NRL_ASSERT(pthread_create(&threads[i], NULL, body, &callers[i]), ==, 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void check_set_once(suite *s)
{
    const char *rule = "set_once with an empty text reads";
    char *now = NULL;
    caller callers[THREADS];
    if (report_ok(s->r, s->t->set_once(s->a, "once", "", &now), rule)) {
        report_check(s->r, !*now, rule, "a missing key reads as '%.40s'", now);
        free(now);
    }
    run_threads(s, "once", set_once, callers);
    rule = "one of several set_once calls wins";
    for (int i = 0; i < THREADS; i++) {
        if (!report_check(s->r, callers[i].st == NRL_OK, rule, "status %d", callers[i].st)) continue;
        report_check(s->r, callers[0].seen && !strcmp(callers[i].seen, callers[0].seen), rule,
                     "one sees '%.40s', another '%.40s'", callers[0].seen ? callers[0].seen : "", callers[i].seen);
    }
    if (callers[0].seen) has(s, s->b, rule, "once", callers[0].seen, strlen(callers[0].seen));
    rule = "set_once with an empty text reads";
    if (callers[0].seen && report_ok(s->r, s->t->set_once(s->a, "once", "", &now), rule)) {
        report_check(s->r, !strcmp(now, callers[0].seen), rule, "'%.40s', expected '%.40s'", now, callers[0].seen);
        free(now);
    }
    for (int i = 0; i < THREADS; i++)
        if (callers[i].st == NRL_OK) free(callers[i].seen);
}

static void check_add(suite *s)
{
    const char *rule = "no addition is lost";
    caller callers[THREADS];
    int64_t sum = 0;
    if (!s->t->add) {
        report_skip(s->r, rule, "the table has no add, so its ranks send no heartbeats");
        return;
    }
    run_threads(s, "sum", add_many, callers);
    for (int i = 0; i < THREADS; i++)
        report_check(s->r, callers[i].st == NRL_OK, rule, "status %d", callers[i].st);
    if (report_ok(s->r, s->t->add(s->a, "sum", -1, &sum), rule))
        report_check(s->r, sum == THREADS * ADDITIONS - 1, rule, "%lld, expected %d", (long long)sum,
                     THREADS * ADDITIONS - 1);
    has(s, s->b, "a sum reads as a decimal number", "sum", "199", 3);
    NRL_ASSERT(THREADS * ADDITIONS, ==, 200);
}

/* ---- clients that leave ---- */

static void check_lost(suite *s)
{
    const char *rule = "a lost client leaves its keys and affects no other client";
    const nrl_store_setup setup = setup_of(s, NULL);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        void *own;
        if (s->t->open(s->options, &setup, &own) == NRL_OK && s->t->set(own, "last", "words", 5) == NRL_OK) _exit(0);
        _exit(1);
    }
    int state = 0;
    bool ended = waitpid(child, &state, 0) == child && WIFEXITED(state) && !WEXITSTATUS(state);
    if (report_check(s->r, ended, rule, "another process cannot set a key")) has(s, s->a, rule, "last", "words", 5);
    s->t->close(s->a);
    has(s, s->b, "a client that closes leaves its keys", "last", "words", 5);
    if (!report_ok(s->r, s->t->open(s->options, &setup, &s->a), "a client opens")) s->a = NULL;
}

/* ---- serving the store ---- */

static void check_refusals(suite *s)
{
    uint8_t ours[NRL_STORE_SECRET] = {1, 2, 3}, other[NRL_STORE_SECRET] = {3, 2, 1};
    suite own = {.t = s->t, .options = s->options, .r = s->r};
    void *self;
    snprintf(own.address, sizeof own.address, "%s", SUITE_STORE_ADDRESS);
    if (s->t->probe(own.address) <= NRL_PROBE_NO) return;
    nrl_store_setup setup = setup_of(&own, ours);
    if (!report_ok(s->r, s->t->serve(s->options, &setup, &own.server), "a server opens")) return;
    snprintf(own.address, sizeof own.address, "%s", s->t->server_address(own.server));
    const struct {
        const char *rule, *job;
        const uint8_t *secret;
        bool opens;
    } cases[] = {{"a client with the secret is served", "suite", ours, true},
                 {"a client with another secret is refused at once", "suite", other, false},
                 {"a client without a secret is refused at once", "suite", NULL, false},
                 {"a client of another job is refused at once", "another", ours, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double begin = clock_seconds();
        setup.job = cases[i].job;
        setup.secret = cases[i].secret;
        nrl_status st = s->t->open(s->options, &setup, &self);
        if (st == NRL_OK) s->t->close(self);
        report_check(s->r, cases[i].opens ? st == NRL_OK : st == NRL_ERR_CONFIG, cases[i].rule, "status %d", st);
        report_check(s->r, clock_seconds() - begin < LATE_S, cases[i].rule, "it took %.1f s", clock_seconds() - begin);
    }
    s->t->server_close(own.server);
    setup.job = "suite";
    setup.timeout_s = 0.5;
    double begin = clock_seconds();
    nrl_status st = s->t->open(s->options, &setup, &self);
    const char *rule = "open times out with an error text if no store answers";
    if (st == NRL_OK) s->t->close(self);
    report_check(s->r, st == NRL_ERR_PEER && *nrl_error_text(), rule, "status %d", st);
    report_check(s->r, clock_seconds() - begin < 0.5 + LATE_S, rule, "0.5 s took %.1f", clock_seconds() - begin);
}

static void check_clients(suite *s, int32_t expected)
{
    for (int i = 0; i < 300 && s->t->server_clients(s->server) != expected; i++)
        clock_sleep(0.01);
    int32_t n = s->t->server_clients(s->server);
    report_check(s->r, expected ? n >= expected : n == 0, "a server counts its clients", "%d, expected %d", n,
                 expected);
}

void conformance_store_plugin(const nrl_store_plugin *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.t = table, .options = setup->options, .r = report};
    int before = n_open();
    bool all = table->serve && table->server_address && table->server_clients && table->server_close;
    bool none = !table->serve && !table->server_address && !table->server_clients && !table->server_close;
    if (!report_check(report, all || none, "a server has all its members", "some of the four members are NULL")) return;
    bool other = table->probe("nothing://here") <= NRL_PROBE_NO;
    if (!report_check(report, other, "a probe leaves other addresses alone", "nothing://here is recognised")) return;
    if (!find_address(&s, setup)) return;
    const nrl_store_setup own = setup_of(&s, NULL);
    if (all && !report_ok(report, table->serve(s.options, &own, &s.server), "a server opens")) return;
    if (s.server) snprintf(s.address, sizeof s.address, "%s", table->server_address(s.server));
    if (!report_ok(report, table->open(s.options, &own, &s.a), "a client opens")) return;
    if (!report_ok(report, table->open(s.options, &own, &s.b), "a client opens")) return;
    REPORT_CASE(report, "what one client sets the other gets") check_values(&s);
    REPORT_CASE(report, "get_all returns values in the order of the keys") check_many(&s);
    REPORT_CASE(report, "a removed key is gone") check_removed(&s);
    REPORT_CASE(report, "a wait times out") check_waits(&s);
    REPORT_CASE(report, "one of several set_once calls wins") check_set_once(&s);
    REPORT_CASE(report, "no addition is lost") check_add(&s);
    if (all) check_clients(&s, 2);
    REPORT_CASE(report, "a lost client leaves its keys and affects no other client") check_lost(&s);
    if (s.a) table->close(s.a);
    table->close(s.b);
    if (all) check_clients(&s, 0);
    if (all) table->server_close(s.server);
    if (all) REPORT_CASE(report, "a client without a secret is refused at once") check_refusals(&s);
    report_check(report, n_open() == before, "nothing stays open", "%d descriptors, %d before", n_open(), before);
}
