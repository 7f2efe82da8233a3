/*
 * test_calls.c - every call of the gloo collective between ranks of nrl: numbers of ranks, sizes
 * that do not divide evenly, uneven counts, in place and not, all dialects.
 */
#include "ranks.h"

static const ranks_options dialects[] = {{.dialect = TCP22}, {.dialect = TCP23}, {.dialect = UV}};
enum { N_DIALECTS = 3 };
static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 64, 1000, 65537, 700001};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static int64_t value(int64_t i, int32_t rank)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(rank + 1) * 40503u;
    x ^= x >> 15;
    return (int64_t)(x % 2001) - 1000;
}

static void all_reduce_body(ranks_one *r)
{
    for (int n = 0; n < N_SIZES; n++) {
        for (int place = 0; place < 2; place++) {
            int64_t count = sizes[n];
            int64_t *in = malloc(8 * (size_t)count + 8), *out = place ? in : malloc(8 * (size_t)count + 8);
            for (int64_t i = 0; i < count; i++)
                in[i] = value(i, r->rank);
            CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_I64, .reduce = NRL_REDUCE_OP_SUM, .send = in,
                              .receive = out, .count = count) == NRL_OK);
            for (int64_t i = 0; i < count; i++) {
                int64_t sum = 0;
                for (int32_t k = 0; k < r->size; k++)
                    sum += value(i, k);
                CHECK(r, out[i] == sum);
            }
            if (!place) free(out);
            free(in);
        }
    }
}

static void all_reduce_adds_up_every_size_on_every_number_of_ranks(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        for (int32_t ranks = 1; ranks <= 5; ranks++)
            assert_true(ranks_run(ranks, &dialects[d], all_reduce_body, NULL));
}

static void reduce_body(ranks_one *r)
{
    for (int n = 0; n < N_SIZES; n++) {
        int64_t count = sizes[n];
        int32_t root = n % r->size;
        int32_t *in = malloc(4 * (size_t)count + 4), *out = calloc(4, (size_t)count + 1);
        for (int64_t i = 0; i < count; i++)
            in[i] = (int32_t)value(i, r->rank);
        CHECK(r, RANKS_DO(r->self, reduce, .dtype = NRL_DTYPE_I32, .reduce = NRL_REDUCE_OP_MAX, .send = in,
                          .receive = r->rank == root ? out : NULL, .count = count, .peer = root) == NRL_OK);
        for (int64_t i = 0; i < count && r->rank == root; i++) {
            int64_t most = -2000;
            for (int32_t k = 0; k < r->size; k++)
                most = value(i, k) > most ? value(i, k) : most;
            CHECK(r, out[i] == most);
        }
        free(in);
        free(out);
    }
}

static void reduce_brings_the_result_to_any_root(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        for (int32_t ranks = 1; ranks <= 5; ranks++)
            assert_true(ranks_run(ranks, &dialects[d], reduce_body, NULL));
}

/* A reduce whose last message, to the root, must not overtake those around the ring. */
static void reduces_body(ranks_one *r)
{
    for (int32_t i = 0; i < 300; i++) {
        int32_t in[33], out[33] = {0}, all[RANKS_MAX], root = i % r->size;
        for (int k = 0; k < 33; k++)
            in[k] = i + k + r->rank;
        CHECK(r, RANKS_DO(r->self, reduce, .dtype = NRL_DTYPE_I32, .reduce = NRL_REDUCE_OP_SUM, .send = in,
                          .receive = r->rank == root ? out : NULL, .count = 33, .peer = root) == NRL_OK);
        for (int k = 0; k < 33 && r->rank == root; k++)
            CHECK(r, out[k] == r->size * (i + k) + r->size * (r->size - 1) / 2);
        in[0] = i * r->rank;
        CHECK(r,
              RANKS_DO(r->self, all_gather, .dtype = NRL_DTYPE_I32, .send = in, .receive = all, .count = 1) == NRL_OK);
        for (int32_t k = 0; k < r->size; k++)
            CHECK(r, all[k] == i * k);
    }
}

static void reduces_one_after_the_other_keep_apart(void **state)
{
    (void)state;
    assert_true(ranks_run(4, &dialects[TCP22], reduces_body, NULL));
    assert_true(ranks_run(5, &dialects[TCP23], reduces_body, NULL));
}

