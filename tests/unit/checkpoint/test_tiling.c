/*
 * test_tiling.c - shards that cover a tensor, and shards that do not: randomly divided and randomly
 * damaged, compared with a count of every element.
 */
#include "base/arena.h"
#include "base/piece.h"
#include "checkpoint/tiling.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MAX_PIECES = 64, MAX_NUMEL = 400 };

static uint64_t seed = 7;

static int64_t draw(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return n > 0 ? (int64_t)(seed >> 33) % n : 0;
}

typedef struct {
    layout_shard of[MAX_PIECES];
    size_t n;
} set;

/* Cuts a box in two at random, some times over, then each box into flat ranges. */
static void cut(set *s, layout_shard p, int depth)
{
    int d = (int)draw(p.n_dims);
    int64_t length = p.end[d] - p.begin[d], flat = 1;
    if (depth && length > 1) {
        layout_shard left = p;
        left.end[d] = p.begin[d] = p.begin[d] + 1 + draw(length - 1);
        cut(s, left, depth - 1);
        cut(s, p, depth - 1);
        return;
    }
    for (int i = 0; i < p.n_dims; i++)
        flat *= p.end[i] - p.begin[i];
    int64_t middle = draw(flat + 1);
    for (int i = 0; i < 2; i++) {
        p.flat_begin = i ? middle : 0;
        p.flat_end = i ? flat : middle;
        s->of[s->n++] = p;
    }
}

static bool tiles(const layout_shard **shards, size_t n)
{
    bool exact;
    assert_int_equal(tiling_check(shards, n, &exact), NRL_OK);
    return exact;
}

static bool is_exact(set *s)
{
    const layout_shard *shards[MAX_PIECES];
    for (size_t i = 0; i < s->n; i++)
        shards[i] = &s->of[s->n - 1 - i];
    return tiles(shards, s->n);
}

/* By counting; and boxes that are not whole by their own ranges do not count as exact. */
static bool covers(const set *s)
{
    unsigned char count[MAX_NUMEL] = {0};
    layout_shard whole = piece_of_whole(s->of[0].n_dims, s->of[0].dims);
    for (size_t i = 0; i < s->n; i++)
        for (int64_t at = 0, begin, n; piece_next(&s->of[i], &at, &begin, &n);)
            for (int64_t k = 0; k < n; k++)
                count[begin + k]++;
    for (int64_t i = 0; i < piece_numel(&whole); i++)
        if (count[i] != 1) return false;
    return true;
}

static void spoil(set *s)
{
    layout_shard *p = &s->of[draw((int64_t)s->n)];
    int d = (int)draw(p->n_dims);
    switch (draw(4)) {
    case 0:
        p->begin[d] = draw(p->dims[d]);
        break;
    case 1:
        p->end[d] = draw(p->dims[d] + 1);
        break;
    case 2:
        p->flat_end = draw(p->flat_end + 1);
        break;
    default:
        *p = s->of[draw((int64_t)s->n)];
    }
}

static void random_pieces_are_judged_as_counting_does(void **state)
{
    int n_exact = 0, n_not = 0;
    (void)state;
    for (int t = 0; t < 20000; t++) {
        static const int64_t shapes[][4] = {{17, 1, 1, 1}, {6, 7, 1, 1}, {3, 4, 5, 1}, {3, 2, 4, 3}};
        set s = {.n = 0};
        int n_dims = 1 + (int)draw(4);
        cut(&s, piece_of_whole(n_dims, shapes[n_dims - 1]), (int)draw(5));
        assert_true(is_exact(&s) && covers(&s));
        n_exact++;
        spoil(&s);
        bool sound = true;
        for (size_t i = 0; i < s.n; i++)
            sound = sound && piece_is_sound(&s.of[i]);
        if (!sound) continue;
        assert_true(covers(&s) || !is_exact(&s));
        n_not += !covers(&s);
    }
    assert_true(n_exact == 20000 && n_not > 3000);
}

static void a_tensor_without_elements_needs_no_piece(void **state)
{
    const int64_t none[] = {0, 5}, some[] = {2, 5};
    layout_shard p = piece_of_whole(2, none), q = piece_of_whole(2, some);
    const layout_shard *one = &p, *other = &q;
    (void)state;
    assert_true(tiles(&one, 1));
    q.flat_end = 0;
    assert_false(tiles(&other, 1));
    assert_false(tiles(&one, 0));
}

/* An index that a stranger wrote: every box has a length and a place of its own. Comparing each with each
 * would be 4e10 steps; the bound is a hundred times what sorting takes. */
static void many_boxes_take_no_more_than_sorting(void **state)
{
    enum { N = 200000, SECONDS = 20 };
    const int64_t dims[] = {2 * N, 2};
    layout_shard *all = mem_alloc(N * sizeof *all);
    const layout_shard **shards = mem_alloc(N * sizeof *shards);
    (void)state;
    for (int64_t i = 0; i < N; i++) {
        all[i] = piece_of_whole(2, dims);
        all[i].begin[0] = i;
        all[i].end[0] = 2 * N - i;
        all[i].begin[1] = i % 2;
        all[i].end[1] = 1 + i % 2;
        all[i].flat_end = 2 * N - 2 * i;
        shards[i] = &all[i];
    }
    clock_t begin = clock();
    assert_false(tiles(shards, N));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < SECONDS);
    free(all);
    free(shards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pieces_are_judged_as_counting_does),
        cmocka_unit_test(a_tensor_without_elements_needs_no_piece),
        cmocka_unit_test(many_boxes_take_no_more_than_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
