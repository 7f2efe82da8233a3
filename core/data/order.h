/*
 * order.h - the permutations of a plan. They use a counter-based generator with the finaliser of SplitMix64:
 *
 *     u(key, i) = mix(key + (i + 1) * 0x9E3779B97F4A7C15)
 *
 * Fisher-Yates: for i = n-1 .. 1 swap element i with element floor(u(key, i) (i + 1) / 2^64).
 * The order of a data set thus depends only on seed and epoch, on every machine.
 */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H
#include <stdint.h>

uint64_t data_order_key(uint64_t seed, uint64_t purpose, uint64_t number);
uint64_t data_order_draw(uint64_t key, uint64_t i);
void data_order_shuffle(uint64_t key, int32_t *items, int64_t n);

#endif
