/*
 * clock.c - each rank asks rank 0 for the time in turn, several times. Rank 0 answers between question and arrival, so
 * the shortest round trip is the most precise (Cristian 1989).
 */
#include "profiling/clock.h"
#include "base/memory.h"
#include "mesh/store.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 8, KEY = 160 };
#define TIMEOUT_S 60.0

typedef struct {
    char ask[KEY], answer[KEY];
} key_pair;

static key_pair keys_of(const char *key, int32_t rank, int round)
{
    key_pair k;
    snprintf(k.ask, KEY, "%s/%d/%d", key, (int)rank, round);
    snprintf(k.answer, KEY, "%s/%d/%d/time", key, (int)rank, round);
    return k;
}

static nrl_status answer_one(nrl_store *store, const char *key, int32_t rank, int round, double (*now)(void *user),
                             void *user)
{
    const key_pair k = keys_of(key, rank, round);
    void *asked;
    size_t size;
    NRL_TRY(nrl_store_get(store, k.ask, TIMEOUT_S, &asked, &size));
    const double time = now(user);
    nrl_free(asked);
    return nrl_store_set(store, k.answer, &time, sizeof time);
}

static nrl_status ask_one(nrl_store *store, const char *key, int32_t rank, int round, double (*now)(void *user),
                          void *user, double *offset, double *round_trip)
{
    const key_pair k = keys_of(key, rank, round);
    const double begin = now(user);
    void *answer;
    size_t size;
    double time;
    NRL_TRY(nrl_store_set(store, k.ask, "?", 1));
    NRL_TRY(nrl_store_get(store, k.answer, TIMEOUT_S, &answer, &size));
    const double end = now(user);
    const bool is_time = size == sizeof time;
    if (is_time) memcpy(&time, answer, sizeof time);
    nrl_free(answer);
    if (!is_time) return nrl_fail(NRL_ERR_PEER, "cannot compare clocks: rank 0 sent %zu bytes", size);
    if (end - begin < *round_trip) {
        *round_trip = end - begin;
        *offset = time - (begin + end) / 2;
    }
    NRL_TRY(store_remove(store, k.ask));
    return store_remove(store, k.answer);
}

nrl_status clock_compare(nrl_store *store, const char *key, int32_t rank, int32_t world, double (*now)(void *user),
                         void *user, double *offset, double *round_trip)
{
    *offset = 0;
    *round_trip = rank ? INFINITY : 0;
    for (int32_t r = 1; r < world; r++)
        for (int i = 0; i < ROUNDS; i++) {
            if (rank == 0) NRL_TRY(answer_one(store, key, r, i, now, user));
            if (rank == r) NRL_TRY(ask_one(store, key, r, i, now, user, offset, round_trip));
        }
    return NRL_OK;
}
