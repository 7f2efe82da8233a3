/*
 * abort_record.c - the abort record as text: "kind code culprit reporter" and a second line to the end.
 */
#include "mesh/abort_record.h"
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_KEY "word"

static void parse(const char *text, abort_record *w)
{
    int kind, code, culprit, reporter, n = 0;
    *w = (abort_record){.culprit = -1, .reporter = -1};
    if (!*text) return;
    if (sscanf(text, "%d %d %d %d%n", &kind, &code, &culprit, &reporter, &n) != 4 || text[n] != '\n' ||
        kind <= ABORT_NONE || kind >= ABORT_STORE || code < 0 || code > NRL_ERR_BUG) {
        w->kind = ABORT_REPORTED;
        snprintf(w->text, sizeof w->text, "a failure that this version cannot read");
        return;
    }
    *w = (abort_record){(abort_kind)kind, (nrl_status)code, culprit, reporter, ""};
    snprintf(w->text, sizeof w->text, "%s", text + n + 1);
}

nrl_status abort_record_read(nrl_store *s, abort_record *w)
{
    char *now;
    NRL_TRY(store_set_once(s, WORD_KEY, "", &now));
    parse(now, w);
    free(now);
    return NRL_OK;
}

nrl_status abort_record_write(nrl_store *s, abort_record *w)
{
    char *now,
        *mine = mem_printf("%d %d %d %d\n%s", (int)w->kind, (int)w->code, (int)w->culprit, (int)w->reporter, w->text);
    nrl_status st = store_set_once(s, WORD_KEY, mine, &now);
    free(mine);
    if (st) return st;
    parse(now, w);
    free(now);
    return NRL_OK;
}