/* Rank k's share: sometimes nothing, sometimes more than a segment. */
static int64_t share(int32_t k, int64_t unit)
{
    return k % 3 == 1 ? 0 : unit + k;
}

static void reduce_scatter_body(ranks_one *r)
{
    static const int64_t units[] = {0, 1, 1000, 400000};
    for (int n = 0; n < 4; n++) {
        int64_t counts[RANKS_MAX], offsets[RANKS_MAX], total = 0;
        for (int32_t k = 0; k < r->size; k++) {
            counts[k] = share(k, units[n]);
            offsets[k] = total + 2 * k; /* gaps */
            total += counts[k];
        }
        size_t bytes = 8 * (size_t)(total + 2 * r->size);
        double *in = malloc(bytes + 8), *out = malloc(bytes + 8);
        for (int64_t i = 0; i < total + 2 * r->size; i++)
            in[i] = (double)value(i, r->rank);
        CHECK(r, RANKS_DO(r->self, reduce_scatter, .dtype = NRL_DTYPE_F64, .reduce = NRL_REDUCE_OP_AVERAGE, .send = in,
                          .receive = out, .counts = counts, .offsets = offsets) == NRL_OK);
        for (int64_t i = 0; i < counts[r->rank]; i++) {
            double sum = 0;
            for (int32_t k = 0; k < r->size; k++)
                sum += (double)value(offsets[r->rank] + i, k);
            CHECK(r, out[i] == sum / r->size);
        }
        /* equal shares, into the own place */
        int64_t each = units[n];
        double *all = calloc(8, (size_t)(each * r->size) + 1);
        for (int64_t i = 0; i < each * r->size; i++)
            all[i] = (double)value(i, r->rank);
        double *mine = all + each * r->rank;
        CHECK(r, RANKS_DO(r->self, reduce_scatter, .dtype = NRL_DTYPE_F64, .reduce = NRL_REDUCE_OP_MIN, .send = all,
                          .receive = mine, .count = each) == NRL_OK);
        for (int64_t i = 0; i < each; i++) {
            double least = 2000;
            for (int32_t k = 0; k < r->size; k++) {
                double v = (double)value(each * r->rank + i, k);
                least = v < least ? v : least;
            }
            CHECK(r, mine[i] == least);
        }
        free(all);
        free(in);
        free(out);
    }
}

static void reduce_scatter_of_uneven_shares_gives_each_its_own(void **state)
{
    static const ranks_options foreign = {.dialect = TCP23, .peers = 1};
    (void)state;
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        assert_true(ranks_run(ranks, &dialects[TCP23], reduce_scatter_body, NULL));
        assert_true(ranks_run(ranks, &foreign, reduce_scatter_body, NULL));
    }
    assert_true(ranks_run(3, &dialects[UV], reduce_scatter_body, NULL));
}

static void gather_body(ranks_one *r)
{
    for (int n = 0; n < N_SIZES; n++) {
        int64_t counts[RANKS_MAX], offsets[RANKS_MAX], total = 0, count = sizes[n];
        for (int32_t k = 0; k < r->size; k++) {
            counts[k] = share(k, count);
            offsets[k] = total + k;
            total += counts[k];
        }
        size_t room = (size_t)(total + (count + 1) * r->size + r->size);
        uint8_t *in = malloc((size_t)count + 16), *out = calloc(1, room);
        for (int64_t i = 0; i < count + 8; i++)
            in[i] = (uint8_t)value(i, r->rank);
        /* equal */
        CHECK(r, RANKS_DO(r->self, all_gather, .dtype = NRL_DTYPE_U8, .send = in, .receive = out, .count = count) ==
                     NRL_OK);
        for (int32_t k = 0; k < r->size; k++)
            for (int64_t i = 0; i < count; i++)
                CHECK(r, out[k * count + i] == (uint8_t)value(i, k));
        /* from the own place */
        memset(out, 0, room);
        memcpy(out + r->rank * count, in, (size_t)count);
        CHECK(r, RANKS_DO(r->self, all_gather, .dtype = NRL_DTYPE_U8, .send = out + r->rank * count, .receive = out,
                          .count = count) == NRL_OK);
        for (int32_t k = 0; k < r->size; k++)
            for (int64_t i = 0; i < count; i++)
                CHECK(r, out[k * count + i] == (uint8_t)value(i, k));
        /* uneven, with gaps that stay untouched; to all, then to one */
        for (int one = 0; one < 2; one++) {
            int32_t root = one ? n % r->size : r->rank;
            memset(out, 255, room);
            if (one)
                CHECK(r, RANKS_DO(r->self, gather, .dtype = NRL_DTYPE_U8, .send = in, .peer = root,
                                  .receive = r->rank == root ? out : NULL, .counts = counts,
                                  .offsets = offsets) == NRL_OK);
            else
                CHECK(r, RANKS_DO(r->self, all_gather, .dtype = NRL_DTYPE_U8, .send = in, .receive = out,
                                  .counts = counts, .offsets = offsets) == NRL_OK);
            for (int32_t k = 0; k < r->size && r->rank == root; k++) {
                for (int64_t i = 0; i < counts[k]; i++)
                    CHECK(r, out[offsets[k] + i] == (uint8_t)value(i, k));
                CHECK(r, out[offsets[k] + counts[k]] == 255);
            }
        }
        free(in);
        free(out);
    }
}

