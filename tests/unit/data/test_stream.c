/*
 * test_stream.c - decompression, and rows from bytes, for any boundaries of the pieces that are
 * read.
 */
#include "rows.h"
#include "unit/data/support.h"
#include <zlib.h>
#include <zstd.h>
#ifdef NRL_HAVE_LZMA
#include <lzma.h>
#endif

/* Each packs a text as one member of its format. */
static size_t pack_gzip(const char *text, size_t size, unsigned char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static size_t pack_zstd(const char *text, size_t size, unsigned char *out, size_t room)
{
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
    size_t n = ZSTD_compress2(z, out, room, text, size);
    assert_false(ZSTD_isError(n));
    ZSTD_freeCCtx(z);
    return n;
}

#ifdef NRL_HAVE_LZMA
static size_t pack_xz(const char *text, size_t size, unsigned char *out, size_t room)
{
    size_t n = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, size, out, &n, room),
                     LZMA_OK);
    return n;
}
#endif

static const struct {
    const char *name;
    size_t (*pack)(const char *text, size_t size, unsigned char *out, size_t room);
} packers[] = {
    {"gzip", pack_gzip},
    {"zstd", pack_zstd},
#ifdef NRL_HAVE_LZMA
    {"xz", pack_xz},
#endif
};
enum { N_PACKERS = sizeof packers / sizeof *packers };

static nrl_status read_all(const void *bytes, size_t size, buffer *out)
{
    file_stream *s;
    char chunk[7];
    size_t n;
    nrl_status st;
    file_stream_open_memory("memory.gz", bytes, size, &s);
    while ((st = file_stream_read(s, chunk, sizeof chunk, &n)) == NRL_OK && n)
        buffer_add(out, chunk, n);
    file_stream_close(s);
    return st;
}

static void members_of_a_compressed_file_follow_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < N_PACKERS; i++) {
        unsigned char packed[400] = {0};
        buffer out = {0};
        size_t n = packers[i].pack("hello ", 6, packed, 150);
        n += packers[i].pack("world", 5, packed + n, 150);
        ASSERT_OK(read_all(packed, n + 20, &out)); /* zero padding behind */
        assert_string_equal(out.text, "hello world");
        buffer_free(&out);
    }
}

static void a_cut_file_is_an_error_at_every_length(void **state)
{
    (void)state;
    for (int i = 0; i < N_PACKERS; i++) {
        unsigned char packed[200];
        size_t n = packers[i].pack("{\"text\": \"abc abc abc\"}\n", 24, packed, sizeof packed);
        for (size_t cut = 6; cut < n; cut++) { /* a magic number has at most 6 bytes */
            buffer out = {0};
            ASSERT_FAILS(read_all(packed, cut, &out), NRL_ERR_DATA, "the file is truncated");
            char *place =
                mem_printf("memory.gz: the %s data ends early, at byte %zu of the file", packers[i].name, cut);
            if (!strstr(nrl_error_text(), place)) fail_msg("'%s' is not in: %s", place, nrl_error_text());
            free(place);
            buffer_free(&out);
        }
    }
}

/* Every changed byte gives an error or, in a part that no checksum covers, the same text; never another text. */
static void damaged_data_is_an_error(void **state)
{
    (void)state;
    static const char text[] = "{\"text\": \"abc abc abc\"}\n";
    for (int i = 0; i < N_PACKERS; i++) {
        unsigned char packed[200];
        int n_errors = 0;
        size_t n = packers[i].pack(text, 24, packed, sizeof packed);
        for (size_t at = 6; at < n; at++) {
            buffer out = {0};
            packed[at] ^= 0x55;
            nrl_status st = read_all(packed, n, &out);
            packed[at] ^= 0x55;
            if (st == NRL_OK) {
                assert_string_equal(out.text, text);
            } else {
                n_errors++;
                assert_int_equal(st, NRL_ERR_DATA);
                assert_non_null(strstr(nrl_error_text(), "memory.gz: "));
                assert_non_null(strstr(nrl_error_text(), packers[i].name));
            }
            buffer_free(&out);
        }
        assert_true(n_errors > 20);
    }
}

static void text_that_follows_a_member_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < N_PACKERS; i++) {
        unsigned char packed[200];
        buffer out = {0};
        size_t n = packers[i].pack("abc", 3, packed, 150);
        memcpy(packed + n, "{\"text\": \"x\"}", 14);
        char *expected = mem_printf("memory.gz: cannot decompress %s data near byte", packers[i].name);
        ASSERT_FAILS(read_all(packed, n + 14, &out), NRL_ERR_DATA, expected);
        free(expected);
        buffer_free(&out);
    }
}

