/*
 * test_prometheus.c - the pages that the logger prometheus serves, over a socket as a scrape reads them.
 */
#include "support.h"
#include <arpa/inet.h>
#include <sys/socket.h>

static int port;

/* A port that nothing uses at the moment. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static nrl_status open_run(test_logger *l, const char *name)
{
    char yaml[32];
    nrl_logger_run run = {.size = sizeof run, .out = "/tmp", .name = name, .total_steps = 10};
    snprintf(yaml, sizeof yaml, "port: %d", port);
    return test_logger_open(l, "prometheus", yaml, &run);
}

static void write_record(test_logger *l, int64_t step, const nrl_value *values, size_t n)
{
    nrl_record r = {.size = sizeof r,
                    .kind = NRL_RECORD_TRAIN,
                    .step = step,
                    .total_steps = 10,
                    .time = 1.5,
                    .eta_seconds = -1,
                    .values = values,
                    .n_values = n};
    assert_int_equal(l->table->write(l->self, &r), NRL_OK);
}

/* Sends bytes and returns the whole answer. */
static const char *ask(const char *request)
{
    static char answer[1 << 16];
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t n = 0;
    ssize_t part;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (int)strlen(request));
    shutdown(fd, SHUT_WR);
    while ((part = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0)
        n += (size_t)part;
    close(fd);
    answer[n] = 0;
    return answer;
}

static const char get[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

static void has(const char *page, const char *line)
{
    if (!strstr(page, line)) fail_msg("no '%s' in:\n%s", line, page);
}

static void skip_without_plugin(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/lib/nrl/loggers/prometheus.so", getenv("NRL_TEST_BUILD"));
    if (!access(path, F_OK)) return;
    print_message("skipped: there is no %s\n", path);
    skip();
}

static void a_scrape_reads_the_newest_values_of_all_runs(void **state)
{
    test_logger a, b;
    (void)state;
    skip_without_plugin();
    nrl_value first[] = {{"loss", "nats", 2.5}, {"rewards/chosen", "", NAN}, {"loss", "nats", 9}};
    nrl_value second[] = {{"loss", "nats", INFINITY}, {"\xff odd\n", "\"u\"", -1}};
    assert_int_equal(open_run(&a, "one"), NRL_OK);
    write_record(&a, 1, first, 3);
    const char *page = ask(get);
    has(page, "HTTP/1.1 200 OK\r\n");
    has(page, "Content-Type: text/plain; version=0.0.4");
    has(page, "# HELP nrl_loss loss, nats\n# TYPE nrl_loss gauge\nnrl_loss{run=\"one\"} 2.5\n");
    has(page, "nrl_rewards_chosen{run=\"one\"} NaN\n");
    has(page, "nrl_step{run=\"one\"} 1\n");
    has(page, "nrl_total_steps{run=\"one\"} 10\n");
    assert_int_equal(open_run(&b, "two \"quoted\""), NRL_OK);
    write_record(&b, 7, second, 2);
    page = ask(get);
    has(page, "nrl_loss{run=\"two \\\"quoted\\\"\"} +Inf\nnrl_loss{run=\"one\"} 2.5\n");
    has(page, "# HELP nrl___odd_ ? odd?, \"u\"\n");
    test_logger_close(&a);
    page = ask(get);
    assert_null(strstr(page, "run=\"one\""));
    has(page, "nrl_step{run=\"two \\\"quoted\\\"\"} 7\n");
    test_logger_close(&b);
}

static void other_requests_get_an_error(void **state)
{
    test_logger l;
    (void)state;
    skip_without_plugin();
    assert_int_equal(open_run(&l, "one"), NRL_OK);
    has(ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "HTTP/1.1 404");
    has(ask("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"), "HTTP/1.1 405");
    ask("\x01\x02 nonsense\r\n\r\n");
    ask("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nabc");
    has(ask(get), "nrl_step{run=\"one\"} 0\n");
    test_logger_close(&l);
}

static void a_port_in_use_is_named(void **state)
{
    test_logger l;
    (void)state;
    skip_without_plugin();
    port = free_port(); /* connections of the other tests may linger on theirs */
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(open_run(&l, "one"), NRL_ERR_IO);
    has(nrl_error_text(), "cannot listen on 127.0.0.1:");
    has(nrl_error_text(), "Address already in use");
    test_logger_close(&l);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scrape_reads_the_newest_values_of_all_runs),
        cmocka_unit_test(other_requests_get_an_error),
        cmocka_unit_test(a_port_in_use_is_named),
    };
    port = free_port();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
