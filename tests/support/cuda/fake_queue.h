/*
 * fake_queue.h - work of streams that the fake driver executes late: copies when the program, a kernel of their stream,
 * or an event that another stream waits for needs them, so that a missing wait gives wrong bytes. Pageable memory is
 * read when a copy is queued, as the runtime stages it; pinned memory is read when the copy is executed.
 */
#ifndef SUPPORT_CUDA_FAKE_QUEUE_H
#define SUPPORT_CUDA_FAKE_QUEUE_H
#include "driver.h"
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

void fake_queue_copy(void *stream, void *to, const void *from, size_t bytes, bool staged);
/* Later work of `stream` follows what was queued on `other` before the until-th. */
void fake_queue_fence(void *stream, void *other, size_t until);
size_t fake_queue_length(void);                      /* queued on any stream since the process started */
bool fake_queue_is_done(void *stream, size_t until); /* nothing before the until-th is left on the stream */
void fake_queue_run(void *stream, size_t until);     /* executes what was queued on the stream before the until-th */
void fake_queue_reach(void *stream);                 /* all of the stream: a kernel is launched on it */
void fake_queue_drain(void);                         /* all of all streams */

#ifdef __cplusplus
}
#endif
#endif
