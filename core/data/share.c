/*
 * share.c - the common prompt of a pair. Equal answers are not shared: their tokens are targets of
 * both sides, and a row belongs to one.
 */
#include "data/share.h"

typedef struct {
    const int32_t *tokens;
    const uint8_t *trained;
    int64_t n;
} side;

static side side_of(const dataset *d, int64_t block, int number)
{
    side s;
    s.n = dataset_segment(d, block, number, &s.tokens, &s.trained);
    return s;
}

int64_t data_shared_prompt(const dataset *d, int64_t block)
{
    if (dataset_n_sides(d) != 2) return 0;
    side a = side_of(d, block, 0), b = side_of(d, block, 1);
    int64_t most = (a.n < b.n ? a.n : b.n) - 1, n = 0;
    while (n < most && a.tokens[n] == b.tokens[n] && !a.trained[n] && !b.trained[n])
        n++;
    return n;
}
