/*
 * meet.c - ranks find each other through the store before NCCL is initialised, because NCCL waits for
 * missing ranks without naming them. Each rank publishes its machine under its number; rank 0 collects
 * all, then publishes NCCL's id, or the ranks that did not join.
 */
#include "group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 48, HOST = 256, WORDS = 400 };

double nccl_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void key_of(char *key, int32_t rank)
{
    snprintf(key, KEY, "nccl/here/%d", (int)rank);
}

/* Names the ranks that did not join, as "rank 3, 5"; empty: all joined. */
static nrl_status call_roll(nrl_store *store, int32_t world, double deadline, char *missing)
{
    size_t n = 0;
    missing[0] = 0;
    for (int32_t r = 0; r < world; r++) {
        char key[KEY];
        void *value;
        size_t size;
        double left = deadline - nccl_clock();
        key_of(key, r);
        nrl_status st = nrl_store_get(store, key, left > 0.01 ? left : 0.01, &value, &size);
        if (!st) {
            free(value);
            continue;
        }
        if (st != NRL_ERR_PEER) return st;
        if (n < WORDS - 32) n += (size_t)snprintf(missing + n, WORDS - n, "%s%d", n ? ", " : "rank ", (int)r);
    }
    return NRL_OK;
}

/* The message of rank 0: 'I' and the id, or 'E' and an error text. */
typedef struct {
    char kind;
    char text[WORDS];
} word;

static nrl_status publish(const nccl_api *api, nrl_store *store, int32_t world, double deadline)
{
    word w = {.kind = 'I'};
    nccl_id id;
    char missing[WORDS];
    NRL_TRY(call_roll(store, world, deadline, missing));
    if (missing[0]) {
        w.kind = 'E';
        snprintf(w.text, sizeof w.text, "%.300s did not join", missing);
    } else {
        int code = api->unique_id(&id);
        if (code) {
            w.kind = 'E';
            snprintf(w.text, sizeof w.text, "NCCL on rank 0 cannot create an id: %.200s", api->error_text(code));
        }
        memcpy(w.kind == 'I' ? w.text : missing, &id, sizeof id);
    }
    return nrl_store_set(store, "nccl/id", &w, sizeof w);
}

static nrl_status hear(nrl_store *store, double deadline, nccl_id *id)
{
    void *value;
    size_t size;
    double left = deadline - nccl_clock();
    nrl_status st = nrl_store_get(store, "nccl/id", left > 0.01 ? left : 0.01, &value, &size);
    if (st) {
        nrl_add_context("waiting for NCCL's id from rank 0");
        return st;
    }
    word w = {.kind = 'E', .text = "rank 0 published a message of the wrong size"};
    if (size == sizeof w) memcpy(&w, value, size);
    free(value);
    w.text[WORDS - 1] = 0;
    if (w.kind != 'I') return nrl_fail(NRL_ERR_PEER, "%s", w.text);
    memcpy(id, w.text, sizeof *id);
    return NRL_OK;
}

/* The number of lower ranks on the same machine; all have published by now. */
static nrl_status count_neighbours(nrl_store *store, int32_t rank, const char *host, int32_t *local)
{
    *local = 0;
    for (int32_t r = 0; r < rank; r++) {
        char key[KEY];
        void *value;
        size_t size;
        key_of(key, r);
        NRL_TRY(nrl_store_get(store, key, 5, &value, &size));
        *local += size == HOST && memcmp(value, host, HOST) == 0;
        free(value);
    }
    return NRL_OK;
}

nrl_status nccl_meet(const nccl_api *api, nrl_store *store, int32_t rank, int32_t world, double timeout_s, nccl_id *id,
                     int32_t *local)
{
    char key[KEY], host[HOST] = {0};
    double now = nccl_clock();
    if (gethostname(host, HOST - 1)) return nrl_fail(NRL_ERR_IO, "cannot read this machine's host name");
    key_of(key, rank);
    NRL_TRY(nrl_store_set(store, key, host, sizeof host));
    /* Rank 0 gives up a little earlier, so that the others learn which ranks were missing. */
    if (rank == 0) NRL_TRY(publish(api, store, world, now + 0.8 * timeout_s));
    NRL_TRY(hear(store, now + timeout_s, id));
    return count_neighbours(store, rank, host, local);
}
