/*
 * status.h - error reporting.
 * A status code identifies the kind of failure; its text is kept in a record of the calling thread. nrl_fail sets the
 * text where the error is found, and nrl_add_context adds context while the call stack unwinds. Only the command line
 * prints the text and turns the code into an exit code.
 *
 * Wording: "cannot DO: REASON; expected X, got Y", and a hint on a second line; lower case, no full
 * stop, no function names.
 */
#ifndef NRL_STATUS_H
#define NRL_STATUS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#define NRL_STATIC_ASSERT static_assert
#else
#define NRL_STATIC_ASSERT _Static_assert
#endif

#define NRL_API __attribute__((visibility("default")))

typedef enum {
    NRL_OK = 0,
    NRL_ERR_CONFIG = 1,   /* the user's config, script or command line          exit 2 */
    NRL_ERR_DATA = 2,     /* a row of a data set, a model file, a tokenizer     exit 65 */
    NRL_ERR_PLUGIN = 3,   /* a plugin cannot be used or broke its contract      exit 1 */
    NRL_ERR_IO = 4,       /* the file system                                    exit 1 */
    NRL_ERR_FULL = 5,     /* disk full or a file size limit                     exit 7 */
    NRL_ERR_DEVICE = 6,   /* an accelerator                                     exit 1 */
    NRL_ERR_MEMORY = 7,   /* host or device memory                              exit 6 */
    NRL_ERR_PEER = 8,     /* another rank, or a time-out waiting for one        exit 4 */
    NRL_ERR_DIVERGED = 9, /* the NaN policy                                     exit 3 */
    NRL_ERR_CORRUPT = 10, /* a checkpoint fails its checks                      exit 5 */
    NRL_ERR_STOPPED = 11, /* a signal asked to stop; state is saved             exit 75 (INT 130) */
    NRL_ERR_BUG = 12      /* nrl itself                                         exit 1 */
} nrl_status;

/* Sets this thread's error text and returns code. The arguments may include nrl_error_text() itself, here and in
 * nrl_add_context. [any] */
NRL_API nrl_status nrl_fail(nrl_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* which does not know that nrl_fail returns its first argument */
#define nrl_fail(code, ...) (nrl_fail(code, __VA_ARGS__), (code))
#endif

/* Puts "context: " in front of this thread's error text. [any] */
NRL_API void nrl_add_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns this thread's error text; borrowed, valid until the next nrl_fail on this thread. [any] */
NRL_API const char *nrl_error_text(void);

/* Issues a warning about a problem that does not stop a run: an event of the open run (nrl/logger.h), which the console
 * logger prints; "warning: ..." on stderr where no run is open or nothing takes its events. [any] */
NRL_API void nrl_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Prints both values of a broken invariant and aborts. Not for anything that a user can cause. [any] */
NRL_API void nrl_assert_failed(const char *file, int line, const char *text, long long a, long long b)
    __attribute__((noreturn));

#define NRL_TRY(call)                                                                                                  \
    do {                                                                                                               \
        nrl_status nrl_try_ = (call);                                                                                  \
        if (nrl_try_ != NRL_OK) return nrl_try_;                                                                       \
    } while (0)

/* The same for a function with one clean-up label; needs `nrl_status st` and the label `done`. */
#define NRL_TRY_DONE(call)                                                                                             \
    do {                                                                                                               \
        st = (call);                                                                                                   \
        if (st != NRL_OK) goto done;                                                                                   \
    } while (0)

/* NRL_ASSERT(a, ==, b) on integers. */
#define NRL_ASSERT(a, op, b)                                                                                           \
    do {                                                                                                               \
        if (!((a)op(b))) nrl_assert_failed(__FILE__, __LINE__, #a " " #op " " #b, (long long)(a), (long long)(b));     \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
