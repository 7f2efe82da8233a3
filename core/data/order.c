/*
 * order.c - see order.h for the definition; nothing here may change without a new data format.
 */
#include "data/order.h"
#include "base/mix.h"

uint64_t data_order_draw(uint64_t key, uint64_t i)
{
    return mix64(key + (i + 1) * MIX_GOLDEN);
}

uint64_t data_order_key(uint64_t seed, uint64_t purpose, uint64_t number)
{
    return data_order_draw(data_order_draw(data_order_draw(0, seed), purpose), number);
}

/* floor(x n / 2^64). The bias is below n / 2^64, which is negligible. */
static uint64_t scale(uint64_t x, uint64_t n)
{
    return (uint64_t)((unsigned __int128)x * n >> 64);
}

void data_order_shuffle(uint64_t key, int32_t *items, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t j = scale(data_order_draw(key, (uint64_t)i), (uint64_t)i + 1);
        int32_t held = items[i];
        items[i] = items[j];
        items[j] = held;
    }
}
