/*
 * rate.c - the rate limit: a token bucket shared by all pairs of an engine. For measuring how well a
 * run overlaps communication with computation.
 */
#include "gloo.h"

/* A burst of 4 ms, or of one segment on slow links. */
static double bucket(const gloo_engine *e)
{
    double burst = e->options.rate_limit * 1e6 * 0.004;
    return burst < 65536 ? 65536 : burst;
}

static void on_refill(uv_timer_t *timer)
{
    gloo_engine *e = timer->data;
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].state == PAIR_OPEN && e->pairs[i].out.head) pair_flush(&e->pairs[i]);
}

size_t rate_allowance(gloo_engine *e, size_t wanted)
{
    if (e->options.rate_limit <= 0) return wanted;
    double now = engine_now();
    e->tokens += (now - e->tokens_at) * e->options.rate_limit * 1e6;
    if (e->tokens > bucket(e)) e->tokens = bucket(e);
    e->tokens_at = now;
    if (e->tokens >= 4096) return (double)wanted < e->tokens ? wanted : (size_t)e->tokens;
    if (!uv_is_active((uv_handle_t *)&e->refill)) {
        uv_update_time(&e->loop);
        uv_timer_start(&e->refill, on_refill, 1, 0);
        e->changed = true;
    }
    return 0;
}

void rate_spend(gloo_engine *e, size_t bytes)
{
    e->tokens -= (double)bytes;
}
