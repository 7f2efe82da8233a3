/*
 * test_wire.c - golden bytes: recorded output of Gloo (2022 and newer) and PyTorch 2.15.
 */
#include "../../../plugins/collectives/gloo/wire.c"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void hex(const char *text, uint8_t *out, size_t size)
{
    size_t n = 0;
    for (unsigned byte; *text; text++) {
        if (*text == ' ') continue;
        assert_int_equal(sscanf(text++, "%2x", &byte), 1);
        out[n++] = (uint8_t)byte;
    }
    assert_int_equal(n, size);
}

static void check_header(int dialect, wire_header h, const char *bytes)
{
    uint8_t golden[48], mine[48];
    const wire_dialect *d = &wire_dialects[dialect];
    wire_header back;
    hex(bytes, golden, d->header_size);
    wire_header_put(d, &h, mine);
    assert_memory_equal(mine, golden, d->header_size);
    assert_null(wire_header_get(d, golden, &back));
    assert_int_equal(back.opcode, h.opcode);
    assert_int_equal(back.slot, h.slot);
    assert_int_equal(back.length, h.length);
}

static void headers_are_gloos(void **state)
{
    (void)state;
    uint64_t slot = wire_slot(WIRE_BROADCAST, 1, 0);
    check_header(
        WIRE_TCP22, (wire_header){WIRE_SEND_READY, slot, 12},
        "3000000000000000 0200000000000000 0000000100000006 0000000000000000 0c00000000000000 0000000000000000");
    check_header(
        WIRE_TCP22, (wire_header){WIRE_DATA, slot, 12},
        "3c00000000000000 0100000000000000 0000000100000006 0000000000000000 0c00000000000000 0000000000000000");
    check_header(WIRE_UV, (wire_header){WIRE_DATA, slot, 12},
                 "2c00000000000000 0100000000000000 0000000100000006 0c00000000000000");
    check_header(
        WIRE_TCP23, (wire_header){WIRE_DATA, wire_slot(WIRE_ALL_REDUCE, 5, 0), 2},
        "3200000000000000 0100000000000000 0000000500000004 0000000000000000 0200000000000000 0000000000000000");
    check_header(
        WIRE_TCP23, (wire_header){WIRE_DATA, 77, 20},
        "4400000000000000 0100000000000000 4d00000000000000 0000000000000000 1400000000000000 0000000000000000");
    check_header(
        WIRE_TCP23, (wire_header){WIRE_RECV_READY, 0x28, 4},
        "3000000000000000 0300000000000000 2800000000000000 0000000000000000 0400000000000000 0000000000000000");
}

static void headers_that_make_no_sense_are_refused(void **state)
{
    uint8_t b[48];
    (void)state;
    for (int d = 0; d < WIRE_DIALECTS; d++) {
        wire_header h = {WIRE_DATA, 1, 12};
        const wire_dialect *w = &wire_dialects[d];
        wire_header_put(w, &h, b);
        b[8] = 0; /* bound buffers */
        assert_non_null(wire_header_get(w, b, &h));
        b[8] = 4;
        assert_non_null(wire_header_get(w, b, &h));
        b[8] = 1;
        b[0]++;
        assert_non_null(wire_header_get(w, b, &h));
        b[0]--;
        assert_null(wire_header_get(w, b, &h));
        memset(b + (d == WIRE_UV ? 24 : 32), 255, 8); /* nbytes wraps around to fit */
        put_u64(b, w->header_size - 1);
        assert_non_null(wire_header_get(w, b, &h));
    }
}

static struct sockaddr_storage ip4(const char *address, int port)
{
    struct sockaddr_storage s;
    struct sockaddr_in *a = (void *)&s;
    memset(&s, 0, sizeof s);
    a->sin_family = AF_INET;
    a->sin_port = htons((uint16_t)port);
    assert_int_equal(inet_pton(AF_INET, address, &a->sin_addr), 1);
    return s;
}

