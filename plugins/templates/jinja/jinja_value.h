/*
 * jinja_value.h - the values of a template: those of Python that templates use. They are small and
 * copied. Data that they point to lives in an arena and never changes, except a namespace, the
 * position of a generator and a loop.
 */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H
#include "base/arena.h"
#include <nrl/node.h>

typedef enum {
    JINJA_UNDEFINED = 0, /* text: the name of what is missing, for messages */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_RANGE,
    JINJA_VIEW,      /* keys(), values(), items() of a map */
    JINJA_GENERATOR, /* the result of map, select and similar filters; can be read once */
    JINJA_MAP,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION,
    JINJA_LOOP
} jinja_kind;

typedef struct jinja_value jinja_value;

typedef struct {
    jinja_value *items;
    size_t n;
    size_t at;        /* of a generator: items read so far */
    const char *name; /* of a view, generator or range: its printed name */
} jinja_list;

typedef struct {
    jinja_value *keys, *values; /* [room] */
    size_t n, room;
} jinja_map;

struct jinja_value {
    jinja_kind kind;
    bool markup; /* of a string: marked as safe, as in markupsafe */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const char *text; /* valid UTF-8; may contain NUL */
            size_t size;
        };
        jinja_list *list;
        jinja_map *map;
        const struct jinja_macro *macro;
        const struct jinja_method *method;
        const struct jinja_function *function;
        struct jinja_loop *loop;
    };
};

static inline jinja_value jinja_none(void)
{
    return (jinja_value){.kind = JINJA_NONE};
}

static inline jinja_value jinja_bool(bool b)
{
    return (jinja_value){.kind = JINJA_BOOL, .boolean = b};
}

static inline jinja_value jinja_int(int64_t i)
{
    return (jinja_value){.kind = JINJA_INT, .integer = i};
}

static inline jinja_value jinja_float(double x)
{
    return (jinja_value){.kind = JINJA_FLOAT, .real = x};
}

/* Borrows the text. */
static inline jinja_value jinja_string(const char *text, size_t size)
{
    return (jinja_value){.kind = JINJA_STRING, .text = text, .size = size};
}

/* Borrows the items. */
jinja_value jinja_list_of(arena *a, jinja_kind kind, jinja_value *items, size_t n);
jinja_value jinja_map_new(arena *a);
void jinja_map_add(arena *a, jinja_map *m, jinja_value key, jinja_value value); /* for a key that is not in the map */
void jinja_map_set(arena *a, jinja_map *m, jinja_value key, jinja_value value);
const jinja_value *jinja_map_find(const jinja_map *m, jinja_value key); /* NULL if absent */
const jinja_value *jinja_map_find_text(const jinja_map *m, const char *key);
/* Converts a tree of JSON or YAML; borrows its strings. */
jinja_value jinja_from_node(arena *a, const nrl_node *node);

const char *jinja_kind_name(const jinja_value *v); /* the name of its type in Python */
bool jinja_truth(const jinja_value *v);
bool jinja_is_number(const jinja_value *v);   /* includes bool */
bool jinja_is_sequence(const jinja_value *v); /* has a jinja_list */
/* `left` decreases with each compared value; below 0 all values compare as different, and the
 * caller fails. Otherwise lists that contain the same list twice, at many levels, would take
 * exponential time. */
bool jinja_equal_within(const jinja_value *x, const jinja_value *y, int64_t *left);
bool jinja_equal(const jinja_value *x, const jinja_value *y); /* for keys and other small values */

#endif
