/*
 * launch_lines.h - forwards the ranks' output through the launcher: whole lines, each prefixed with
 * its rank, never mixed. Nothing here blocks; the launcher's loop polls the descriptors.
 */
#ifndef CLI_LAUNCH_LINES_H
#define CLI_LAUNCH_LINES_H
#include "base/buffer.h"
#include <stdbool.h>
#include <stdint.h>

/* The launcher's own standard output or error. */
typedef struct {
    int fd;
    bool is_terminal; /* escape control characters in the ranks' output */
    buffer pending;
    size_t sent;       /* bytes of pending that are written */
    char *first_error; /* the first line that begins with "error: ", without that prefix; malloc'd or NULL */
    int problem;       /* errno of a failed write, after which output is dropped; 0 = none */
} lines_sink;

/* One stream of one rank. */
typedef struct {
    int fd; /* its pipe; -1 = ended */
    lines_sink *to;
    char prefix[16];
    buffer part;       /* an incomplete line */
    char *first_error; /* as above, of this stream */
    bool repeats;      /* repeats another rank's output: an error that all ranks have is shown once */
} lines_source;

void lines_open(lines_source *s, int fd, lines_sink *to, int32_t rank);
void lines_read(lines_source *s);     /* reads what is available; closes the pipe at the end of the stream */
void lines_read_all(lines_source *s); /* the same, until nothing is available */
void lines_close(lines_source *s);    /* also prints an incomplete line */
void lines_forget(lines_source *s);   /* frees the rest */

bool lines_waiting(const lines_sink *s); /* there is something to write */
bool lines_full(const lines_sink *s);    /* ranks should wait until the reader has caught up */
void lines_write(lines_sink *s);         /* writes a piece that a ready pipe accepts without blocking */
void lines_forget_error(lines_sink *s);  /* after a start of the ranks: the next one may fail in the same way */

#endif
