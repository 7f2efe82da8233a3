/*
 * status.h - the hook through which the events of a run receive warnings (nrl_warn).
 */
#ifndef API_STATUS_H
#define API_STATUS_H
#include <nrl/status.h>
#include <stdbool.h>

/* Receives a warning, on any thread. Returns false to have the warning printed to stderr. */
typedef bool (*status_sink)(const char *text);
void status_set_warning_sink(status_sink sink); /* NULL: print warnings to stderr. [any] */
/* Prints "warning: TEXT" to stderr, not interleaved with other output. [any] */
void status_print_warning(const char *text);

#endif
