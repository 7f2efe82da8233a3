/*
 * offload.h - shared by the files of the extension "offload".
 */
#ifndef CPU_OFFLOAD_H
#define CPU_OFFLOAD_H
#include "cpu.h"
#include <pthread.h>
#include <sys/types.h>

/* ---- offload.c ---- */

/* *fd: a file in the folder without a name, which disappears however the process ends. Warns once if the folder is not
 * on a disk. */
nrl_status offload_open_file(cpu_offload *o, const char *folder, int *fd);
/* The status of an errno of such a file. */
nrl_status offload_status(int error);
nrl_status offload_refuse_host(void);
/* Whether the page cache cannot hold files of so many bytes beside what else needs memory. */
bool offload_is_tight(uint64_t bytes);
/* Starts a thread with all signals blocked: the main thread handles them. Returns whether it could. */
bool offload_start_thread(pthread_t *thread, void *(*body)(void *), void *user);

/* Bytes of all mapped files. */
uint64_t offload_mapped(const cpu_offload *o);
/* The file that memory is mapped from, and where in it; false: none. */
bool offload_find(const cpu_offload *o, const void *memory, int *fd, off_t *at);

/* ---- offload_copies.c ---- */

typedef struct offload_copies offload_copies;
offload_copies *offload_copies_create(cpu_offload *self); /* NULL: no memory */
void offload_copies_close(offload_copies *c);
offload_copies *offload_copies_of(void *self); /* of the extension's self */

/* Members of nrl_offload. */
nrl_status offload_copy_create(void *self, const char *folder, size_t bytes, nrl_offload_copy **out);
nrl_status offload_copy_out(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, const void *memory,
                            size_t bytes);
nrl_status offload_copy_back(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, void *memory,
                             size_t bytes);
nrl_status offload_copy_wait(void *self, nrl_stream *stream, nrl_offload_copy *copy);
void offload_copy_free(void *self, nrl_offload_copy *copy);
void offload_expect(void *self, void *memory, size_t bytes, bool soon);

#endif