static void gathered_blocks_keep_their_order_and_leave_gaps_alone(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        for (int32_t ranks = 1; ranks <= 5; ranks++)
            assert_true(ranks_run(ranks, &dialects[d], gather_body, NULL));
}

static void spread_body(ranks_one *r)
{
    for (int n = 0; n < N_SIZES; n++) {
        int64_t count = sizes[n];
        int32_t root = n % r->size;
        size_t room = (size_t)((count + 8) * r->size);
        uint8_t *in = malloc(room), *out = calloc(1, room);
        for (int64_t i = 0; i < (int64_t)room; i++)
            in[i] = (uint8_t)value(i, r->rank);
        /* broadcast */
        if (r->rank == root) memcpy(out, in, (size_t)count);
        CHECK(r, RANKS_DO(r->self, broadcast, .dtype = NRL_DTYPE_U8, .receive = out, .count = count, .peer = root) ==
                     NRL_OK);
        for (int64_t i = 0; i < count; i++)
            CHECK(r, out[i] == (uint8_t)value(i, root));
        /* scatter */
        CHECK(r, RANKS_DO(r->self, scatter, .dtype = NRL_DTYPE_U8, .peer = root, .count = count,
                          .send = r->rank == root ? in : NULL, .receive = out) == NRL_OK);
        for (int64_t i = 0; i < count; i++)
            CHECK(r, out[i] == (uint8_t)value(r->rank * count + i, root));
        /* all_to_all, even */
        CHECK(r, RANKS_DO(r->self, all_to_all, .dtype = NRL_DTYPE_U8, .send = in, .receive = out, .count = count) ==
                     NRL_OK);
        for (int32_t k = 0; k < r->size; k++)
            for (int64_t i = 0; i < count; i++)
                CHECK(r, out[k * count + i] == (uint8_t)value(r->rank * count + i, k));
        /* uneven: rank a sends count + b bytes to rank b, or none */
        int64_t counts[RANKS_MAX], offsets[RANKS_MAX], get[RANKS_MAX], at[RANKS_MAX], sum = 0;
        for (int32_t k = 0; k < r->size; k++) {
            counts[k] = (r->rank + k) % 3 == 1 ? 0 : count + k;
            offsets[k] = k * (count + 7);
            get[k] = (r->rank + k) % 3 == 1 ? 0 : count + r->rank;
            at[k] = sum;
            sum += get[k];
        }
        CHECK(r, RANKS_DO(r->self, all_to_all, .dtype = NRL_DTYPE_U8, .send = in, .receive = out, .counts = counts,
                          .offsets = offsets, .receive_counts = get, .receive_offsets = at) == NRL_OK);
        for (int32_t k = 0; k < r->size; k++)
            for (int64_t i = 0; i < get[k]; i++)
                CHECK(r, out[at[k] + i] == (uint8_t)value(r->rank * (count + 7) + i, k));
        free(in);
        free(out);
    }
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
}

