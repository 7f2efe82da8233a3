/*
 * suggest.c - restricted Damerau-Levenshtein distance with three rows of the table.
 * Differences in ASCII case and between '-' and '_' cost nothing.
 */
#include "base/suggest.h"
#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum { MAX_WORD = 63 };

static int fold_char(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

static size_t distance(const char *a, const char *b)
{
    size_t rows[3][MAX_WORD + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX_WORD || m > MAX_WORD) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t other = fold_char(a[i - 1]) != fold_char(b[j - 1]);
            now[j] = min3(up[j] + 1, now[j - 1] + 1, up[j - 1] + other);
            if (i > 1 && j > 1 && fold_char(a[i - 1]) == fold_char(b[j - 2]) &&
                fold_char(a[i - 2]) == fold_char(b[j - 1]) && up2[j - 2] + 1 < now[j])
                now[j] = up2[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

void suggest_offer(suggestion *s, const char *name)
{
    size_t d = distance(s->word, name), n = strlen(s->word);
    if (d > (n + 2) / 3 || (s->best && d >= s->distance)) return;
    s->best = name;
    s->distance = d;
}
