/*
 * record_queue.h - records on their way to a receiver that may be slow, absent or restarted: a bounded queue with a
 * thread that sends. Putting a record never waits for the receiver. What the receiver does not take stays in the
 * queue and is tried again, less often each time.
 */
#ifndef LOGGERS_RECORD_QUEUE_H
#define LOGGERS_RECORD_QUEUE_H
#include <nrl/logger.h>

typedef struct record_queue record_queue;

typedef struct {
    const char *logger;   /* name of the logger, for warnings; must outlive the queue */
    int64_t most;         /* records that wait at the same time */
    double close_seconds; /* how long closing waits for the receiver */
    /* Sends some of the records, from the first one, and sets *n_sent, also if it fails. Returns when gives_up is true.
     * [worker] */
    nrl_status (*send)(void *user, const nrl_record *const *records, size_t n, size_t *n_sent);
    void (*finish)(void *user); /* called once, after the last send; may be NULL [worker] */
    void *user;
} record_queue_options;

nrl_status record_queue_open(const record_queue_options *options, record_queue **out);
/* Copies the record. NRL_ERR_IO if the queue is full; the record is dropped then. Warns if the receiver fails. */
nrl_status record_queue_put(record_queue *q, const nrl_record *record);
/* Sends what is left, for at most close_seconds, and warns about records that could not be sent. q may be NULL. */
void record_queue_close(record_queue *q);
/* Whether closing has no time left: `send` and `finish` must return. [worker] */
bool record_queue_gives_up(const record_queue *q);
/* Waits up to `seconds`, but not after record_queue_gives_up or once the queue is being closed. [worker] */
void record_queue_wait(record_queue *q, double seconds);

#endif
