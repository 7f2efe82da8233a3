/*
 * serve.c - `nrl serve SRC`: a model behind an HTTP endpoint in the form of OpenAI's API. The main thread has the
 * model: it takes jobs from the queue, gives them to one nrl_generator, and steps it.
 */
#include "serve.h"
#include "base/clock.h"
#include "cli/common/experiment.h"
#include "cli/common/sample_flags.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DELIVERY_SECONDS = 10,
    CLIENT_CLOSED = 499 /* the status of nginx for it */
};

typedef struct {
    server shared;
    nrl_generator *generator;
    job *active;                       /* added to the generator */
    int64_t max_batch, n_texts, grace; /* grace: seconds for requests under way after a signal */
    uint64_t n_jobs;
    volatile int *signal;
} service;

static nrl_status take_token(void *user, const nrl_sampled_token *t)
{
    const struct job_prompt *p = user;
    job *j = p->job;
    pthread_mutex_lock(&j->server->lock);
    if (t->finish == NRL_FINISH_FAILED) {
        j->has_failed = true;
    } else if (!j->is_abandoned) {
        j->completion_tokens++;
        reply_token(j, p->first + t->text, t);
        j->n_left -= t->finish != NRL_FINISH_NONE;
        if (j->is_stream) http_wake(j);
    }
    pthread_mutex_unlock(&j->server->lock);
    return NRL_OK;
}

/* The answer is complete, or there will be none. Frees a job whose connection has gone. */
static void job_end(job *j)
{
    server *s = j->server;
    pthread_mutex_lock(&s->lock);
    j->state = JOB_DONE;
    if (!j->http_status) j->http_status = 200;
    s->n_active--;
    const bool is_mine = j->is_abandoned;
    http_wake(j);
    pthread_mutex_unlock(&s->lock);
    if (is_mine) job_free(j);
}

static void job_complete(job *j)
{
    pthread_mutex_lock(&j->server->lock);
    reply_end(j);
    pthread_mutex_unlock(&j->server->lock);
    job_end(j);
}

/* Ends a job with an error, which is an event if the stream has begun. */
static void job_refuse(job *j, unsigned status, const char *message)
{
    pthread_mutex_lock(&j->server->lock);
    const bool has_begun = j->http_status;
    if (has_begun)
        buffer_puts(&j->out, "data: ");
    else
        j->http_status = status;
    reply_error(&j->out, status, message, NULL, NULL);
    if (has_begun) buffer_puts(&j->out, "\n");
    pthread_mutex_unlock(&j->server->lock);
    job_end(j);
}

/* A client that closed only its sending side looks as if it had gone, until something is sent. It reads why there is
 * no answer. */
static void job_leave(job *j)
{
    job_refuse(j, CLIENT_CLOSED,
               "the client closed its side of the connection, expected it to stay open until the answer is complete");
}

/* is_request: the request itself is at fault if its values are. */
static void job_fail(job *j, nrl_status st, bool is_request)
{
    const unsigned status = is_request && (st == NRL_ERR_CONFIG || st == NRL_ERR_DATA) ? 400
                            : st == NRL_ERR_MEMORY || st == NRL_ERR_STOPPED            ? 503
                                                                                       : 500;
    job_refuse(j, status, nrl_error_text());
}

static void job_remove(service *s, job *j)
{
    for (size_t i = 0; i < j->n_prompts; i++)
        if (j->added[i].id) nrl_generator_remove(s->generator, j->added[i].id);
    s->n_texts -= (int64_t)j->n_choices;
}

/* Gives a job to the generator. */
static void job_add(service *s, job *j)
{
    nrl_status st = NRL_OK;
    j->added = arena_alloc(&j->memory, j->n_prompts * sizeof *j->added);
    j->choices = arena_alloc(&j->memory, j->n_choices * sizeof *j->choices);
    j->n_left = j->n_choices;
    j->number = ++s->n_jobs;
    for (size_t i = 0; i < j->n_choices && j->tools; i++)
        j->choices[i].parser = tool_parser_create(j->tools, j->most_calls, j->call_seed + i);
    s->n_texts += (int64_t)j->n_choices;
    for (size_t i = 0; i < j->n_prompts && st == NRL_OK; i++) {
        int64_t n = 0;
        j->added[i] = (struct job_prompt){.job = j, .first = i * (size_t)j->options.n};
        nrl_sample_options o = j->options;
        o.token = take_token;
        o.token_user = &j->added[i];
        o.seed += i; /* equal prompts get different texts */
        st = nrl_generator_add(s->generator, &j->prompts[i], &o, &j->added[i].id, &n);
        if (st != NRL_OK) j->added[i].id = 0;
        j->prompt_tokens += n;
    }
    if (st != NRL_OK) {
        job_remove(s, j);
        job_fail(j, st, true);
        return;
    }
    pthread_mutex_lock(&s->shared.lock);
    j->state = JOB_ADDED;
    if (j->is_stream) {
        reply_stream_begin(j);
        j->http_status = 200;
        http_wake(j);
    }
    pthread_mutex_unlock(&s->shared.lock);
    j->next = s->active;
    s->active = j;
}

