/*
 * test_flash_tile.c - the index arithmetic of attention compared with its definition, key by key,
 * on random segments with prefixes, cached keys and windows, and random parts of their rows.
 */
#include "ops/flash_tile.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SEGMENTS = 6, ROUNDS = 400 };

typedef struct {
    int32_t n, cu_q[SEGMENTS + 1], cu_k[SEGMENTS + 1], prefix[SEGMENTS], window;
    flash_part part;
} layout;

static uint32_t random_state = 1;

static int32_t below(int32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int32_t)((random_state >> 8) % (uint32_t)n);
}

/* All of n rows, or some. */
static flash_range random_range(int32_t n)
{
    flash_range r = {0, n};
    if (!below(3) || !n) return r;
    r.begin = below(n);
    r.end = r.begin + 1 + below(n - r.begin);
    return r;
}

static layout random_layout(void)
{
    layout l = {.n = 1 + below(SEGMENTS), .window = below(3) ? 0 : 1 + below(40)};
    for (int s = 0; s < l.n; s++) {
        int32_t queries = below(5) ? below(50) : 0, cached = below(3) ? 0 : below(70);
        l.cu_q[s + 1] = l.cu_q[s] + queries;
        l.cu_k[s + 1] = l.cu_k[s] + queries + cached;
        l.prefix[s] = -1;
    }
    for (int s = 1; s < l.n; s++)
        if (!below(3)) l.prefix[s] = 0;
    l.part.queries = random_range(l.cu_q[l.n]);
    l.part.keys = random_range(l.cu_k[l.n]);
    return l;
}

/* The definition, in rows of k: does query i of segment s see row `row`, and at which position? */
static bool defined_to_see(const layout *l, int s, int32_t i, int32_t row, int32_t *position)
{
    int32_t p = l->prefix[s], n_prefix = p < 0 ? 0 : l->cu_k[p + 1] - l->cu_k[p];
    int32_t n_own = l->cu_k[s + 1] - l->cu_k[s], n = l->cu_q[s + 1] - l->cu_q[s];
    if (p >= 0 && row >= l->cu_k[p] && row < l->cu_k[p + 1])
        *position = row - l->cu_k[p];
    else if (row >= l->cu_k[s] && row < l->cu_k[s + 1])
        *position = n_prefix + row - l->cu_k[s];
    else
        return false;
    int32_t last = n_prefix + n_own - n + i;
    return *position <= last && (!l->window || *position > last - l->window);
}

static flash_segment segment_at(const layout *l, int s)
{
    return flash_segment_of(l->cu_q, l->cu_k, l->prefix, &l->part, s);
}

static bool has_row(const layout *l, int32_t row)
{
    return row >= l->part.keys.begin && row < l->part.keys.end;
}

/* Walks over the tiles of keys of the queries of a tile that are there, as the kernels do; returns their number. */
static int32_t check_query_tile(const layout *l, int s, int32_t from, int32_t tile, int32_t size)
{
    flash_segment g = segment_at(l, s);
    flash_range rows = flash_rows_there(from, tile, g.q_skipped, g.n_queries);
    int32_t first = rows.begin, n = rows.end - rows.begin;
    if (n <= 0) return 0;
    assert_int_equal(g.q_begin + g.n_queries <= l->part.queries.end - l->part.queries.begin, true);
    flash_range range = flash_keys_of(&g, l->window, first, n);
    int met[1024] = {0};
    flash_keys k;
    for (int32_t at = range.begin; at < range.end; at += k.n) {
        k = flash_keys_at(&g, at, range.end, size);
        assert_true(k.n > 0 && k.n <= size);
        bool all = true;
        for (int32_t j = 0; j < k.n; j++) {
            int32_t row = l->part.keys.begin + k.row + j;
            assert_true(has_row(l, row));
            met[row]++;
            for (int32_t i = first; i < first + n; i++) {
                int32_t position;
                bool sees = defined_to_see(l, s, g.q_skipped + i, row, &position);
                flash_range columns = flash_columns_of(&g, l->window, i, &k);
                assert_int_equal(sees, flash_sees(&g, l->window, i, k.position + j));
                assert_int_equal(sees, j >= columns.begin && j < columns.end);
                if (sees) assert_int_equal(position, k.position + j);
                all = all && sees;
            }
        }
        assert_int_equal(all, flash_sees_all(&g, l->window, first, n, &k));
    }
    for (int32_t row = 0; row < l->cu_k[l->n]; row++) {
        int32_t position;
        bool any = false;
        for (int32_t i = first; i < first + n; i++)
            any = any || (has_row(l, row) && defined_to_see(l, s, g.q_skipped + i, row, &position));
        assert_true(any ? met[row] == 1 : met[row] <= 1);
    }
    return n;
}

