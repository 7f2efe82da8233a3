/*
 * test_tensorboard.c - event files, read back byte by byte: framing and checksums, tags, numbers,
 * and how a new and a resumed run treat earlier files.
 */
#include "base/arena.h"
#include "support.h"
#include "support/folder.h"
#include <dirent.h>

typedef struct {
    double time;
    int64_t step;
    bool version, restart;
    char text[400]; /* tag=number of each scalar */
} event;

/* By the polynomial, bit by bit: not the way the plugin does it. */
static uint32_t slow_crc(const unsigned char *at, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint64_t little(const unsigned char *at, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;)
        v = v << 8 | at[i];
    return v;
}

static void check_sum(const unsigned char *bytes, size_t n, const unsigned char *stored)
{
    uint32_t crc = slow_crc(bytes, n);
    assert_int_equal((crc >> 15 | crc << 17) + 0xa282ead8u, little(stored, 4));
}

static uint64_t varint(const unsigned char **at)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        v |= (uint64_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128)) return v;
    }
}

static void read_value(const unsigned char *at, size_t n, event *e)
{
    const unsigned char *end = at + n;
    float number;
    assert_int_equal(*at++, 1 << 3 | 2);
    size_t length = varint(&at), used = strlen(e->text);
    const char *tag = (const char *)at;
    at += length;
    assert_int_equal(*at++, 2 << 3 | 5);
    uint32_t bits = (uint32_t)little(at, 4);
    memcpy(&number, &bits, sizeof number);
    snprintf(e->text + used, sizeof e->text - used, "%.*s=%g ", (int)length, tag, (double)number);
    assert_ptr_equal(at + 4, end);
}

static void read_field(const unsigned char **at, event *e)
{
    unsigned key = *(*at)++;
    if (key == (1 << 3 | 1)) {
        uint64_t bits = little(*at, 8);
        memcpy(&e->time, &bits, sizeof e->time);
        *at += 8;
    } else if (key == (2 << 3 | 0)) {
        e->step = (int64_t)varint(at);
    } else {
        size_t n = varint(at);
        const unsigned char *end = *at + n;
        if (key == (3 << 3 | 2)) e->version = n == 13 && !memcmp(*at, "brain.Event:2", n);
        if (key == (7 << 3 | 2)) e->restart = n == 2 && (*at)[0] == 8 && (*at)[1] == 1;
        while (key == (5 << 3 | 2) && *at < end) {
            assert_int_equal(*(*at)++, 1 << 3 | 2);
            size_t size = varint(at);
            read_value(*at, size, e);
            *at += size;
        }
        *at = end;
    }
}

/* Events of a file; returns how many. */
static int read_events(const char *path, event *events, int most)
{
    static unsigned char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f), at = 0;
    int n = 0;
    fclose(f);
    while (at < size) {
        uint64_t length = little(bytes + at, 8);
        assert_true(n < most && at + length + 16 <= size);
        check_sum(bytes + at, 8, bytes + at + 8);
        check_sum(bytes + at + 12, length, bytes + at + 12 + length);
        const unsigned char *field = bytes + at + 12, *end = field + length;
        events[n] = (event){0};
        while (field < end)
            read_field(&field, &events[n]);
        assert_ptr_equal(field, end);
        at += length + 16;
        n++;
    }
    return n;
}

/* Paths of event files, in order of their names. */
static int list_files(const char *folder, char paths[4][400])
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort), found = 0;
    for (int i = 0; i < n; i++) {
        if (strstr(names[i]->d_name, ".tfevents.")) {
            assert_true(found < 4);
            snprintf(paths[found++], 400, "%s/%s", folder, names[i]->d_name);
        }
        free(names[i]);
    }
    if (n >= 0) free(names);
    return found;
}

typedef struct {
    char dir[40], folder[60];
} place;

static place make_place(void)
{
    place p = {.dir = "/tmp/nrl-tensorboard-XXXXXX"};
    assert_non_null(mkdtemp(p.dir));
    snprintf(p.folder, sizeof p.folder, "%s/tensorboard", p.dir);
    return p;
}

