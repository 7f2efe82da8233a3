/*
 * regex.h - whether names match a regular expression; for targets of adapters. Only home of pcre2.h in core.
 */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H
#include <nrl/status.h>
#include <stdbool.h>

typedef struct regex regex;

nrl_status regex_create(const char *pattern, size_t size, regex **out); /* NRL_ERR_DATA */
void regex_destroy(regex *r);
/* Whether it matches somewhere in the text. NRL_ERR_DATA when a pattern needs too many steps. */
nrl_status regex_match(const regex *r, const char *text, bool *found);

#endif
