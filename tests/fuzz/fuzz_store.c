/*
 * fuzz_store.c - any bytes from two clients of the ranks' store, in pieces: each client is answered
 * or dropped, and the content of the store stays within its limits. The first byte sets the size of
 * the pieces. A store with a secret answers nothing.
 */
#include "session.h"
#include "wire.h"
#include <nrl/status.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char valid[] = {STORE_VALIDATE, '\xce', '\xf7', '\x85', '\x3c'};

static void knock(const uint8_t *bytes, size_t size, size_t piece)
{
    static const secret_key secret = {"not to be guessed"};
    tcp_table t = {0};
    tcp_session s = {.secret = &secret};
    bool open = true, changed = false;
    for (size_t at = 0; open && at < size; at += piece) {
        buffer_add(&s.in, (const char *)bytes + at, size - at < piece ? size - at : piece);
        open = tcp_session_run(&s, &t, &changed);
    }
    NRL_ASSERT(s.validated || s.joined || changed, ==, false);
    NRL_ASSERT(t.n_entries, ==, 0);
    NRL_ASSERT(s.out.size, <=, STORE_CHALLENGE_BYTES + sizeof(uint32_t)); /* a challenge, and a refusal */
    tcp_session_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    tcp_table t = {0};
    tcp_session s[2] = {{.validated = false}, {.validated = false}};
    bool open[2] = {true, true}, changed = false;
    if (!size) return 0;
    size_t piece = 1 + bytes[0];
    knock(bytes + 1, size - 1, piece);
    for (int i = 0; i < 2; i++)
        buffer_add(&s[i].in, valid, sizeof valid);
    for (size_t at = 1, turn = 0; at < size; turn++) {
        size_t n = size - at < piece ? size - at : piece;
        tcp_session *x = &s[turn % 2];
        if (open[turn % 2]) {
            buffer_add(&x->in, (const char *)bytes + at, n);
            open[turn % 2] = tcp_session_run(x, &t, &changed);
        }
        for (int i = 0; i < 2; i++)
            if (open[i] && tcp_session_wake(&s[i], &t)) open[i] = tcp_session_run(&s[i], &t, &changed);
        at += n;
    }
    NRL_ASSERT(t.bytes, <=, STORE_TABLE_BYTES);
    NRL_ASSERT(t.n_values, <=, t.n_entries);
    for (int i = 0; i < 2; i++)
        tcp_session_free(&s[i]);
    tcp_table_free(&t);
    NRL_ASSERT(t.bytes, ==, 0);
    return 0;
}
