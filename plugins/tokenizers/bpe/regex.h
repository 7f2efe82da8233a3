/*
 * regex.h - the regular expressions of tokenizer files. They are written for Oniguruma and run by
 * PCRE2. The subset that tokenizers use has the same meaning, except \s, \w, \h, scripts
 * and repeated intervals, which are rewritten, and nested sets, which are refused. The only user of pcre2.h.
 */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H
#include <nrl/status.h>
#include <stdbool.h>

typedef struct regex regex;

nrl_status regex_create(const char *pattern, size_t size, regex **out); /* NRL_ERR_DATA if the pattern is invalid */
void regex_destroy(regex *r);

/* Finds the first match in valid UTF-8 text[from..size). `follows`: an earlier match ended at `from`, where an empty
 * one is none; elsewhere matches may be empty. *matches is memory of one thread, NULL at first, freed by
 * regex_matches_free. NRL_ERR_DATA if a pattern needs too many steps. */
nrl_status regex_find(const regex *r, void **matches, const char *text, size_t size, size_t from, bool follows,
                      size_t *begin, size_t *end, bool *found);
void regex_matches_free(void *matches);

#endif
