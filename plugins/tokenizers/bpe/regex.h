/*
 * regex.h - the regular expressions of tokenizer files. Written for Oniguruma, run by PCRE2: the
 * subset that tokenizers use means the same, but for \s, \w and \h, which are rewritten, and sets
 * inside of sets, which are refused. Only home of pcre2.h.
 */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H
#include <nrl/status.h>
#include <stdbool.h>

typedef struct regex regex;

nrl_status regex_create(const char *pattern, size_t size, regex **out); /* NRL_ERR_DATA */
void regex_destroy(regex *r);

/* First match that is not empty in valid UTF-8 text[from..size). *matches is one thread's memory,
 * NULL at first, freed by regex_matches_free. NRL_ERR_DATA when a pattern needs too many steps. */
nrl_status regex_find(const regex *r, void **matches, const char *text, size_t size, size_t from, size_t *begin,
                      size_t *end, bool *found);
void regex_matches_free(void *matches);

#endif