static void broadcast_scatter_and_all_to_all_bring_each_its_block(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        for (int32_t ranks = 1; ranks <= 5; ranks++)
            assert_true(ranks_run(ranks, &dialects[d], spread_body, NULL));
}

/* Everybody sends to everybody under crossed tags, sends started before receives and the other way. */
static void point_body(ranks_one *r)
{
    enum { TAGS = 5, COUNT = 3000 };
    nrl_request *requests[2 * TAGS * RANKS_MAX];
    static _Thread_local int32_t in[RANKS_MAX][TAGS][COUNT], out[RANKS_MAX][TAGS][COUNT];
    int n = 0;
    for (int step = 0; step < 2; step++)
        for (int32_t k = 0; k < r->size; k++)
            for (int t = 0; t < TAGS && k != r->rank; t++) {
                bool sends = (step + r->rank) % 2;
                int tag = sends ? t : TAGS - 1 - t;
                nrl_comm_args a = {.size = sizeof a,
                                   .dtype = NRL_DTYPE_I32,
                                   .peer = k,
                                   .count = t * 700,
                                   .tag = (uint64_t)tag * 1000003};
                if (sends) {
                    for (int i = 0; i < COUNT; i++)
                        out[k][t][i] = i + 10000 * t + 100000 * k + 1000000 * r->rank;
                    a.send = out[k][t];
                    CHECK(r, gloo.send(r->self, &a, &requests[n++]) == NRL_OK);
                } else {
                    a.count = tag * 700;
                    a.receive = in[k][tag];
                    CHECK(r, gloo.recv(r->self, &a, &requests[n++]) == NRL_OK);
                }
            }
    while (n > 0)
        CHECK(r, ranks_end(r->self, requests[--n]) == NRL_OK);
    for (int32_t k = 0; k < r->size; k++)
        for (int t = 0; t < TAGS && k != r->rank; t++)
            for (int i = 0; i < t * 700; i++)
                CHECK(r, in[k][t][i] == i + 10000 * t + 100000 * r->rank + 1000000 * k);
}

static void messages_are_matched_by_peer_and_tag(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        for (int32_t ranks = 2; ranks <= 4; ranks++)
            assert_true(ranks_run(ranks, &dialects[d], point_body, NULL));
}

/* Many calls of different kinds and sizes at once, waited for in another order. */
static void many_body(ranks_one *r)
{
    enum { CALLS = 40, COUNT = 50000 };
    nrl_request *requests[CALLS];
    float *data = malloc(sizeof(float) * CALLS * COUNT);
    for (int round = 0; round < 2; round++) {
        for (int c = 0; c < CALLS; c++) {
            int64_t count = c % 4 == 0 ? 1 : COUNT - c;
            nrl_comm_args a = {.size = sizeof a,
                               .dtype = NRL_DTYPE_F32,
                               .reduce = NRL_REDUCE_OP_AVERAGE,
                               .receive = data + c * COUNT,
                               .count = count,
                               .peer = c % r->size};
            for (int64_t i = 0; i < count; i++)
                data[c * COUNT + i] = (float)(r->rank + c);
            CHECK(r, (c % 5 == 4 ? gloo.broadcast : gloo.all_reduce)(r->self, &a, &requests[c]) == NRL_OK);
        }
        for (int c = 0; c < CALLS; c++)
            CHECK(r, ranks_end(r->self, requests[(c * 7 + r->rank) % CALLS]) == NRL_OK);
        for (int c = 0; c < CALLS; c++) {
            float expected = c % 5 == 4 ? (float)(c % r->size + c) : (float)(r->size - 1) / 2 + (float)c;
            for (int64_t i = 0; i < (c % 4 == 0 ? 1 : COUNT - c); i++)
                CHECK(r, data[c * COUNT + i] == expected);
        }
    }
    free(data);
}

static void many_calls_in_flight_do_not_mix(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIALECTS; d++)
        assert_true(ranks_run(d + 2, &dialects[d], many_body, NULL));
}

