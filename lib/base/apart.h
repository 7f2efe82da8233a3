/*
 * apart.h - calls that may crash, hang or end the process, made in a child process. For plugin files and their probes.
 */
#ifndef BASE_APART_H
#define BASE_APART_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

/* Call i; its answer, and *text, malloc'd or NULL, reach the caller of apart_calls. What else it changes is lost. */
typedef int32_t apart_call(void *user, size_t i, char **text);

typedef struct {
    bool returned;
    int32_t answer;
    const char *text; /* "" = none; if it did not return, what it did instead: "crashes WHEN: Segmentation fault" */
} apart_result;

/* Makes n calls in turn in a child process, which is ended where one does not return within `seconds`; a new child
 * continues behind such a call. The child prints nothing and ends with this process. Texts are allocated in `a`. If no
 * process can be started, no call returns. [main] */
void apart_calls(arena *a, apart_call *call, void *user, size_t n, const char *when, double seconds,
                 apart_result *results);

#endif