/* A frame that asks for 512 MiB of history; the reader allocates nothing for it. */
static void a_zstd_window_that_is_too_large_is_refused(void **state)
{
    (void)state;
    static const unsigned char frame[] = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x98, 0x01, 0x00, 0x00};
    buffer out = {0};
    ASSERT_FAILS(read_all(frame, sizeof frame, &out), NRL_ERR_DATA, "its window is larger than 128 MiB");
    buffer_free(&out);
}

/* The name does not matter: all are called .jsonl. */
static void a_compressed_file_is_read_as_its_text(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < N_PACKERS; i++) {
        unsigned char packed[200];
        char *path = mem_printf("%s/%s.jsonl", f->dir, packers[i].name);
        support_write_bytes(path, packed, packers[i].pack("{\"text\": \"abc\"}\n", 16, packed, sizeof packed));
        dataset_options o = {.host = test_host(),
                             .source = node_string(&f->memory, path, strlen(path)),
                             .tokenizer = f->tok,
                             .quiet = true};
        dataset *d = support_open(&o);
        assert_int_equal(dataset_example_tokens(d, 0), 5);
        dataset_close(d);
        free(path);
    }
}

static void other_formats_are_refused_with_a_command_that_converts_them(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"PAR1....",
         "f.x: a Parquet file; expected rows\nhint: python3 -c \"import pandas; pandas.read_parquet('f.x')"},
        {"PK\003\004....", "pandas.read_excel('f.x').to_json('f.x.jsonl'"},
        {"\377\376a", "hint: iconv -f UTF-16 -t UTF-8 'f.x' >'f.x.utf8'"},
        {"BZh9", "hint: bunzip2 -k 'f.x'"},
        {"\377\377\377\377", "datasets.Dataset.from_file('f.x').to_json('f.x.jsonl')"},
        {"\200\004\225", "if you trust it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_FAILS(file_check_is_text("f.x", cases[i][0], strlen(cases[i][0]), "rows"), NRL_ERR_DATA, cases[i][1]);
    ASSERT_OK(file_check_is_text("f.x", "{\"a\": 1}", 8, "rows"));
    ASSERT_OK(file_check_is_text("f.x", "", 0, "rows"));
}

/* "line:column:text|" of each row. */
static char *rows_of(const char *bytes, size_t size)
{
    file_stream *s;
    jsonl_rows *r;
    jsonl_text row;
    bool end;
    buffer out = {0};
    file_stream_open_memory("memory", bytes, size, &s);
    jsonl_rows_create(s, "memory", &r);
    for (;;) {
        ASSERT_OK(jsonl_rows_next(r, &row, &end));
        if (end) break;
        buffer_print(&out, "%d:%d:%.*s|", (int)row.line, (int)row.column, (int)row.size, row.text);
    }
    jsonl_rows_destroy(r);
    return buffer_take(&out);
}

static void assert_rows(const char *bytes, const char *expected)
{
    char *got = rows_of(bytes, strlen(bytes));
    assert_string_equal(got, expected);
    free(got);
}

static void rows_know_their_places(void **state)
{
    (void)state;
    assert_rows("{1}\n\n {2} \r\n{3}", "1:1:{1}|3:2:{2}|4:1:{3}|");
    assert_rows("[{1}, {2\n},\n  {3}]\n", "1:2:{1}|1:7:{2\n}|3:3:{3}|");
    assert_rows("\xEF\xBB\xBF[ ]", "");
    assert_rows("[{\"]\\\"}\"}]", "1:2:{\"]\\\"}\"}|");
}

static void rows_larger_than_the_window_stay_whole(void **state)
{
    (void)state;
    size_t size = 3 << 20;
    char *bytes = mem_alloc(size + 8);
    memset(bytes, 'x', size);
    bytes[0] = '{';
    memcpy(bytes + size, "\n{y}", 4);
    char *got = rows_of(bytes, size + 4);
    assert_int_equal(strlen(got), 4 + size + 9);
    assert_string_equal(got + 4 + size, "|2:1:{y}|");
    free(got);
    free(bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_of_a_compressed_file_follow_each_other),
        TEST(a_cut_file_is_an_error_at_every_length),
        TEST(damaged_data_is_an_error),
        TEST(text_that_follows_a_member_is_an_error),
        TEST(a_zstd_window_that_is_too_large_is_refused),
        TEST(a_compressed_file_is_read_as_its_text),
        TEST(other_formats_are_refused_with_a_command_that_converts_them),
        TEST(rows_know_their_places),
        TEST(rows_larger_than_the_window_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