/* Captured: two ranks, host name "vm", port 0x8d05. */
static void the_blob_is_gloos(void **state)
{
    uint8_t golden[170] = {0}, mine[170];
    wire_peer p;
    (void)state;
    hex("0200000000000000 766d 8800000000000000 0200 8d05 7f000001", golden, 26);
    hex("ffffffffffffffff 0000000000000000 0100000000000000", golden + 146, 24);
    struct sockaddr_storage a = ip4("127.0.0.1", 0x8d05);
    const wire_dialect *d = &wire_dialects[WIRE_TCP23];
    assert_int_equal(wire_value_size(d, 2, "vm"), 170);
    wire_value_put(d, 0, 2, "vm", &a, mine);
    assert_memory_equal(mine, golden, 170);
    memset(golden + 26, 0xab, 120); /* Gloo leaves rubbish behind the address */
    assert_null(wire_value_get(d, 1, 0, 2, golden, 170, &p));
    assert_memory_equal(&p.address, &a, sizeof a);
    assert_int_equal(p.number, 1);
    assert_false(p.no_numbers);
    assert_null(wire_value_get(d, 1, 0, 2, golden, 154, &p)); /* numbers by rank */
    assert_true(p.no_numbers);
    assert_int_equal(p.number, 1);
    for (size_t n = 0; n < 170; n++)
        if (n != 154) assert_non_null(wire_value_get(d, 1, 0, 2, golden, n, &p));
    memset(golden, 255, 8); /* an absurd length of the host name */
    assert_non_null(wire_value_get(d, 1, 0, 2, golden, 170, &p));
}

static void lists_of_addresses_are_gloos(void **state)
{
    uint8_t value[3 * 136];
    struct sockaddr_storage each[4];
    wire_peer p;
    (void)state;
    for (int i = 0; i < 4; i++)
        each[i] = ip4("127.0.0.1", 1000 + i);
    wire_value_put(&wire_dialects[WIRE_TCP22], 1, 4, "vm", each, value);
    for (int32_t me = 0; me < 4; me++) {
        if (me == 1) continue;
        assert_null(wire_value_get(&wire_dialects[WIRE_TCP22], me, 1, 4, value, sizeof value, &p));
        assert_memory_equal(&p.address, &each[me], sizeof each[me]);
    }
    uint8_t golden[8];
    hex("ffffffffffffffff", golden, 8);
    assert_memory_equal(value + 128, golden, 8);
    wire_value_put(&wire_dialects[WIRE_UV], 1, 4, "vm", each, value);
    for (int32_t me = 0; me < 4; me++) {
        if (me == 1) continue;
        assert_null(wire_value_get(&wire_dialects[WIRE_UV], me, 1, 4, value, sizeof value, &p));
        assert_memory_equal(&p.address, &each[0], sizeof each[0]);
        assert_int_equal(p.number, me > 1 ? me - 1 : me);
    }
    assert_non_null(wire_value_get(&wire_dialects[WIRE_UV], 0, 1, 3, value, sizeof value, &p));
    value[0] = 77;
    assert_non_null(wire_value_get(&wire_dialects[WIRE_UV], 0, 1, 4, value, sizeof value, &p));
}

static void ports_are_compared_as_a_little_endian_machine_reads_them(void **state)
{
    (void)state;
    struct sockaddr_storage a = ip4("127.0.0.1", 0x1234), b = ip4("127.0.0.1", 0x3311);
    assert_true(wire_compare(&a, &b) > 0); /* 0x3412 > 0x1133 */
    assert_true(wire_compare(&b, &a) < 0);
    b = ip4("127.0.1.0", 1);
    assert_true(wire_compare(&b, &a) > 0);
    assert_int_equal(wire_compare(&a, &a), 0);
}

static void handshakes_are_gloos(void **state)
{
    uint8_t b[8];
    (void)state;
    assert_int_equal(wire_handshake_put(&wire_dialects[WIRE_TCP22], 3, b), 0);
    assert_int_equal(wire_handshake_put(&wire_dialects[WIRE_UV], 3, b), 4);
    assert_int_equal(wire_handshake_get(&wire_dialects[WIRE_UV], b), 3);
    assert_int_equal(wire_handshake_put(&wire_dialects[WIRE_TCP23], -2, b), 8);
    assert_int_equal(wire_handshake_get(&wire_dialects[WIRE_TCP23], b), -2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_gloos),
        cmocka_unit_test(headers_that_make_no_sense_are_refused),
        cmocka_unit_test(the_blob_is_gloos),
        cmocka_unit_test(lists_of_addresses_are_gloos),
        cmocka_unit_test(ports_are_compared_as_a_little_endian_machine_reads_them),
        cmocka_unit_test(handshakes_are_gloos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
