/*
 * jinja.h - chat templates written in Jinja, with the semantics of transformers: Jinja2 with
 * trim_blocks, lstrip_blocks, loop controls and {% generation %}, in a sandbox where only
 * namespaces can be changed. Called by conversation.c. It reads no file and no environment
 * variable.
 *
 * A compiled template is read-only and may be rendered by many threads at once. jinja_limits bounds
 * the resources of a template, so that a hostile one ends with an error. Not supported: inheritance
 * and includes (a chat template is one file), `do`, autoescape blocks, and integers beyond 64 bits.
 */
#ifndef JINJA_H
#define JINJA_H
#include "base/arena.h"
#include "base/buffer.h"
#include "jinja_value.h"

typedef struct jinja jinja;

/* NRL_ERR_CONFIG with name, line and what was expected. `name` and the text are copied. */
nrl_status jinja_compile(const char *name, const char *text, size_t size, jinja **out);
void jinja_free(jinja *t);
const char *jinja_name(const jinja *t);
bool jinja_mentions(const jinja *t, const char *name);   /* as a variable, an attribute or a key */
bool jinja_has_string(const jinja *t, const char *text); /* as a constant */
bool jinja_has_marks(const jinja *t);                    /* the template contains {% generation %} */

typedef struct {
    int64_t steps;         /* expressions and statements, plus work on long values */
    size_t memory, output; /* bytes */
    int depth;             /* nesting of expressions, statements and macros */
} jinja_limits;
extern const jinja_limits jinja_default_limits;

typedef struct {
    const char *name;
    jinja_value value;
} jinja_variable;

typedef struct {
    const jinja_variable *variables;
    size_t n;
    int64_t now;                /* Unix seconds, for strftime_now, which shows local time */
    const jinja_limits *limits; /* NULL = jinja_default_limits */
    int64_t *steps;             /* used so far by renderings that share the limit; NULL = the limit is for this
                                 * rendering alone */
} jinja_input;

typedef struct {
    size_t begin, end;
} jinja_span;

/* Zero-initialise; the caller frees what is appended. */
typedef struct {
    buffer text;
    jinja_span *marks; /* of {% generation %}, in the order of the text */
    size_t n_marks, marks_room;
    bool lost_marks; /* a mark was in a macro, whose text has no position of its own */
} jinja_output;
void jinja_output_free(jinja_output *out);

/* NRL_ERR_DATA: the template raised an exception or met a value that it cannot use; NRL_ERR_CONFIG:
 * it exceeded a limit or needs something that this interpreter does not support. Both with name and
 * line. [any] */
nrl_status jinja_render(const jinja *t, const jinja_input *in, jinja_output *out);

#endif
