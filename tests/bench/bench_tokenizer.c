/*
 * bench_tokenizer.c - the speed with which a tokenizer opens, encodes and decodes on one core.
 * bench_tokenizer TOKENIZER TEXT: the text line by line, best of five runs; prints one JSON object.
 */
#include "base/file.h"
#include "base/clock.h"
#include "support/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, MAX_FILE = 1 << 28 };

static nrl_status encode_lines(const tokenizer *tok, tokenizer_scratch *s, const char *text, size_t size,
                               nrl_token_ids *ids)
{
    ids->n = 0;
    for (const char *p = text, *end = text + size, *stop; p < end; p = stop) {
        stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop + 1 : end;
        NRL_TRY(tokenizer_encode(tok, s, p, (size_t)(stop - p), 0, ids));
    }
    return NRL_OK;
}

static nrl_status measure(const tokenizer *tok, const char *text, size_t size, double open_s)
{
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_token_ids ids = {0};
    double encode_s = 1e9, decode_s = 1e9;
    nrl_status st = NRL_OK;
    for (int run = 0; run < RUNS && st == NRL_OK; run++) {
        double start = clock_seconds();
        st = encode_lines(tok, s, text, size, &ids);
        double mid = clock_seconds();
        char *back = NULL;
        if (st == NRL_OK) st = tokenizer_decode(tok, ids.ids, ids.n, false, &back, NULL);
        double end = clock_seconds();
        free(back);
        if (mid - start < encode_s) encode_s = mid - start;
        if (end - mid < decode_s) decode_s = end - mid;
    }
    if (st == NRL_OK)
        printf("{\"open_ms\": %.1f, \"bytes\": %zu, \"tokens\": %zu, \"encode_mb_s\": %.1f, "
               "\"decode_mb_s\": %.1f}\n",
               open_s * 1e3, size, ids.n, (double)size / encode_s * 1e-6, (double)size / decode_s * 1e-6);
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    return st;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT\n");
        return 2;
    }
    tokenizer *tok = NULL;
    char *text = NULL;
    size_t size;
    double start = clock_seconds();
    nrl_status st = test_tokenizer_open(argv[1], &tok);
    double open_s = clock_seconds() - start;
    if (st == NRL_OK) st = file_read(argv[2], MAX_FILE, &text, &size);
    if (st == NRL_OK) st = measure(tok, text, size, open_s);
    if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
    free(text);
    tokenizer_close(tok);
    return st != NRL_OK;
}