/* Requests whose client has gone leave the queue, so that others find room in it; with server.lock. */
static job *take_gone(server *s)
{
    job *gone = NULL, **at = &s->queue;
    for (job *j; (j = *at);) {
        if (!j->is_abandoned && !http_is_gone(j)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        j->next = gone;
        gone = j;
        s->n_queued--;
        s->n_active++; /* until job_end */
    }
    s->queue_end = at;
    return gone;
}

/* Waits for work; the jobs that may begin leave the queue. Returns whether the server ends. */
static bool wait_for_work(service *s, job **fresh)
{
    server *shared = &s->shared;
    job **end = fresh;
    pthread_mutex_lock(&shared->lock);
    while (!shared->queue && !s->active && !*s->signal) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000; /* a signal does not end the wait */
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&shared->has_work, &shared->lock, &until);
    }
    job *gone = take_gone(shared);
    for (int64_t n = s->n_texts; shared->queue && n < s->max_batch;) {
        job *j = *end = shared->queue;
        n += (int64_t)j->n_choices;
        shared->queue = j->next;
        j->next = NULL;
        end = &j->next;
        shared->n_queued--;
        shared->n_active++;
    }
    if (!shared->queue) shared->queue_end = &shared->queue;
    if (*s->signal) shared->is_ending = true;
    const bool ends = shared->is_ending && !shared->queue && !s->active && !*fresh;
    pthread_mutex_unlock(&shared->lock);
    for (job *next; gone; gone = next) {
        next = gone->next;
        job_leave(gone);
    }
    return ends;
}

static bool is_gone(job *j)
{
    pthread_mutex_lock(&j->server->lock);
    const bool gone = j->is_abandoned || http_is_gone(j);
    pthread_mutex_unlock(&j->server->lock);
    return gone;
}

/* Ends the jobs that are complete, whose client has gone, or if a step failed, those that failed in it, else all. */
static void end_jobs(service *s, nrl_status of_step)
{
    bool is_of_some = false;
    for (const job *j = s->active; j; j = j->next)
        is_of_some |= j->has_failed;
    for (job **at = &s->active; *at;) {
        job *j = *at;
        const nrl_status st = is_of_some && !j->has_failed ? NRL_OK : of_step;
        const bool gone = st == NRL_OK && j->n_left && is_gone(j);
        if (st == NRL_OK && j->n_left && !gone) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        job_remove(s, j);
        if (st != NRL_OK && j->n_left)
            job_fail(j, st, false);
        else if (gone)
            job_leave(j);
        else
            job_complete(j);
    }
}

