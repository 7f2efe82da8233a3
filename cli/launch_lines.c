/*
 * launch_lines.c - forwards whole lines from pipes to the launcher's output.
 */
#include "cli/launch_lines.h"
#include "base/arena.h"
#include "base/escape.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_SIZE = 1 << 16, LONGEST_LINE = 1 << 20, FULL = 1 << 20 };

void lines_open(lines_source *s, int fd, lines_sink *to, int32_t rank)
{
    *s = (lines_source){.fd = fd, .to = to};
    snprintf(s->prefix, sizeof s->prefix, "[%d] ", rank);
}

/* An error is a rank's last output: if it repeats another rank's error, everything after it repeats, too. */
static void remember_error(lines_source *s, const char *line, size_t size)
{
    static const char head[] = "error: ";
    size_t n = sizeof head - 1;
    if (s->first_error || size <= n || memcmp(line, head, n)) return;
    s->first_error = mem_alloc(size - n + 1);
    memcpy(s->first_error, line + n, size - n);
    s->repeats = s->to->first_error && !strcmp(s->to->first_error, s->first_error);
    if (!s->to->first_error) s->to->first_error = mem_strdup(s->first_error);
}

/* Writes a line without its newline. */
static void emit(lines_source *s, const char *line, size_t size)
{
    remember_error(s, line, size);
    if (s->to->problem || s->repeats) return;
    buffer_puts(&s->to->pending, s->prefix);
    if (s->to->is_terminal)
        escape_add(&s->to->pending, line, size);
    else
        buffer_add(&s->to->pending, line, size);
    buffer_add(&s->to->pending, "\n", 1);
}

static void emit_part(lines_source *s)
{
    if (s->part.size) emit(s, s->part.text, s->part.size);
    s->part.size = 0;
}

static void take(lines_source *s, const char *text, size_t size)
{
    const char *end;
    while ((end = memchr(text, '\n', size)) != NULL) {
        size_t n = (size_t)(end - text);
        if (s->part.size || n == 0) {
            buffer_add(&s->part, text, n);
            emit(s, s->part.text ? s->part.text : "", s->part.size);
            s->part.size = 0;
        } else {
            emit(s, text, n);
        }
        text += n + 1;
        size -= n + 1;
    }
    buffer_add(&s->part, text, size);
    if (s->part.size > LONGEST_LINE) emit_part(s);
}

void lines_read(lines_source *s)
{
    char text[READ_SIZE];
    ssize_t n = read(s->fd, text, sizeof text);
    if (n > 0)
        take(s, text, (size_t)n);
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        lines_close(s);
}

void lines_read_all(lines_source *s)
{
    struct pollfd there = {s->fd, POLLIN, 0};
    while (s->fd >= 0 && poll(&there, 1, 0) > 0)
        lines_read(s);
}

void lines_close(lines_source *s)
{
    if (s->fd < 0) return;
    emit_part(s);
    buffer_free(&s->part);
    close(s->fd);
    s->fd = -1;
}

void lines_forget(lines_source *s)
{
    free(s->first_error);
    s->first_error = NULL;
}

bool lines_waiting(const lines_sink *s)
{
    return s->pending.size > s->sent;
}

bool lines_full(const lines_sink *s)
{
    return s->pending.size - s->sent > FULL;
}

/* As many whole lines as fit into PIPE_BUF, which pipes take atomically: other writers of the same pipe
 * cannot interleave. A longer line is written in pieces. */
static size_t piece(const lines_sink *s)
{
    const char *text = s->pending.text + s->sent;
    size_t left = s->pending.size - s->sent;
    if (left <= PIPE_BUF) return left;
    const char *end = memrchr(text, '\n', PIPE_BUF);
    return end ? (size_t)(end - text) + 1 : PIPE_BUF;
}

void lines_write(lines_sink *s)
{
    ssize_t n = write(s->fd, s->pending.text + s->sent, piece(s));
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
        s->problem = errno;
        s->sent = s->pending.size;
    }
    if (n > 0) s->sent += (size_t)n;
    if (s->sent < s->pending.size && s->sent < FULL) return;
    s->pending.size -= s->sent; /* also before the end: a slow reader may never catch up */
    memmove(s->pending.text, s->pending.text + s->sent, s->pending.size);
    s->sent = 0;
}

void lines_forget_error(lines_sink *s)
{
    free(s->first_error);
    s->first_error = NULL;
}
