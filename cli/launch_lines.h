/*
 * launch_lines.h - the ranks' output on its way through the launcher: whole lines, each with its rank
 * in front, never mixed. Nothing here waits; the launcher's loop says when a descriptor is ready.
 */
#ifndef CLI_LAUNCH_LINES_H
#define CLI_LAUNCH_LINES_H
#include "base/buffer.h"
#include <stdbool.h>
#include <stdint.h>

/* The launcher's own standard output or error. */
typedef struct {
    int fd;
    bool is_terminal; /* control characters in what ranks write are escaped */
    buffer pending;
    size_t sent;       /* bytes of pending that are written */
    char *first_error; /* the first line that begins with "error: ", without that; malloc'd or NULL */
    int problem;       /* errno of a write that failed: what follows is dropped; 0 = none */
} lines_sink;

/* One stream of one rank. */
typedef struct {
    int fd; /* its pipe; -1 = ended */
    lines_sink *to;
    char prefix[16];
    buffer part;       /* of a line that is not complete */
    char *first_error; /* as above, of this stream */
    bool repeats;      /* what another rank has said: an error that all have is shown once */
} lines_source;

void lines_open(lines_source *s, int fd, lines_sink *to, int32_t rank);
void lines_read(lines_source *s);     /* what is there now; at the stream's end closes it */
void lines_read_all(lines_source *s); /* the same, as long as something is there */
void lines_close(lines_source *s);    /* an unfinished line is shown too */
void lines_forget(lines_source *s);   /* frees what is left of it */

bool lines_waiting(const lines_sink *s); /* there is something to write */
bool lines_full(const lines_sink *s);    /* ranks should wait until the reader has caught up */
void lines_write(lines_sink *s);         /* a piece that a ready pipe takes without waiting */

#endif
