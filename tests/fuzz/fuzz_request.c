/*
 * fuzz_request.c - any bytes as the body of a request to `nrl serve`, for chat and for completions: it is refused with
 * a status of the user and a text, or what was read is within the limits of the server.
 */
#include "tools/serve/serve.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void free_job(job *j)
{
    arena_free(&j->memory);
    free(j);
}

static void check(const job *j)
{
    const nrl_sample_options *o = &j->options;
    NRL_ASSERT(j->n_choices, >, 0);
    NRL_ASSERT(j->n_choices, <=, SERVE_MAX_CHOICES);
    NRL_ASSERT(j->n_choices, ==, j->n_prompts * (size_t)o->n);
    NRL_ASSERT(o->max_tokens, >, 0);
    NRL_ASSERT(o->n_stop, <=, SERVE_MAX_STOPS);
    NRL_ASSERT(o->top_logprobs, <=, SERVE_MAX_TOP);
    if (!(o->temperature >= 0) || !(o->top_p > 0) || !(o->min_p >= 0)) abort();
    for (size_t i = 0; i < o->n_stop; i++)
        if (!*o->stop[i]) abort();
    for (size_t i = 0; i < j->n_prompts; i++)
        if (!j->prompts[i].text + !j->prompts[i].conversation + !j->prompts[i].ids != 2) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const server s = {.name = "model", .max_tokens = 256};
    for (int is_chat = 0; is_chat < 2; is_chat++) {
        const char *param;
        job *j = mem_alloc(sizeof *j);
        j->is_chat = is_chat;
        nrl_status st = request_read(&s, j, (const char *)data, size, &param);
        if (st == NRL_OK)
            check(j);
        else if ((st != NRL_ERR_CONFIG && st != NRL_ERR_DATA) || !*nrl_error_text())
            abort();
        free_job(j);
    }
    return 0;
}
