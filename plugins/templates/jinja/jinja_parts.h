/*
 * jinja_parts.h - inside the template interpreter: source to tokens (jinja_lex), tokens to a tree
 * (jinja_parse, jinja_expr, jinja_postfix), the tree to text (jinja_run, jinja_eval). Only jinja_*.c see it.
 */
#ifndef JINJA_PARTS_H
#define JINJA_PARTS_H
#include "jinja.h"

/* ---- tokens ---- */

typedef enum {
    TOKEN_END = 0,
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OP
} token_kind;

typedef struct {
    token_kind kind;
    uint32_t line;
    const char *text; /* NUL-terminated text of an operator; unescaped text of a string */
    size_t size;
    int64_t integer;
    double real;
} token;

typedef struct {
    token *at;
    size_t n, room;
} token_list;

/* ---- the tree ---- */

typedef enum {
    NODE_CONST = 0, /* value */
    NODE_NAME,      /* symbol */
    NODE_LIST,      /* list */
    NODE_TUPLE,
    NODE_MAP,     /* list: key, value, key, value */
    NODE_ATTR,    /* a.value */
    NODE_ITEM,    /* a[b] */
    NODE_SLICE,   /* a[list[0] : list[1] : list[2]], absent ones NULL */
    NODE_CALL,    /* a(list of NODE_ARG) */
    NODE_ARG,     /* a, with keyword `value` or none; op '*' or 'd' for ** */
    NODE_FILTER,  /* a | filter(list); a is NULL at the head of a filter block */
    NODE_TEST,    /* a is test(list) */
    NODE_NOT,     /* a */
    NODE_NEG,     /* op '-' or '+' */
    NODE_BINARY,  /* a op b */
    NODE_AND,     /* a and b */
    NODE_OR,      /* a or b */
    NODE_CONCAT,  /* list, with ~ */
    NODE_COMPARE, /* a, then list of NODE_OPERAND */
    NODE_OPERAND, /* op, a */
    NODE_COND,    /* b if a else c */
    /* statements */
    NODE_BODY,         /* list */
    NODE_TEXT,         /* value */
    NODE_PRINT,        /* a */
    NODE_FOR,          /* for a in b if c: body else other */
    NODE_IF,           /* if a: body else other */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = body through filters b */
    NODE_MACRO,        /* symbol, value: name; list: NODE_PARAM; body */
    NODE_PARAM,        /* symbol, value: name; a: default or NULL */
    NODE_CALL_BLOCK,   /* a: NODE_CALL, b: NODE_MACRO without name */
    NODE_FILTER_BLOCK, /* a: filters, body */
    NODE_WITH,         /* list: NODE_SET; body */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_GENERATION /* body */
} node_kind;

/* Operators of more than one character. */
enum {
    OP_POW = 'p',
    OP_FLOOR = 'f',
    OP_EQ = 'e',
    OP_NE = 'n',
    OP_LE = 'l',
    OP_GE = 'g',
    OP_IN = 'i',
    OP_NOT_IN = 'o',
    OP_STARS = 'd'
};

typedef struct node node;
struct node {
    node_kind kind;
    uint32_t line;
    int32_t symbol;
    char op;
    bool flag; /* NODE_TEST: negated; NODE_MACRO: uses varargs or kwargs; NODE_FOR: recursive */
    node *a, *b, *c, *body, *other;
    node **list;
    size_t n;
    jinja_value value;
    const struct jinja_filter *filter; /* NULL: unknown, an error only when it is called */
    const struct jinja_test *test;
};

typedef struct {
    const char **at;
    size_t n, room;
} jinja_texts;

struct jinja {
    arena memory;
    const char *name;
    node *root;
    const char **symbols; /* names of variables, by number */
    int32_t n_symbols, symbols_room;
    jinja_texts mentions; /* attributes and constant keys */
    jinja_texts strings;  /* constants */
    bool has_marks;
};

int32_t jinja_symbol(jinja *t, const char *text, size_t size);
/* The number of the symbol, or -1 if the template does not use it. */
int32_t jinja_find_symbol(const jinja *t, const char *name);

/* ---- reading ---- */

nrl_status jinja_lex(arena *a, const char *text, size_t size, token_list *out);

typedef struct {
    jinja *t;
    const token *at;
    uint32_t line; /* of the failure, for the caller's message */
    int depth;
    int branches; /* inside an if: an unknown name there is an error only when it is reached */
    int loops;
    bool variadic; /* the macro being parsed uses varargs or kwargs */
} parser;

nrl_status jinja_parse(jinja *t, const token *tokens, uint32_t *line);

