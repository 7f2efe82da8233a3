/*
 * regex.c - PCRE2 with limits so that no pattern hangs.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"
#include "base/arena.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct regex {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_match_data *matches;
};

enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 100000, HEAP_LIMIT_KIB = 64 * 1024 };

nrl_status regex_create(const char *pattern, size_t size, regex **out)
{
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[256];
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, size, options, &error, &at, NULL);
    if (!code) {
        pcre2_get_error_message(error, text, sizeof text);
        return nrl_fail(NRL_ERR_DATA, "regular expression '%.200s' cannot be used: %s", pattern, (char *)text);
    }
    regex *r = mem_alloc(sizeof *r);
    *r = (regex){code, pcre2_match_context_create(NULL), pcre2_match_data_create(1, NULL)};
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    *out = r;
    return NRL_OK;
}

void regex_destroy(regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->limits);
    pcre2_match_data_free(r->matches);
    free(r);
}

nrl_status regex_match(const regex *r, const char *text, bool *found)
{
    int n = pcre2_match(r->code, (PCRE2_SPTR)text, strlen(text), 0, 0, r->matches, r->limits);
    *found = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "a regular expression needs too many steps");
}
