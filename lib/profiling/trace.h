/*
 * trace.h - the events of a timeline, and their text in the Trace Event Format, which Perfetto and chrome://tracing
 * open. Any thread may add events.
 */
#ifndef PROFILING_TRACE_H
#define PROFILING_TRACE_H
#include <nrl/tensor.h>

typedef struct trace trace;

trace *trace_create(void);
void trace_destroy(trace *t); /* NULL is allowed */
/* A slice of a track, in seconds of one clock. Texts are copied. `dims` [3] may be NULL. */
void trace_slice(trace *t, const char *track, const char *name, double begin, double end, const int64_t *dims);
void trace_counter(trace *t, const char *name, double at, double value);
/* All events as a list without brackets, malloc'd; `name` is that of the process, `zero` the time of this clock that is
 * 0 in the text. */
char *trace_text(trace *t, int32_t rank, const char *name, double zero);
int64_t trace_n_dropped(const trace *t); /* events for which there was no room */

#endif
