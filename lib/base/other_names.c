/*
 * other_names.c - see other_names.h. The file is read only for errors, so it is not kept.
 */
#include "base/other_names.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* The text of a line whose first word is `word`; NULL = another line. */
static char *text_of(char *line, const char *word)
{
    size_t n = strcspn(line, " \t\n");
    if (*line == '#' || !n || strlen(word) != n) return NULL;
    for (size_t i = 0; i < n; i++)
        if (fold(line[i]) != fold(word[i])) return NULL;
    char *text = line + n + strspn(line + n, " \t");
    text[strcspn(text, "\n")] = 0;
    return text;
}

const char *other_names_find(arena *a, const char *exe_dir, const char *word, const char **key)
{
    const char *found = NULL;
    char *line = NULL, *text = NULL;
    size_t capacity = 0;
    FILE *in = exe_dir ? fopen(arena_printf(a, "%s/../" NRL_DATA_SUBDIR "/other-names.txt", exe_dir), "re") : NULL;
    if (key) *key = NULL;
    while (in && !text && getline(&line, &capacity, in) > 0)
        text = text_of(line, word);
    if (text) {
        bool is_key = !text[strcspn(text, " =")];
        found = is_key ? arena_printf(a, "it is %s here", text) : arena_strdup(a, text);
        if (is_key && key) *key = arena_strdup(a, text);
    }
    if (in) fclose(in);
    free(line);
    return found;
}
