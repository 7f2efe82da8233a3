/*
 * test_piece.c - shards of tensors compared with a map of every element.
 */
#include "base/piece.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ELEMENTS = 4096, TRIES = 4000 };

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static layout_shard random_piece(uint64_t *seed, int n_dims, const int64_t *dims)
{
    layout_shard p = piece_of_whole(n_dims, dims);
    int64_t box = 1;
    for (int d = 0; d < n_dims; d++) {
        if (random_below(seed, 2)) {
            p.begin[d] = random_below(seed, (uint32_t)dims[d] + 1);
            p.end[d] = p.begin[d] + random_below(seed, (uint32_t)(dims[d] - p.begin[d]) + 1);
        }
        box *= p.end[d] - p.begin[d];
    }
    p.flat_begin = random_below(seed, 2) ? random_below(seed, (uint32_t)box + 1) : 0;
    p.flat_end = random_below(seed, 2) ? p.flat_begin + random_below(seed, (uint32_t)(box - p.flat_begin) + 1) : box;
    return p;
}

/* place[g]: which element of the piece lies at g of the whole, -1 = none. */
static void draw(const layout_shard *p, int64_t *place)
{
    int64_t whole = 1, in_box = 0;
    for (int d = 0; d < p->n_dims; d++)
        whole *= p->dims[d];
    for (int64_t g = 0; g < whole; g++) {
        bool inside = true;
        int64_t rest = g;
        for (int d = p->n_dims; d-- > 0; rest /= p->dims[d])
            inside = inside && rest % p->dims[d] >= p->begin[d] && rest % p->dims[d] < p->end[d];
        bool held = inside && in_box >= p->flat_begin && in_box < p->flat_end;
        place[g] = held ? in_box - p->flat_begin : -1;
        in_box += inside;
    }
}

static int64_t random_dims(uint64_t *seed, int *n_dims, int64_t *dims)
{
    int64_t whole = 1;
    *n_dims = 1 + (int)random_below(seed, 4);
    for (int d = 0; d < *n_dims; d++)
        whole *= dims[d] = 1 + random_below(seed, 7);
    return whole;
}

static void what_two_pieces_have_in_common_is_what_a_picture_shows(void **state)
{
    static int64_t in_a[MAX_ELEMENTS], in_b[MAX_ELEMENTS];
    uint64_t seed = 1;
    (void)state;
    for (int t = 0; t < TRIES; t++) {
        int64_t dims[NRL_MAX_DIMS] = {0}, a_at, b_at, n, common = 0, last = -1;
        int n_dims;
        int64_t whole = random_dims(&seed, &n_dims, dims);
        layout_shard a = random_piece(&seed, n_dims, dims), b = random_piece(&seed, n_dims, dims);
        draw(&a, in_a);
        draw(&b, in_b);
        int64_t expected = 0;
        for (int64_t g = 0; g < whole; g++)
            expected += in_a[g] >= 0 && in_b[g] >= 0;
        piece_meeting m = piece_meet(&a, &b);
        while (piece_next_run(&m, &a_at, &b_at, &n)) {
            assert_true(n > 0);
            for (int64_t i = 0; i < n; i++, common++) {
                int64_t g = 0;
                while (in_a[g] != a_at + i)
                    g++;
                assert_true(g > last); /* rising, each once */
                assert_int_equal(in_b[g], b_at + i);
                last = g;
            }
        }
        assert_int_equal(common, expected);
    }
}

static void elements_below_a_place_are_counted(void **state)
{
    static int64_t in[MAX_ELEMENTS];
    uint64_t seed = 2;
    (void)state;
    for (int t = 0; t < TRIES; t++) {
        int64_t dims[NRL_MAX_DIMS] = {0}, below = 0;
        int n_dims;
        int64_t whole = random_dims(&seed, &n_dims, dims);
        layout_shard p = random_piece(&seed, n_dims, dims);
        assert_true(piece_is_sound(&p));
        draw(&p, in);
        for (int64_t g = 0; g <= whole; g++) {
            assert_int_equal(piece_below(&p, g), below);
            if (g < whole) below += in[g] >= 0;
        }
    }
}

static void shares_make_up_the_piece_and_are_cut_at_grains(void **state)
{
    (void)state;
    for (int32_t n = 1; n < 9; n++)
        for (int64_t numel = 0; numel < 200; numel += 7) {
            layout_shard p = piece_of_whole(1, (int64_t[]){numel});
            int64_t at = 0, largest = 0;
            for (int32_t i = 0; i < n; i++) {
                layout_shard share = piece_share(&p, i, n, 16);
                assert_int_equal(share.flat_begin, at);
                at = share.flat_end;
                assert_true(at == numel || at % 16 == 0);
                if (piece_numel(&share) > largest) largest = piece_numel(&share);
            }
            assert_int_equal(at, numel);
            assert_true(largest <= numel / n + 16);
        }
}

static void what_cannot_be_is_not_sound(void **state)
{
    (void)state;
    layout_shard good = piece_of_whole(2, (int64_t[]){4, 6});
    assert_true(piece_is_sound(&good) && piece_is_whole(&good));
#define BAD(change)                                                                                                    \
    do {                                                                                                               \
        layout_shard p = good;                                                                                         \
        change;                                                                                                        \
        assert_false(piece_is_sound(&p));                                                                              \
    } while (0)
    BAD(p.n_dims = 0);
    BAD(p.n_dims = NRL_MAX_DIMS + 1);
    BAD(p.dims[0] = -4);
    BAD(p.begin[1] = -1);
    BAD(p.begin[1] = 7);
    BAD(p.end[0] = 5);
    BAD(p.flat_begin = -1);
    BAD(p.flat_begin = 25);
    BAD(p.flat_end = 25);
    BAD((p.dims[0] = p.end[0] = INT64_MAX, p.dims[1] = p.end[1] = INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_two_pieces_have_in_common_is_what_a_picture_shows),
        cmocka_unit_test(elements_below_a_place_are_counted),
        cmocka_unit_test(shares_make_up_the_piece_and_are_cut_at_grains),
        cmocka_unit_test(what_cannot_be_is_not_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