static void queries_meet_each_key_that_they_see_once(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        layout l = random_layout();
        int32_t size = 1 + below(20), keys = 1 + below(20);
        int32_t met = 0;
        for (int s = 0; s < l.n; s++)
            for (int32_t i = 0; i < l.cu_q[s + 1] - l.cu_q[s]; i += size)
                met += check_query_tile(&l, s, i, size, keys);
        assert_int_equal(met, l.part.queries.end - l.part.queries.begin);
    }
}

/* The keys of a tile of segment `owner` that are there: queries inside the range may see them, none outside. */
static int32_t check_key_tile(const layout *l, int owner, int32_t from, int32_t tile)
{
    flash_segment own = segment_at(l, owner);
    flash_range rows = flash_rows_there(from, tile, own.own_skipped, own.n_own);
    int32_t first = rows.begin, n = rows.end - rows.begin;
    if (n <= 0) return 0;
    for (int s = 0; s < l->n; s++) {
        flash_segment g = segment_at(l, s);
        int32_t shift;
        bool looks = flash_looks_at(&g, l->prefix, s, owner, &shift);
        flash_range range = {0, 0};
        if (looks) range = flash_queries_of(&g, l->window, shift + first, n);
        for (int32_t i = 0; i < g.n_queries; i++) {
            bool any = false, inside = i >= range.begin && i < range.end;
            for (int32_t j = first; j < first + n; j++) {
                int32_t position;
                bool sees = defined_to_see(l, s, g.q_skipped + i, l->cu_k[owner] + own.own_skipped + j, &position);
                if (sees) assert_int_equal(position, shift + j);
                flash_range seeing = flash_rows_of(shift + first - g.q_position - range.begin, l->window, j - first,
                                                   range.end - range.begin);
                if (inside) assert_int_equal(sees, i >= range.begin + seeing.begin && i < range.begin + seeing.end);
                any = any || sees;
            }
            assert_true(inside || !any);
            if (n == 1) assert_int_equal(inside, any); /* one key's range is exact */
        }
    }
    return n;
}

static void keys_meet_all_queries_that_see_them(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        layout l = random_layout();
        int32_t size = below(2) ? 1 : 1 + below(20);
        int32_t met = 0;
        for (int s = 0; s < l.n; s++)
            for (int32_t j = 0; j < l.cu_k[s + 1] - l.cu_k[s]; j += size)
                met += check_key_tile(&l, s, j, size);
        assert_int_equal(met, l.part.keys.end - l.part.keys.begin);
    }
}

static void a_grid_holds_every_tile_of_every_segment_once(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        layout l = random_layout();
        int32_t size = 1 + below(64), met[SEGMENTS][64] = {{0}};
        int32_t n_tiles = flash_tile_count(l.cu_q[l.n], l.n, size);
        for (int32_t t = 0; t < n_tiles; t++) {
            flash_place p = flash_place_of(l.cu_q, l.n, size, t);
            assert_true(p.segment >= 0 && p.segment < l.n && p.first >= 0 && p.first % size == 0);
            if (p.first < l.cu_q[p.segment + 1] - l.cu_q[p.segment]) met[p.segment][p.first / size]++;
        }
        for (int s = 0; s < l.n; s++)
            for (int32_t i = 0; i * size < l.cu_q[s + 1] - l.cu_q[s]; i++)
                assert_int_equal(met[s][i], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_meet_each_key_that_they_see_once),
        cmocka_unit_test(keys_meet_all_queries_that_see_them),
        cmocka_unit_test(a_grid_holds_every_tile_of_every_segment_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
