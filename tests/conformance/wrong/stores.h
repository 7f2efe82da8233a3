/*
 * stores.h - stores that break one rule each, with the rule that must detect it. All are the store
 * that `nrl plugins new` writes, named journal, with one member replaced, at the address
 * "NAME:PATH" with any NAME.
 */
#ifndef WRONG_STORES_H
#define WRONG_STORES_H
#include <nrl/nrl.h>
#undef NRL_EXPORT /* plugin.c exports a row instead */
#define NRL_EXPORT(t)                                                                                                  \
    static inline const void *journal_table(void)                                                                      \
    {                                                                                                                  \
        return &(t);                                                                                                   \
    }
#include "journal.c"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

static atomic_int clients;

static int32_t any_probe(const char *address)
{
    const char *path = strchr(address, ':');
    return path && path[1] == '/' && path[2] != '/' ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static nrl_status any_open(const void *options, const nrl_store_setup *setup, void **self)
{
    char address[4300];
    nrl_store_setup own = *setup;
    snprintf(address, sizeof address, "%s%s", scheme, strchr(setup->address, ':') + 1);
    own.address = address;
    NRL_TRY(journal_open(options, &own, self));
    clients++;
    return NRL_OK;
}

static void any_close(void *self)
{
    free(self);
    clients--;
}

/* A server is a file without a name. Nobody is refused. */
typedef struct {
    int fd;
    char address[32];
} held_file;

static int32_t held_probe(const char *address)
{
    return strcmp(address, "127.0.0.1:0") ? any_probe(address) : NRL_PROBE_YES;
}

static nrl_status held_serve(const void *options, const nrl_store_setup *setup, void **server)
{
    held_file *h = malloc(sizeof *h);
    (void)options, (void)setup;
    h->fd = memfd_create("store", MFD_CLOEXEC);
    snprintf(h->address, sizeof h->address, "held:/proc/self/fd/%d", h->fd);
    *server = h;
    return NRL_OK;
}

static const char *held_address(const void *server)
{
    return ((const held_file *)server)->address;
}

static int32_t held_clients(void *server)
{
    (void)server;
    return clients;
}

static void held_close(void *server)
{
    close(((held_file *)server)->fd);
    free(server);
}

static nrl_status failing_serve(const void *options, const nrl_store_setup *setup, void **server)
{
    (void)options, (void)setup, (void)server;
    return nrl_fail(NRL_ERR_PEER, "no");
}

static nrl_status failing_open(const void *options, const nrl_store_setup *setup, void **self)
{
    (void)options, (void)setup, (void)self;
    return nrl_fail(NRL_ERR_PEER, "no");
}

static nrl_status suspicious_open(const void *options, const nrl_store_setup *setup, void **self)
{
    return setup->secret ? nrl_fail(NRL_ERR_CONFIG, "no secrets here") : any_open(options, setup, self);
}

static nrl_status blaming_open(const void *options, const nrl_store_setup *setup, void **self)
{
    return any_open(options, setup, self) ? NRL_ERR_CONFIG : NRL_OK;
}

static int32_t greedy_probe(const char *address)
{
    (void)address;
    return NRL_PROBE_YES;
}

static int32_t blind_probe(const char *address)
{
    (void)address;
    return NRL_PROBE_NO;
}

static nrl_status texts_set(void *self, const char *key, const void *value, size_t size)
{
    return journal_set(self, key, value, strnlen(value, size));
}

static nrl_status small_set(void *self, const char *key, const void *value, size_t size)
{
    return journal_set(self, key, value, size < 4096 ? size : 4096);
}

static nrl_status short_set(void *self, const char *key, const void *value, size_t size)
{
    char cut[32];
    snprintf(cut, sizeof cut, "%s", key);
    return journal_set(self, strlen(key) < 4096 ? key : cut, value, size);
}

static nrl_status hasty_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    (void)timeout_s;
    return journal_get(self, key, 0, found, value, size);
}

