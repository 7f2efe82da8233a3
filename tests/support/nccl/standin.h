/*
 * standin.h - stand-ins for libcuda.so.1 and libnccl.so.2, by which runs of several processes use the nccl collective
 * without a GPU, with the emulated cuda backend.
 *
 *   standin_cuda.c  streams that are threads and execute their work in order; events
 *   standin_nccl.c  communicators; ranks exchange data through files of the folder FAKE_NCCL_FOLDER
 *
 * As with NCCL, a call is work of a stream that ends only after the other ranks have made theirs, messages of two ranks
 * match in their order, and what waits holds up everything behind it on its stream. Streams of the backend execute in
 * the thread that calls, so a fence on one of them blocks that thread. If every rank of the job waits and none makes
 * progress, that is a deadlock: each rank prints what it waits for, and its calls fail.
 */
#ifndef SUPPORT_NCCL_STANDIN_H
#define SUPPORT_NCCL_STANDIN_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { STANDIN_WAITS = 0, STANDIN_DONE } standin_state;

/* Work of a stream. */
typedef struct standin_task standin_task;
struct standin_task {
    standin_task *next;
    standin_state (*run)(standin_task *t);                            /* called until it is done */
    void (*describe)(const standin_task *t, char *text, size_t room); /* what it waits for; NULL: never waits */
};
/* Queues a task, which was malloc'd; frees it when it is done. False: not a stream of this library. */
bool standin_push(void *stream, standin_task *t);

/* What a rank tells the others about itself. */
typedef struct {
    _Atomic uint64_t progress; /* tasks that have ended, and calls of the host that do not wait */
    _Atomic uint64_t polls;    /* how often something that waits has looked */
    _Atomic bool joined, gone;
    _Atomic bool host_waits;
    _Atomic int busy, waiting; /* streams with work; those whose first task waits */
    char text[400];            /* what it waits for, once that is a deadlock */
} standin_rank;

extern standin_rank *standin_own; /* this process's; initially a private one */
extern _Atomic bool standin_deadlock;
void standin_describe(char *text, size_t room); /* the first tasks of all streams */

#endif
