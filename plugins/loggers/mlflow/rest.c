/*
 * rest.c - see rest.h.
 */
#include "rest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_SECONDS = 10, MAX_ANSWER = 1 << 20, ERROR_SHOWN = 200 };

void rest_prepare(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t take_answer(char *bytes, size_t size, size_t n, void *user)
{
    buffer *b = user;
    if (b->size + size * n > MAX_ANSWER) return 0;
    buffer_add(b, bytes, size * n);
    return size * n;
}

/* curl asks during a call whether to go on. */
static int is_over(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const rest *r = user;
    (void)a, (void)b, (void)c, (void)d;
    return *r->queue && record_queue_gives_up(*r->queue);
}

static nrl_status rest_open(rest *r)
{
    if (r->curl) return NRL_OK;
    if (!(r->curl = curl_easy_init())) return nrl_fail(NRL_ERR_MEMORY, "out of memory for an HTTP client");
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_TIMEOUT, (long)PATIENCE_SECONDS);
    curl_easy_setopt(r->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFOFUNCTION, is_over);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFODATA, r);
    curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(r->curl, CURLOPT_USERAGENT, "nrl");
    if (*r->user) curl_easy_setopt(r->curl, CURLOPT_USERNAME, r->user);
    if (*r->password) curl_easy_setopt(r->curl, CURLOPT_PASSWORD, r->password);
    return NRL_OK;
}

void rest_close(rest *r)
{
    if (r->curl) curl_easy_cleanup(r->curl);
    r->curl = NULL;
}

char *rest_escape(rest *r, arena *a, const char *text)
{
    char *escaped = rest_open(r) == NRL_OK ? curl_easy_escape(r->curl, text, 0) : NULL;
    char *kept = escaped ? arena_strdup(a, escaped) : NULL;
    curl_free(escaped);
    return kept;
}

static nrl_status judge(arena *a, const char *url, long status, const buffer *text, const nrl_node **answer,
                        const char **refusal)
{
    nrl_node *tree = NULL;
    bool is_json = text->size && json_parse(a, url, text->text, text->size, &tree) == NRL_OK;
    if (status == 200 && is_json) {
        if (answer) *answer = tree;
        return NRL_OK;
    }
    if (status == 200) return nrl_fail(NRL_ERR_IO, "%s: the answer is not JSON; expected an MLflow server", url);
    if (refusal) *refusal = nrl_node_string(nrl_node_find(tree, "error_code"), NULL);
    const char *why = nrl_node_string(nrl_node_find(tree, "message"), "");
    return nrl_fail(NRL_ERR_IO, "%s: HTTP status %ld%s%.*s", url, status, *why ? ": " : "", ERROR_SHOWN, why);
}

nrl_status rest_call(rest *r, arena *a, const char *path, const nrl_node *body, const nrl_node **answer,
                     const char **refusal)
{
    struct curl_slist *headers = NULL;
    buffer text = {.what = "an answer of the MLflow server"};
    long status = 0;
    if (refusal) *refusal = NULL;
    NRL_TRY(rest_open(r));
    char *url = arena_printf(a, "%s/api/2.0/mlflow/%s", r->url, path);
    char *json = body ? json_write(body, 0) : NULL;
    headers = curl_slist_append(headers, "Content-Type: application/json");
    if (*r->token) headers = curl_slist_append(headers, arena_printf(a, "Authorization: Bearer %s", r->token));
    curl_easy_setopt(r->curl, CURLOPT_URL, url);
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, &text);
    if (json)
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDS, json);
    else
        curl_easy_setopt(r->curl, CURLOPT_HTTPGET, 1L);
    CURLcode code = curl_easy_perform(r->curl);
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    free(json);
    nrl_status st = code == CURLE_OK ? judge(a, url, status, &text, answer, refusal)
                                     : nrl_fail(NRL_ERR_IO, "%s: %s", url, curl_easy_strerror(code));
    buffer_free(&text);
    return st;
}
