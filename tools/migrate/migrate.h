/*
 * migrate.h - `nrl migrate`: a config of another trainer as a config of nrl. Reading order: migrate.c (arguments),
 * migrate_source.c (files and command lines become a list of keys), migrate_rules.c (what each key is called here),
 * migrate_build.c (values that several keys make together), migrate_write.c (YAML, the list of what is not mapped,
 * JSON). [main]
 */
#ifndef MIGRATE_H
#define MIGRATE_H
#include "base/buffer.h"
#include "base/node.h"
#include <stdbool.h>

/* ---- what is read ---- */

typedef struct {
    const char *path;     /* "optimizer.kwargs.lr" */
    const nrl_node *node; /* never a map; NULL = the key stands for an empty map */
    const char *slot;     /* the part it has in a value that several keys make; NULL = none */
    bool is_default;      /* of the other trainer: the source does not have the key */
    bool is_used;         /* it is mapped, or listed as not mapped */
} source_key;

/* ---- what the keys mean ---- */

typedef enum {
    RULE_COPY,    /* the value is the same here */
    RULE_INTEGER, /* a whole number: 3.0, 2**15 */
    RULE_NUMBER,  /* 1e-5, also as text */
    RULE_BOOL,
    RULE_WORD, /* words: "bfloat16=bf16|float16=fp16"; other words are not mapped */
    RULE_SLOT, /* migrate_build.c makes a value of it */
    RULE_SAME, /* has no counterpart, and changes no number */
    RULE_LOST, /* has no counterpart, and changes numbers unless the value is one of `words` */
} rule_kind;

typedef struct {
    const char *key; /* a path; * is any text */
    rule_kind kind;
    const char *to;    /* key of nrl, or the name of the slot */
    const char *words; /* see the kinds */
    const char *text;  /* the reason, or what a slot becomes. NULL: the text of other-names.txt */
} rule;

typedef struct {
    const char *key, *value;
    const char *method; /* only for this algorithm; NULL = any */
} trainer_default;

typedef struct {
    const char *name;  /* --from */
    const char *title; /* "TRL" */
    const rule *const *tables;
    const size_t *n_rows; /* of each table */
    size_t n_tables;
    const trainer_default *defaults;
    size_t n_defaults;
    bool by_last_part; /* sections differ: a rule also applies to the last part of a path */
} trainer;

/* What prints `title`'s keys as a table of docs/porting.md. */
extern const trainer trainers[];
extern const size_t n_trainers;

const trainer *trainer_find(const char *name); /* NULL = unknown */
const rule *rule_find(const trainer *t, const char *path);
/* Whether `word` is one of "a|b|c" or the left side of one of "a=x|b=y", regardless of case; *value is "x", in `a`. */
bool words_find(arena *a, const char *words, const char *word, const char **value);

/* ---- the work ---- */

typedef enum {
    REMARK_ASSUMED, /* what the source does not say */
    REMARK_SAME,    /* not mapped; changes no number */
    REMARK_LOST,    /* not mapped; changes numbers */
} remark_kind;

typedef struct {
    remark_kind kind;
    const source_key *key; /* NULL = none */
    const char *text;
} remark;

typedef struct {
    const char *key, *value; /* of nrl; value is YAML on one line */
    const char *from;        /* the comment */
} written;

typedef struct {
    arena *a;
    const char *source;    /* as named in messages */
    const char *out;       /* -o; NULL = standard output */
    int64_t devices;       /* --devices; 0 = from the source */
    const char *exe_dir;   /* where other-names.txt is found from */
    const trainer *format; /* NULL = to be recognised */
    const char *method;    /* sft, dpo, kto, reward, distill; NULL = to be found */
    source_key **keys;     /* each in `a`, because remarks refer to them */
    size_t n_keys, keys_room;
    written *lines;
    size_t n_lines, lines_room;
    remark *remarks;
    size_t n_remarks, remarks_room;
    const char *template_text; /* Jinja that is written beside the config; NULL = none */
} migration;

/* migrate_source.c */
nrl_status source_read_file(migration *m, const char *path);
nrl_status source_read_words(migration *m, char **words, size_t n);
nrl_status source_override(migration *m, const char *assignment); /* KEY=VALUE */
/* Replaces ${a.b}, ${mul:x,y} and the like; what cannot be resolved stays, and is a remark. */
void source_resolve(migration *m);
nrl_status source_recognise(migration *m);
source_key *source_find(const migration *m, const char *path);
source_key *source_add(migration *m, const char *path, const nrl_node *node);
/* A scalar as it was written, "" for null and lists; in m->a. */
const char *source_text(const migration *m, const source_key *k);
const char *source_node_text(arena *a, const nrl_node *node);
bool source_is_null(const source_key *k); /* also "", "none", "null" */
/* The arithmetic of a number: 3.0, "5e-6", 2**15, 4 * 1024, 1_000. */
bool source_number(const char *text, double *x);

/* migrate_build.c: all lines and remarks. */
nrl_status build_config(migration *m);

/* migrate_write.c */
void write_line(migration *m, const char *key, const char *value, const char *from, ...)
    __attribute__((format(printf, 4, 5)));
void write_remark(migration *m, remark_kind kind, const source_key *key, const char *text, ...)
    __attribute__((format(printf, 4, 5)));
bool write_has(const migration *m, const char *key);
const char *write_word(arena *a, const char *text);                /* as a YAML value */
const char *write_source(const migration *m, const source_key *k); /* "learning_rate: 5.0e-6" */
const char *write_place(const migration *m, const source_key *k);  /* "FILE:12" */
char *write_yaml(const migration *m);                              /* malloc'd */
char *write_json(const migration *m, const char *yaml);            /* malloc'd */
void write_remarks(const migration *m);                            /* standard error */
void write_table(const trainer *t, arena *a);                      /* Markdown, standard output */
size_t write_count(const migration *m, remark_kind kind);

#endif