static nrl_status patient_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    return journal_get(self, key, timeout_s > 0 ? timeout_s + 5 : 0, found, value, size);
}

static nrl_status failing_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    NRL_TRY(journal_get(self, key, timeout_s, found, value, size));
    return *found ? NRL_OK : nrl_fail(NRL_ERR_PEER, "nothing");
}

/* Looks when the time is over. */
static nrl_status deaf_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    NRL_TRY(journal_get(self, key, 0, found, value, size));
    if (*found || timeout_s <= 0) return NRL_OK;
    time_t seconds = (time_t)timeout_s;
    struct timespec whole = {.tv_sec = seconds, .tv_nsec = (long)((timeout_s - (double)seconds) * 1e9)};
    nanosleep(&whole, NULL);
    return journal_get(self, key, 0, found, value, size);
}

/* One call at a time. */
static pthread_mutex_t only = PTHREAD_MUTEX_INITIALIZER;

static nrl_status holding_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    pthread_mutex_lock(&only);
    nrl_status st = journal_get(self, key, timeout_s, found, value, size);
    pthread_mutex_unlock(&only);
    return st;
}

static nrl_status holding_set(void *self, const char *key, const void *value, size_t size)
{
    pthread_mutex_lock(&only);
    nrl_status st = journal_set(self, key, value, size);
    pthread_mutex_unlock(&only);
    return st;
}

/* What another process sets is lost with it. */
static nrl_status private_set(void *self, const char *key, const void *value, size_t size)
{
    static pid_t first;
    if (!first) first = getpid();
    return first == getpid() ? journal_set(self, key, value, size) : NRL_OK;
}

static nrl_status rough_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    NRL_TRY(journal_get(self, key, timeout_s, found, value, size));
    if (!*found) return NRL_OK;
    char *rough = realloc(*value, *size + 1);
    rough[*size] = 'x';
    *value = rough;
    return NRL_OK;
}

static nrl_status own_set_once(void *self, const char *key, const char *text, char **now)
{
    if (*text) NRL_TRY(journal_set(self, key, text, strlen(text)));
    if (!*text) return journal_set_once(self, key, text, now);
    *now = strdup(text);
    return NRL_OK;
}

static nrl_status eager_set_once(void *self, const char *key, const char *text, char **now)
{
    return journal_set_once(self, key, *text ? text : "read", now);
}

static nrl_status idle_remove(void *self, const char *key)
{
    (void)self, (void)key;
    return NRL_OK;
}

static nrl_status strict_remove(void *self, const char *key)
{
    void *value = NULL;
    size_t size;
    bool found;
    NRL_TRY(journal_get(self, key, 0, &found, &value, &size));
    if (!found) return nrl_fail(NRL_ERR_PEER, "'%s' is not there", key);
    free(value);
    return journal_remove(self, key);
}

static nrl_status backward_get_all(void *self, const char *const *keys, size_t n, char **values)
{
    bool found;
    void *value;
    size_t size;
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(journal_get(self, keys[n - 1 - i], 0, &found, &value, &size));
        values[i] = value;
    }
    return NRL_OK;
}

static nrl_status hopeful_all_there(void *self, const char *const *keys, size_t n, bool *all)
{
    (void)self, (void)keys, (void)n;
    *all = true;
    return NRL_OK;
}

/* Counts in hexadecimal. */
static nrl_status hex_add(void *self, const char *key, int64_t amount, int64_t *result)
{
    char text[32];
    NRL_TRY(journal_add(self, key, amount, result));
    return journal_set(self, key, text, (size_t)snprintf(text, sizeof text, "0x%" PRIx64, *result));
}

/* Reads and writes in two steps. */
static nrl_status racing_add(void *self, const char *key, int64_t amount, int64_t *result)
{
    char text[32];
    void *value = NULL;
    size_t size;
    bool found;
    const struct timespec pause = {.tv_nsec = 1000000};
    NRL_TRY(journal_get(self, key, 0, &found, &value, &size));
    *result = (found ? strtoll(value, NULL, 10) : 0) + amount;
    if (found) free(value);
    nanosleep(&pause, NULL);
    return journal_set(self, key, text, (size_t)snprintf(text, sizeof text, "%" PRId64, *result));
}