bool parse_is_op(const parser *p, const char *op);
bool parse_is_name(const parser *p, const char *name);
bool parse_skip_op(parser *p, const char *op);
bool parse_skip_name(parser *p, const char *name);
nrl_status parse_expect_op(parser *p, const char *op);
nrl_status parse_fail(parser *p, const char *expected);
void parse_note(parser *p, jinja_texts *list, const char *text); /* appends; borrows the text */
nrl_status parse_enter(parser *p);                               /* one level deeper; p->depth-- leaves */
node *parse_node(parser *p, node_kind kind);
void parse_push(parser *p, node *list, node *item, size_t *room);
node *parse_name_node(parser *p, node_kind kind, const token *name);
nrl_status parse_expression(parser *p, node **out);
nrl_status parse_condition_free(parser *p, node **out); /* without `x if y`: the iterable of a for loop */
/* a, b: a tuple if there is a comma; `plain` does not accept conditions. */
nrl_status parse_tuple(parser *p, bool plain, node **out);
nrl_status parse_target(parser *p, bool with_namespace, node **out);
node *parse_pair(parser *p, node_kind kind, char op, node *a, node *b);
nrl_status parse_primary(parser *p, node **out);
nrl_status parse_postfix(parser *p, node **out);              /* .name, [item] and (arguments) after *out */
nrl_status parse_arguments(parser *p, node *call);            /* after the ( */
nrl_status parse_one_filter(parser *p, node *of, node **out); /* at the name of the filter */
nrl_status parse_filters(parser *p, node *of, bool inner, node **out);

/* ---- running ---- */

typedef struct {
    int32_t symbol;
    jinja_value value;
} scope_slot;

typedef struct jinja_scope {
    struct jinja_scope *parent;
    scope_slot *slots;
    size_t n, room;
} jinja_scope;

typedef struct jinja_macro {
    const node *definition;
    jinja_scope *scope; /* where it was defined */
    const jinja_value *caller;
} jinja_macro;

typedef struct jinja_loop {
    jinja_value *items;
    size_t n, index;
    size_t depth;
    jinja_value changed; /* the last value of loop.changed; a list, or undefined */
} jinja_loop;

typedef enum { FLOW_ON = 0, FLOW_BREAK, FLOW_CONTINUE } flow_kind;

typedef struct {
    const jinja *t;
    const jinja_input *in;
    jinja_limits limits;
    arena memory;
    int64_t steps;
    size_t bytes;
    int depth;
    size_t loops;
    uint32_t failed_line;
    flow_kind flow;
    buffer *out; /* of the innermost macro, block or rendering */
    jinja_output *result;
    jinja_scope *root;
} jinja_vm;

/* Arguments of a call, evaluated. */
typedef struct {
    jinja_value *at;
    size_t n;
    const char **names; /* of keywords */
    jinja_value *named;
    size_t n_named;
} jinja_args;

#define JINJA_FAIL(...) nrl_fail(NRL_ERR_DATA, __VA_ARGS__)