static void groups_body(ranks_one *r)
{
    void *half, *reversed, *inner;
    CHECK(r, gloo.split(r->self, r->rank % 2, 0, &half) == NRL_OK);
    CHECK(r, gloo.split(r->self, r->rank == 0 ? -1 : 7, -r->rank, &reversed) == NRL_OK);
    CHECK(r, (reversed == NULL) == (r->rank == 0));
    int32_t a = 1 << r->rank, b = 1 << r->rank, all[RANKS_MAX] = {0};
    nrl_request *one, *two;
    nrl_comm_args args = {.size = sizeof args, .dtype = NRL_DTYPE_I32, .reduce = NRL_REDUCE_OP_SUM, .count = 1};
    args.receive = &a;
    CHECK(r, gloo.all_reduce(half, &args, &one) == NRL_OK); /* at the same time as the whole */
    args.receive = &b;
    CHECK(r, gloo.all_reduce(r->self, &args, &two) == NRL_OK);
    CHECK(r, ranks_end(r->self, two) == NRL_OK);
    CHECK(r, ranks_end(half, one) == NRL_OK);
    CHECK(r, b == (1 << r->size) - 1);
    CHECK(r, a == (b & (r->rank % 2 ? 0xaa : 0x55)));
    if (reversed) {
        CHECK(r, RANKS_DO(reversed, all_gather, .dtype = NRL_DTYPE_I32, .send = &r->rank, .receive = all, .count = 1) ==
                     NRL_OK);
        for (int32_t k = 0; k < r->size - 1; k++)
            CHECK(r, all[k] == r->size - 1 - k);
    }
    CHECK(r, gloo.split(half, 0, -r->rank, &inner) == NRL_OK);
    int32_t root = r->rank;
    CHECK(r, RANKS_DO(inner, broadcast, .dtype = NRL_DTYPE_I32, .receive = &root, .count = 1) == NRL_OK);
    CHECK(r, root == r->size - 1 - ((r->size - 1 - r->rank) % 2)); /* the highest of its half */
    if (r->size >= 4 && r->rank < 4) {                             /* the same tag in two groups */
        int32_t peer = r->rank < 2 ? 1 : 0, got = -1, got_whole = -1;
        nrl_comm_args p = {.size = sizeof p, .dtype = NRL_DTYPE_I32, .count = 1, .tag = 3};
        if (r->rank < 2) {
            p.send = &r->rank, p.peer = peer;
            CHECK(r, gloo.send(half, &p, &one) == NRL_OK);
            p.peer = r->rank + 2;
            CHECK(r, gloo.send(r->self, &p, &two) == NRL_OK);
        } else {
            p.receive = &got_whole, p.peer = r->rank - 2;
            CHECK(r, gloo.recv(r->self, &p, &two) == NRL_OK);
            p.receive = &got, p.peer = peer;
            CHECK(r, gloo.recv(half, &p, &one) == NRL_OK);
        }
        CHECK(r, ranks_end(r->self, two) == NRL_OK);
        CHECK(r, ranks_end(half, one) == NRL_OK);
        if (r->rank >= 2) CHECK(r, got == r->rank - 2 && got_whole == r->rank - 2);
    }
    gloo.close(half);
    gloo.close(inner);
    if (reversed) gloo.close(reversed);
}

static void groups_are_ordered_by_key_and_keep_to_themselves(void **state)
{
    (void)state;
    for (int32_t ranks = 2; ranks <= 5; ranks++)
        assert_true(ranks_run(ranks, &dialects[TCP23], groups_body, NULL));
    assert_true(ranks_run(3, &dialects[TCP22], groups_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_adds_up_every_size_on_every_number_of_ranks),
        cmocka_unit_test(reduce_brings_the_result_to_any_root),
        cmocka_unit_test(reduces_one_after_the_other_keep_apart),
        cmocka_unit_test(reduce_scatter_of_uneven_shares_gives_each_its_own),
        cmocka_unit_test(gathered_blocks_keep_their_order_and_leave_gaps_alone),
        cmocka_unit_test(broadcast_scatter_and_all_to_all_bring_each_its_block),
        cmocka_unit_test(messages_are_matched_by_peer_and_tag),
        cmocka_unit_test(many_calls_in_flight_do_not_mix),
        cmocka_unit_test(groups_are_ordered_by_key_and_keep_to_themselves),
    };
    return cmocka_run_group_tests(tests, ranks_load, NULL);
}
