/*
 * status.h - how the events of a run take the warnings that anything in the process issues (nrl_warn).
 */
#ifndef API_STATUS_H
#define API_STATUS_H
#include <nrl/status.h>
#include <stdbool.h>

/* false: nobody took the warning, so it is printed to stderr. Called from any thread. */
typedef bool (*status_sink)(const char *text);
void status_set_warning_sink(status_sink sink); /* NULL: to stderr. [any] */

/* "warning: TEXT" to stderr, in one piece. [any] */
void status_print_warning(const char *text);

#endif