void *vm_alloc(jinja_vm *m, size_t size);
nrl_status vm_room(jinja_vm *m, size_t bytes);         /* call before creating something that may be large */
nrl_status vm_work(jinja_vm *m, size_t steps);         /* the same for time */
nrl_status vm_read(jinja_vm *m, const jinja_value *v); /* accounts for a walk over v if it is text */
jinja_value vm_string(jinja_vm *m, const char *text, size_t size);               /* copies */
jinja_value vm_list(jinja_vm *m, jinja_kind kind, jinja_value *items, size_t n); /* borrows the items */
jinja_value vm_map(jinja_vm *m);
void vm_map_set(jinja_vm *m, jinja_map *map, jinja_value key, jinja_value value);
jinja_value vm_take(jinja_vm *m, buffer *b); /* copies the text and empties the buffer */
jinja_value vm_undefined(jinja_vm *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
nrl_status vm_look_up(jinja_vm *m, const jinja_map *map, const jinja_value *key); /* accounts for finding a key */
nrl_status vm_strip(jinja_vm *m, size_t size, size_t set_size);                   /* accounts for stripping a text */
nrl_status vm_enter(jinja_vm *m);
const jinja_value *scope_find(const jinja_scope *s, int32_t symbol);
void scope_set(jinja_vm *m, jinja_scope *s, int32_t symbol, jinja_value value);
jinja_scope *scope_new(jinja_vm *m, jinja_scope *parent);

nrl_status vm_eval(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out);
nrl_status vm_filter(jinja_vm *m, jinja_scope *s, const node *n, jinja_value input, jinja_value *out);
nrl_status vm_run(jinja_vm *m, jinja_scope *s, const node *body);
nrl_status vm_arguments(jinja_vm *m, jinja_scope *s, const node *n, jinja_args *out);
nrl_status vm_call(jinja_vm *m, const jinja_value *callee, const jinja_args *args, jinja_value *out);
nrl_status vm_call_macro(jinja_vm *m, const jinja_macro *macro, const jinja_args *args, jinja_value *out);
nrl_status vm_assign(jinja_vm *m, jinja_scope *s, const node *target, jinja_value value);

/* jinja_access.c */
nrl_status vm_attribute(jinja_vm *m, const jinja_value *of, const char *name, size_t size, jinja_value *out);
nrl_status vm_item(jinja_vm *m, const jinja_value *of, const jinja_value *key, jinja_value *out);
nrl_status vm_slice(jinja_vm *m, const jinja_value *of, const jinja_value part[3], jinja_value *out);
/* The items of any iterable, as an array. */
nrl_status vm_items(jinja_vm *m, const jinja_value *of, jinja_value **items, size_t *n);

/* jinja_ops.c */
nrl_status vm_binary(jinja_vm *m, char op, const jinja_value *x, const jinja_value *y, jinja_value *out);
nrl_status vm_compare(jinja_vm *m, char op, const jinja_value *x, const jinja_value *y, bool *out);
nrl_status vm_contains(jinja_vm *m, const jinja_value *in, const jinja_value *what, bool *out);
/* The comparison counts as work: call vm_work after it, or after a loop of comparisons, to learn
 * whether a limit was exceeded. */
bool vm_equal(jinja_vm *m, const jinja_value *x, const jinja_value *y);
/* -1, 0, 1 */
nrl_status vm_order(jinja_vm *m, const jinja_value *x, const jinja_value *y, int *out);
nrl_status vm_need_defined(const jinja_value *v);

/* jinja_write.c: str(), repr(), JSON */
nrl_status vm_write(jinja_vm *m, const jinja_value *v, buffer *out);
nrl_status vm_write_repr(jinja_vm *m, const jinja_value *v, int depth, buffer *out);
nrl_status vm_text(jinja_vm *m, const jinja_value *v, jinja_value *out); /* soft_str */
void jinja_write_float(double x, buffer *out);
typedef struct {
    const char *indent;     /* NULL: one line */
    const char *item, *key; /* separators */
    bool sort, ascii;
} json_style;
nrl_status vm_write_json(jinja_vm *m, const jinja_value *v, const json_style *style, int depth, buffer *out);

/* jinja_format.c */
nrl_status vm_percent(jinja_vm *m, const jinja_value *format, const jinja_value *args, jinja_value *out);
nrl_status vm_strftime(jinja_vm *m, const jinja_value *format, jinja_value *out);

/* jinja_methods.c, jinja_methods_text.c */
typedef struct method_row {
    jinja_kind kind;
    const char *name;
    nrl_status (*call)(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                       jinja_value *out);
} method_row;
extern const method_row jinja_text_methods[]; /* terminated by {0} */
/* Arguments without names, as for Python's built-in methods; absent ones are left as by args_bind. */
nrl_status args_positional(const char *name, const jinja_args *args, size_t least, size_t most, jinja_value v[3]);
nrl_status method_count(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                        jinja_value *out);

/* jinja_call.c */
typedef struct jinja_method {
    const struct method_row *row;
    jinja_value self;
} jinja_method;
typedef struct jinja_function {
    const char *name;
    nrl_status (*call)(jinja_vm *m, const jinja_args *args, jinja_value *out);
} jinja_function;
const jinja_function *jinja_find_function(const char *name);
/* Finds a method and binds it; false if the kind has no method of that name. */
bool jinja_find_method(jinja_vm *m, const jinja_value *self, const char *name, size_t size, jinja_value *out);
nrl_status vm_call_method(jinja_vm *m, const jinja_method *method, const jinja_args *args, jinja_value *out);

/* Puts arguments in the order of the parameters "a b=c", at most 8, into out [8]. Absent ones stay
 * JINJA_UNDEFINED with a NULL text. The first `required` ones must be given. */
enum { MAX_PARAMS = 8 };
nrl_status args_bind(const char *who, const char *const *names, size_t required, const jinja_args *args,
                     jinja_value *out);
bool args_absent(const jinja_value *v);
nrl_status args_int(const char *who, const jinja_value *v, int64_t or_value, int64_t *out);
nrl_status args_text(const char *who, const jinja_value *v, jinja_value *out);

typedef struct jinja_filter {
    const char *name;
    nrl_status (*call)(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out);
} jinja_filter;
const jinja_filter *jinja_find_filter(const char *name, size_t size);
/* The tables that contain these: text and numbers, lists, select and map filters, and tests.
 * Terminated by {0}. */
extern const jinja_filter jinja_text_filters[], jinja_list_filters[], jinja_pick_filters[];
/* x, x.y or x.0 of a value, the notation of attributes in filters; integer names are indices. */
nrl_status vm_path(jinja_vm *m, const jinja_value *of, const jinja_value *path, jinja_value *out);

typedef struct jinja_test {
    const char *name;
    nrl_status (*call)(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out);
} jinja_test;
const jinja_test *jinja_find_test(const char *name, size_t size);

/* jinja_text.c: characters as in Python */
size_t text_length(const char *text, size_t size);               /* code points */
size_t text_offset(const char *text, size_t size, size_t index); /* byte offset of a code point */
bool text_is_space(int32_t c);
bool text_is_letter(int32_t c); /* categories L* */
bool text_is_number(int32_t c); /* categories N* */
bool text_is_word(int32_t c);   /* \w of regular expressions */
void text_strip(const char **text, size_t *size, const char *set, size_t set_size, bool left, bool right);
typedef enum { TEXT_UPPER = 0, TEXT_LOWER, TEXT_TITLE, TEXT_CAPITALIZE, TEXT_SWAP, TEXT_TITLE_WORDS } text_case;
void text_convert(const char *text, size_t size, text_case to, buffer *out);

#endif
