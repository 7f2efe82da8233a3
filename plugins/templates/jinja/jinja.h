/*
 * jinja.h - chat templates written in Jinja, as transformers runs them: Jinja2 with trim_blocks,
 * lstrip_blocks, loop controls and {% generation %}, in a sandbox where nothing can be changed but
 * a namespace. Called by conversation.c. It reads no file, no clock and no environment.
 *
 * A compiled template is read-only and may be rendered by many threads at once. What a template may
 * use is bounded (jinja_limits), so that a hostile one ends with an error.
 * Left out: inheritance and includes (a chat template is one file), `do`, autoescape blocks, and
 * integers beyond 64 bits.
 */
#ifndef JINJA_H
#define JINJA_H
#include "base/arena.h"
#include "base/buffer.h"
#include "jinja_value.h"

typedef struct jinja jinja;

/* NRL_ERR_CONFIG with name, line and what was expected. `name` is copied, as is the text. */
nrl_status jinja_compile(const char *name, const char *text, size_t size, jinja **out);
void jinja_free(jinja *t);
const char *jinja_name(const jinja *t);
bool jinja_mentions(const jinja *t, const char *name);   /* as a variable, an attribute or a key */
bool jinja_has_string(const jinja *t, const char *text); /* as a constant */
bool jinja_has_marks(const jinja *t);                    /* {% generation %} stands in it */

typedef struct {
    int64_t steps;         /* expressions and statements, and some more for work on long values */
    size_t memory, output; /* bytes */
    int depth;             /* of expressions, statements and macros inside each other */
} jinja_limits;
extern const jinja_limits jinja_default_limits;

typedef struct {
    const char *name;
    jinja_value value;
} jinja_variable;

typedef struct {
    const jinja_variable *variables;
    size_t n;
    int64_t now;                /* Unix seconds: strftime_now's clock, shown in local time */
    const jinja_limits *limits; /* NULL = jinja_default_limits */
    int64_t *steps;             /* taken so far, by renderings that share the limit; NULL = this one is alone */
} jinja_input;

typedef struct {
    size_t begin, end;
} jinja_span;

/* Zero-initialise; what is appended stays the caller's to free. */
typedef struct {
    buffer text;
    jinja_span *marks; /* of {% generation %}, in the order of the text */
    size_t n_marks, marks_room;
    bool lost_marks; /* one stood in a macro, whose text has no place of its own */
} jinja_output;
void jinja_output_free(jinja_output *out);

/* NRL_ERR_DATA: the template raised, or met a value it cannot use; NRL_ERR_CONFIG: a limit, or
 * something that this interpreter lacks. Both with name and line. [any] */
nrl_status jinja_render(const jinja *t, const jinja_input *in, jinja_output *out);

#endif