static test_logger open_logger(const place *p, int64_t resumed)
{
    test_logger l;
    nrl_logger_run run = {.size = sizeof run, .out = p->dir, .name = "r", .resumed_step = resumed};
    if (test_logger_open(&l, "tensorboard", "{}", &run) != NRL_OK) fail_msg("%s", nrl_error_text());
    return l;
}

static void write_steps(test_logger *l, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++) {
        nrl_value values[] = {{"loss", "nats", 1.0 / (double)step},
                              {"rewards/chosen", "1", -2},
                              {NULL, "1", 3},
                              {"eval_loss", "nats", NAN},
                              {"odd\n\xC3\xA4", "1", 1e300}};
        nrl_record r = {.size = sizeof r,
                        .kind = NRL_RECORD_TRAIN,
                        .step = step,
                        .time = 1e9 + 0.5 * (double)step,
                        .values = values,
                        .n_values = sizeof values / sizeof *values};
        assert_int_equal(l->table->write(l->self, &r), NRL_OK);
    }
}

static void records_become_events(void **state)
{
    (void)state;
    place p = make_place();
    char paths[4][400];
    test_logger l = open_logger(&p, 0);
    write_steps(&l, 1, 300);
    write_steps(&l, 3, 4);
    assert_int_equal(list_files(p.folder, paths), 1);
    test_logger_close(&l);
    event *many = mem_alloc(400 * sizeof *many);
    assert_int_equal(read_events(paths[0], many, 400), 303);
    assert_true(many[0].version && many[0].time > 1.6e9);
    assert_int_equal(many[300].step, 300);
    assert_true(many[4].step == 4 && many[4].time == 1e9 + 2);
    assert_string_equal(many[4].text, "train/loss=0.25 train/rewards/chosen=-2 eval/loss=nan train/odd?\?\?=inf ");
    free(many);
    test_folder_remove(p.dir);
}

static void a_resumed_run_restarts_behind_its_step(void **state)
{
    (void)state;
    place p = make_place();
    char paths[4][400];
    event e[8];
    test_logger l = open_logger(&p, 0);
    write_steps(&l, 1, 5);
    test_logger_close(&l);
    l = open_logger(&p, 3);
    write_steps(&l, 4, 5);
    test_logger_close(&l);
    assert_int_equal(list_files(p.folder, paths), 2);
    assert_int_equal(read_events(paths[0], e, 8), 6);
    assert_int_equal(read_events(paths[1], e, 8), 4);
    assert_true(e[0].version && e[1].restart && e[1].step == 4 && e[2].step == 4);
    l = open_logger(&p, 0); /* from the beginning: earlier files go */
    assert_int_equal(list_files(p.folder, paths), 1);
    test_logger_close(&l);
    assert_int_equal(read_events(paths[0], e, 8), 1);
    test_folder_remove(p.dir);
}

static void a_file_that_was_removed_is_begun_anew(void **state)
{
    (void)state;
    place p = make_place();
    char paths[4][400];
    event e[8];
    test_logger l = open_logger(&p, 0);
    write_steps(&l, 1, 2);
    test_folder_remove(p.folder);
    write_steps(&l, 3, 4);
    test_logger_close(&l);
    assert_int_equal(list_files(p.folder, paths), 1);
    assert_int_equal(read_events(paths[0], e, 8), 3);
    assert_true(e[0].version && e[1].step == 3 && e[2].step == 4);
    test_folder_remove(p.dir);
}

static void a_folder_elsewhere_is_refused(void **state)
{
    (void)state;
    place p = make_place();
    test_logger l;
    nrl_logger_run run = {.size = sizeof run, .out = p.dir, .name = "r"};
    assert_int_equal(test_logger_open(&l, "tensorboard", "{folder: ../x}", &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "'../x' is not a plain name"));
    l.self = NULL;
    test_logger_close(&l);
    test_folder_remove(p.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_become_events),
        cmocka_unit_test(a_resumed_run_restarts_behind_its_step),
        cmocka_unit_test(a_file_that_was_removed_is_begun_anew),
        cmocka_unit_test(a_folder_elsewhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
