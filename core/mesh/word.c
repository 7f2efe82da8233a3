/*
 * word.c - the word as text: "kind code culprit reporter" and a second line to the end.
 */
#include "mesh/word.h"
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_KEY "word"

static void parse(const char *text, word *w)
{
    int kind, code, culprit, reporter, n = 0;
    *w = (word){.culprit = -1, .reporter = -1};
    if (!*text) return;
    if (sscanf(text, "%d %d %d %d%n", &kind, &code, &culprit, &reporter, &n) != 4 || text[n] != '\n' ||
        kind <= WORD_NONE || kind >= WORD_STORE || code < 0 || code > NRL_ERR_BUG) {
        w->kind = WORD_TOLD;
        snprintf(w->text, sizeof w->text, "a failure that this version cannot read");
        return;
    }
    *w = (word){(word_kind)kind, (nrl_status)code, culprit, reporter, ""};
    snprintf(w->text, sizeof w->text, "%s", text + n + 1);
}

nrl_status word_read(nrl_store *s, word *w)
{
    char *now;
    NRL_TRY(store_compare_set(s, WORD_KEY, "", "", &now));
    parse(now, w);
    free(now);
    return NRL_OK;
}

nrl_status word_tell(nrl_store *s, word *w)
{
    char *now, *mine = mem_printf("%d %d %d %d\n%s", (int)w->kind, (int)w->code, (int)w->culprit,
                                  (int)w->reporter, w->text);
    nrl_status st = store_compare_set(s, WORD_KEY, "", mine, &now);
    free(mine);
    if (st) return st;
    parse(now, w);
    free(now);
    return NRL_OK;
}