static nrl_status leaking_open(const void *options, const nrl_store_setup *setup, void **self)
{
    NRL_TRY(any_open(options, setup, self));
    return open("/dev/null", O_RDONLY) < 0 ? NRL_ERR_IO : NRL_OK;
}

static void wiping_close(void *self)
{
    if (truncate(self, 0)) abort();
    any_close(self);
}

static int32_t lonely_clients(void *server)
{
    (void)server;
    return 0;
}

#define HELD                                                                                                           \
    .probe = held_probe, .serve = held_serve, .server_address = held_address, .server_clients = held_clients,          \
    .server_close = held_close
#pragma GCC diagnostic ignored "-Woverride-init"
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_STORE, nrl_store_plugin, #nm, "0", rule),                                            \
            .probe = any_probe, .open = any_open, .close = any_close, .set = journal_set, .get = journal_get,          \
            .set_once = journal_set_once, .remove = journal_remove, .add = journal_add, __VA_ARGS__                    \
    }
static const nrl_store_plugin wrong[] = {
    WRONG(right, "nothing is wrong with it", .serve = NULL),
    WRONG(greedy, "a probe leaves other addresses alone", .probe = greedy_probe),
    WRONG(blind, "a probe recognises an address", .probe = blind_probe),
    WRONG(texts, "what one client sets the other gets", .set = texts_set),
    WRONG(small, "a value of 8 MiB passes", .set = small_set),
    WRONG(curt, "different keys stay apart", .set = short_set),
    WRONG(hasty, "a wait times out", .get = hasty_get),
    WRONG(patient, "a wait times out", .get = patient_get),
    WRONG(failing, "a wait with a timeout of 0 returns at once", .get = failing_get),
    WRONG(deaf, "a wait ends when the key is set", .get = deaf_get),
    WRONG(holding, "a wait delays no other call", .get = holding_get, .set = holding_set),
    WRONG(rough, "a value is followed by a NUL", .get = rough_get),
    WRONG(selfish, "one of several set_once calls wins", .set_once = own_set_once),
    WRONG(eager, "set_once with an empty text reads", .set_once = eager_set_once),
    WRONG(idle, "a removed key is gone", .remove = idle_remove),
    WRONG(strict, "removing a missing key succeeds", .remove = strict_remove),
    WRONG(backward, "get_all returns values in the order of the keys", .get_all = backward_get_all),
    WRONG(hopeful, "all_there is false if a key is missing", .all_there = hopeful_all_there),
    WRONG(hexadecimal, "a sum reads as a decimal number", .add = hex_add),
    WRONG(racing, "no addition is lost", .add = racing_add),
    WRONG(leaking, "nothing stays open", .open = leaking_open),
    WRONG(wiping, "a client that closes leaves its keys", .close = wiping_close),
    WRONG(private, "a lost client leaves its keys and affects no other client", .set = private_set),
    WRONG(shut, "a client opens", .open = failing_open),
    WRONG(closed, "a server opens", HELD, .serve = failing_serve),
    WRONG(lonely, "a server counts its clients", HELD, .server_clients = lonely_clients),
    WRONG(suspicious, "a client with the secret is served", HELD, .open = suspicious_open),
    WRONG(trusting, "a client with another secret is refused at once", HELD),
    WRONG(open, "a client without a secret is refused at once", HELD),
    WRONG(sociable, "a client of another job is refused at once", HELD),
    WRONG(blaming, "open times out with an error text if no store answers", HELD, .open = blaming_open),
    WRONG(half, "a server has all its members", .server_clients = lonely_clients),
    WRONG(lacks_probe, "probe is NULL", .probe = NULL),
};
#undef WRONG
#undef HELD

#endif