static void serve_jobs(service *s, http *h)
{
    bool is_listening = true;
    double deadline = 0;
    for (job *fresh = NULL; !wait_for_work(s, &fresh); fresh = NULL) {
        if (is_listening && *s->signal) {
            fprintf(stderr, "shutting down: active requests have %lld seconds\n", (long long)s->grace);
            http_stop_listening(h);
            is_listening = false;
            deadline = clock_seconds() + (double)s->grace;
        }
        for (job *next; fresh; fresh = next) {
            next = fresh->next;
            job_add(s, fresh);
        }
        bool is_idle;
        nrl_status st = s->active ? nrl_generator_step(s->generator, &is_idle) : NRL_OK;
        if (st == NRL_OK && !is_listening && clock_seconds() > deadline)
            st = nrl_fail(NRL_ERR_STOPPED, "the server is shutting down and stopped waiting for the answer");
        if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
        end_jobs(s, st);
        pthread_mutex_lock(&s->shared.lock);
        s->shared.stats.size = sizeof s->shared.stats;
        nrl_generator_stats_fill(s->generator, &s->shared.stats);
        pthread_mutex_unlock(&s->shared.lock);
    }
    /* Answers that are complete are still being sent. */
    if (is_listening) http_stop_listening(h);
    for (int left = DELIVERY_SECONDS * 100; left > 0; left--) {
        pthread_mutex_lock(&s->shared.lock);
        const int64_t n = s->shared.n_open;
        pthread_mutex_unlock(&s->shared.lock);
        if (!n) break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static nrl_status take_count(int *argc, char **argv, const char *flag, int64_t or_value, int64_t min, int64_t max,
                             int64_t *out)
{
    const char *text;
    char *end;
    *out = or_value;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    *out = strtoll(text, &end, 10);
    if (end == text || *end || *out < min || *out > max)
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from %lld to %lld", flag, text, (long long)min,
                        (long long)max);
    return NRL_OK;
}

/* The last part of a path. */
static const char *base_name(arena *a, const char *path)
{
    char *copy = arena_strdup(a, path);
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = 0;
    const char *slash = strrchr(copy, '/');
    return slash && slash[1] ? slash + 1 : copy;
}

static nrl_status serve_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    nrl_inference_options model;
    const char *host, *template, *public_key;
    int64_t port, max_cached;
    service s = {.shared = {.max_body = 16 << 20,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .has_work = PTHREAD_COND_INITIALIZER,
                            .queue_end = &s.shared.queue}};
    http *h = NULL;
    nrl_status st = cli_take_value(&argc, argv, "--host", &host);
    if (st == NRL_OK) st = take_count(&argc, argv, "--port", 8000, 0, 65535, &port);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--api-key", &s.shared.api_key);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--allow-origin", &s.shared.allow_origin);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--name", &s.shared.name);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--template", &template);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--public-key", &public_key);
    if (st == NRL_OK) st = take_count(&argc, argv, "--max-batch", 32, 1, 1024, &s.max_batch);
    if (st == NRL_OK) st = take_count(&argc, argv, "--max-queue", 64, 1, 100000, &s.shared.max_queue);
    if (st == NRL_OK) st = take_count(&argc, argv, "--max-tokens", 256, 1, 1000000, &s.shared.max_tokens);
    if (st == NRL_OK) st = take_count(&argc, argv, "--grace", 60, 0, 86400, &s.grace);
    if (st == NRL_OK) st = take_count(&argc, argv, "--max-cached", 131072, 1, INT32_MAX / 2, &max_cached);
    if (st == NRL_OK) st = sample_take_model(&argc, argv, &model);
    if (st == NRL_OK) st = cli_expect(argc, argv, 1, 1);
    if (st == NRL_OK) {
        if (!host) host = "127.0.0.1";
        if (!s.shared.api_key) s.shared.api_key = cli_getenv("NRL_API_KEY");
        if (!s.shared.name) s.shared.name = base_name(&a, argv[1]);
        experiment_environment(&a, &env);
        env.public_key = public_key;
        st = nrl_inference_open_with(argv[1], &env, &model, &s.shared.model);
    }
    if (st == NRL_OK) sample_print_model(s.shared.model);
    /* A model without a template still serves completions. */
    if (st == NRL_OK && nrl_inference_set_template(s.shared.model, template) != NRL_OK) {
        if (template || !nrl_inference_tokenizer(s.shared.model))
            st = NRL_ERR_CONFIG;
        else
            fprintf(stderr, "no chat template, so only /v1/completions works: %s\n", nrl_error_text());
    }
    if (st == NRL_OK) {
        s.shared.tokenizer = nrl_inference_tokenizer(s.shared.model);
        tool_markers_find(s.shared.tokenizer, &s.shared.markers);
        const nrl_generator_options o = {.size = sizeof o, .max_sequences = s.max_batch, .max_cached = max_cached};
        st = nrl_generator_open(s.shared.model, &o, &s.generator);
    }
    if (st == NRL_OK) {
        s.signal = signals_catch();
        signals_let_writes_fail();
        st = http_open(&s.shared, host, &port, &h);
    }
    if (st == NRL_OK) {
        const bool is_ipv6 = strchr(host, ':');
        printf("serving %s at http://%s%s%s:%lld/v1\n", s.shared.name, is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
               (long long)port);
        fflush(stdout);
        serve_jobs(&s, h);
    }
    http_close(h);
    nrl_generator_close(s.generator);
    nrl_inference_close(s.shared.model);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "serve", serve_verb);
}
