/*
 * trials.c - a list for the life of the process, because a plugin that was opened stays open that long too. Paths are
 * few: the files of the plugin directories.
 */
#include "plugin/trials.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct trial trial;
struct trial {
    trial *next;
    char *path, *problem; /* problem NULL: none */
    char *ask_problem;    /* likewise, of its probe */
    bool runs_here;       /* a question without an argument had the answer 0 */
    struct timespec changed;
    ino_t file;
    off_t size;
    nrl_status status;
    bool is_tried, is_reported;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trial *trials;

/* The entry of a file as it is now; the caller holds the lock. */
static trial *find(const char *path)
{
    struct stat now = {0};
    trial *v = trials;
    stat(path, &now);
    while (v && (strcmp(v->path, path) || v->file != now.st_ino || v->size != now.st_size ||
                 memcmp(&v->changed, &now.st_mtim, sizeof v->changed)))
        v = v->next;
    if (v) return v;
    v = mem_alloc(sizeof *v);
    *v = (trial){
        .next = trials, .path = mem_strdup(path), .changed = now.st_mtim, .file = now.st_ino, .size = now.st_size};
    trials = v;
    return v;
}

nrl_status trial_open(const char *path, const plugin_kind *kind, const char *name, double seconds)
{
    pthread_mutex_lock(&lock);
    trial *v = find(path);
    if (!v->is_tried) {
        arena a = {0};
        load_trial t = {.path = path, .name = name, .kind = kind};
        load_try(&a, &t, 1, NULL, seconds);
        v->status = t.status;
        if (t.status != NRL_OK) v->problem = mem_strdup(t.text);
        v->is_tried = true;
        arena_free(&a);
    }
    nrl_status st = v->status;
    if (st != NRL_OK) nrl_fail(st, "%s", v->problem ? v->problem : "");
    pthread_mutex_unlock(&lock);
    return st;
}

/* Not under the lock: the child may open plugins itself. */
nrl_status trial_ask(const plugin *p, plugin_question *ask, const void *user, double seconds, int32_t *answer)
{
    arena a = {0};
    load_trial t = {.path = p->path, .ask = ask, .asked = p, .user = user};
    pthread_mutex_lock(&lock);
    const trial known = *find(p->path);
    pthread_mutex_unlock(&lock);
    *answer = 0;
    if (known.ask_problem) return nrl_fail(NRL_ERR_PLUGIN, "%s", known.ask_problem);
    /* A driver that this process has opened since does not work in a child. */
    if (!user && known.runs_here) return NRL_OK;
    load_try(&a, &t, 1, NULL, seconds);
    *answer = t.answer;
    nrl_fail(t.status, "%s", t.text);
    pthread_mutex_lock(&lock);
    trial *v = find(p->path);
    if (t.status != NRL_OK && !v->ask_problem) v->ask_problem = mem_strdup(t.text);
    v->runs_here = !user && t.status == NRL_OK && t.answer == 0;
    pthread_mutex_unlock(&lock);
    arena_free(&a);
    return t.status;
}

bool trial_is_unreported(const char *path)
{
    pthread_mutex_lock(&lock);
    trial *v = find(path);
    bool is_unreported = !v->is_reported;
    v->is_reported = true;
    pthread_mutex_unlock(&lock);
    return is_unreported;
}
