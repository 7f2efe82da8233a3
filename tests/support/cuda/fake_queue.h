/*
 * fake_queue.h - copies that the fake driver executes late, when the program waits for them, so
 * that a missing wait gives wrong bytes. Pageable memory is read when a copy is queued, as the
 * runtime stages it; pinned memory is read when the copy is executed.
 */
#ifndef SUPPORT_CUDA_FAKE_QUEUE_H
#define SUPPORT_CUDA_FAKE_QUEUE_H
#include "driver.h"
#include <stdbool.h>

void fake_queue_copy(void *to, const void *from, size_t bytes, bool staged);
size_t fake_queue_length(void);    /* copies queued since the process started */
void fake_queue_run(size_t until); /* executes those before the until-th */

#endif
