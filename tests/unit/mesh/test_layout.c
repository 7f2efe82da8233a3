/*
 * test_layout.c - shards of tensors as ranges, compared with a count of every element.
 */
#include "mesh/layout.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

enum { MOST = 512 };

/* The elements of the piece by brute force, in its own order: those of the box, then the flat range. */
static int64_t list_elements(const layout_shard *p, int64_t *list)
{
    int64_t total = 1, in_box = 0, n = 0;
    for (int d = 0; d < p->n_dims; d++)
        total *= p->dims[d];
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i;
        bool inside = true;
        for (int d = p->n_dims - 1; d >= 0; d--) {
            int64_t at = rest % p->dims[d];
            rest /= p->dims[d];
            inside = inside && at >= p->begin[d] && at < p->end[d];
        }
        if (!inside) continue;
        if (in_box >= p->flat_begin && in_box < p->flat_end) list[n++] = i;
        in_box++;
    }
    return n;
}

static void check(const layout_shard *p)
{
    int64_t want[MOST], at = 0, from, length, k = 0, n = list_elements(p, want);
    assert_int_equal(piece_numel(p), n);
    while (piece_next(p, &at, &from, &length)) {
        assert_true(length > 0);
        for (int64_t i = 0; i < length; i++)
            assert_int_equal(from + i, want[k++]);
        assert_int_equal(at, k);
    }
    assert_int_equal(k, n);
}

static int64_t numel_of_box(const layout_shard *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->n_dims; d++)
        n *= p->end[d] - p->begin[d];
    return n;
}

static void every_flat_range_of_every_box_is_listed_in_order(void **state)
{
    (void)state;
    static const int64_t dims[3] = {3, 4, 5};
    static const int64_t boxes[][6] = {{0, 3, 0, 4, 0, 5}, {1, 2, 0, 4, 0, 5}, {0, 3, 1, 3, 0, 5},
                                       {0, 3, 0, 4, 2, 4}, {1, 3, 1, 4, 1, 5}, {2, 3, 3, 4, 4, 5}};
    for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
        layout_shard p = {.n_dims = 3};
        memcpy(p.dims, dims, sizeof dims);
        for (int d = 0; d < 3; d++) {
            p.begin[d] = boxes[b][2 * d];
            p.end[d] = boxes[b][2 * d + 1];
        }
        int64_t n = numel_of_box(&p);
        for (p.flat_begin = 0; p.flat_begin <= n; p.flat_begin++)
            for (p.flat_end = p.flat_begin; p.flat_end <= n; p.flat_end++)
                check(&p);
    }
}

static void a_flat_cut_of_a_whole_tensor_is_one_stretch(void **state)
{
    (void)state;
    layout_shard p = {.n_dims = 2, .dims = {7, 9}, .end = {7, 9}, .flat_begin = 10, .flat_end = 50};
    int64_t at = 0, from, n;
    assert_true(piece_next(&p, &at, &from, &n));
    assert_true(from == 10 && n == 40 && at == 40);
    assert_false(piece_next(&p, &at, &from, &n));
}

static void without_a_mesh_everything_lies_here(void **state)
{
    (void)state;
    nrl_part part;
    nrl_param p;
    const int64_t dims[2] = {3, 5};
    param_init(&p, &part, "w", 2, dims);
    assert_int_equal(layout_local_numel(NULL, &p), 15);
    assert_true(layout_is_whole(NULL, &p));
    assert_int_equal(layout_owner(NULL, 0, &p), 0);
}

static void an_axis_that_one_rank_has_alone_leaves_its_first_range(void **state)
{
    (void)state;
    nrl_part part;
    nrl_param p;
    const int64_t dims[2] = {3, 5}, begin[2] = {0, 9}, end[2] = {9, 15};
    param_init(&p, &part, "w", 2, dims);
    part.layout = (nrl_layout){.n_placements = 1, .placements = {{"data", NRL_SHARD_FLAT, 2, begin, end}}};
    layout_shard piece = layout_shard_of(NULL, 0, &part, 0);
    assert_int_equal(piece_numel(&piece), 9);
    assert_false(layout_is_whole(NULL, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flat_range_of_every_box_is_listed_in_order),
        cmocka_unit_test(a_flat_cut_of_a_whole_tensor_is_one_stretch),
        cmocka_unit_test(without_a_mesh_everything_lies_here),
        cmocka_unit_test(an_axis_that_one_rank_has_alone_leaves_its_first_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
