/*
 * checkpoint_diff.c - `nrl checkpoint diff A B`: tensors that only one of them has, the largest
 * difference of the others, and the config keys that differ.
 */
#include "base/json.h"
#include "checkpoint_verb.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1 << 20 }; /* elements compared at a time */

typedef struct {
    arena a;
    nrl_checkpoint *left, *right;
    nrl_node *tensors, *keys; /* lists of maps */
    int64_t n_equal;
} difference;

static nrl_node *add(difference *d, nrl_node *list, const char *what)
{
    nrl_node *map = node_new(&d->a, NRL_NODE_MAP);
    node_append(&d->a, list, NULL, map);
    checkpoint_verb_set(&d->a, map, "difference", what);
    return map;
}

static nrl_node *add_tensor(difference *d, const nrl_checkpoint_tensor *t, const char *what)
{
    nrl_node *map = add(d, d->tensors, what);
    checkpoint_verb_set(&d->a, map, "name", t->name);
    checkpoint_verb_set(&d->a, map, "slot", t->slot);
    return map;
}

/* ---- tensors ---- */

/* The largest |a - b|. It is infinite if only one of two values is NaN. */
static double distance(nrl_dtype dtype, const char *a, const char *b, int64_t n)
{
    size_t width = nrl_dtype_size(dtype);
    double most = 0;
    for (int64_t i = 0; i < n; i++, a += width, b += width) {
        if (!memcmp(a, b, width)) continue;
        double x = nrl_dtype_f64(dtype, a), y = nrl_dtype_f64(dtype, b);
        if (isnan(x) && isnan(y)) continue;
        double apart = fabs(x - y);
        if (isnan(apart) || apart > most) most = isnan(apart) ? INFINITY : apart;
    }
    return most;
}

static nrl_status compare_values(difference *d, const nrl_checkpoint_tensor *t, int64_t i, int64_t k, bool *same,
                                 double *most)
{
    size_t width = nrl_dtype_size(t->dtype);
    int64_t numel = 1;
    for (int n = 0; n < t->n_dims; n++)
        numel *= t->dims[n];
    char *a = mem_alloc(2 * (size_t)(numel < WINDOW ? numel : WINDOW) * width + 1);
    char *b = a + (size_t)(numel < WINDOW ? numel : WINDOW) * width;
    nrl_status st = NRL_OK;
    *same = true;
    *most = 0;
    for (int64_t begin = 0; begin < numel && st == NRL_OK; begin += WINDOW) {
        int64_t end = begin + WINDOW < numel ? begin + WINDOW : numel;
        st = nrl_checkpoint_read(d->left, i, begin, end, a);
        if (st == NRL_OK) st = nrl_checkpoint_read(d->right, k, begin, end, b);
        if (st != NRL_OK || !memcmp(a, b, (size_t)(end - begin) * width)) continue;
        *same = false;
        *most = fmax(*most, distance(t->dtype, a, b, end - begin));
    }
    free(a);
    return st;
}

static nrl_status compare_tensor(difference *d, int64_t i)
{
    const nrl_checkpoint_tensor t = checkpoint_verb_tensor(d->left, i);
    int64_t k = nrl_checkpoint_find(d->right, t.name, t.slot);
    bool same;
    double most;
    if (k < 0) {
        add_tensor(d, &t, "only in the first");
        return NRL_OK;
    }
    const nrl_checkpoint_tensor other = checkpoint_verb_tensor(d->right, k);
    if (t.dtype != other.dtype || t.n_dims != other.n_dims ||
        memcmp(t.dims, other.dims, (size_t)t.n_dims * sizeof *t.dims)) {
        add_tensor(d, &t,
                   arena_printf(&d->a, "%s %s and %s %s", nrl_dtype_name(t.dtype), checkpoint_verb_shape(&d->a, &t),
                                nrl_dtype_name(other.dtype), checkpoint_verb_shape(&d->a, &other)));
        return NRL_OK;
    }
    NRL_TRY(compare_values(d, &t, i, k, &same, &most));
    d->n_equal += same;
    if (!same) node_append(&d->a, add_tensor(d, &t, "values"), "max_abs", node_f64(&d->a, most));
    return NRL_OK;
}

static nrl_status compare_tensors(difference *d)
{
    int64_t n_left = checkpoint_verb_info(d->left).n_tensors, n_right = checkpoint_verb_info(d->right).n_tensors;
    for (int64_t i = 0; i < n_left; i++)
        NRL_TRY(compare_tensor(d, i));
    for (int64_t i = 0; i < n_right; i++) {
        const nrl_checkpoint_tensor t = checkpoint_verb_tensor(d->right, i);
        if (nrl_checkpoint_find(d->left, t.name, t.slot) < 0) add_tensor(d, &t, "only in the second");
    }
    return NRL_OK;
}

/* ---- config ---- */

static void compare_nodes(difference *d, const char *path, const nrl_node *a, const nrl_node *b)
{
    if (nrl_node_kind(a) == NRL_NODE_MAP && nrl_node_kind(b) == NRL_NODE_MAP) {
        const char *dot = *path ? "." : "";
        for (size_t i = 0; i < nrl_node_size(a); i++) {
            const char *key = nrl_node_key(a, i);
            compare_nodes(d, arena_printf(&d->a, "%s%s%s", path, dot, key), nrl_node_at(a, i), nrl_node_find(b, key));
        }
        for (size_t i = 0; i < nrl_node_size(b); i++) {
            const char *key = nrl_node_key(b, i);
            if (!nrl_node_find(a, key))
                compare_nodes(d, arena_printf(&d->a, "%s%s%s", path, dot, key), NULL, nrl_node_at(b, i));
        }
        return;
    }
    char *left = a ? json_write(a, 0) : mem_strdup("nothing"), *right = b ? json_write(b, 0) : mem_strdup("nothing");
    if (strcmp(left, right)) {
        nrl_node *map = add(d, d->keys, arena_printf(&d->a, "%s and %s", left, right));
        checkpoint_verb_set(&d->a, map, "key", path);
    }
    free(left);
    free(right);
}

/* ---- output ---- */

static void print_text(const difference *d)
{
    for (size_t i = 0; i < nrl_node_size(d->keys); i++) {
        const nrl_node *n = nrl_node_at(d->keys, i);
        cli_page("%s: %s\n", nrl_node_string(nrl_node_find(n, "key"), ""),
                 nrl_node_string(nrl_node_find(n, "difference"), ""));
    }
    for (size_t i = 0; i < nrl_node_size(d->tensors); i++) {
        const nrl_node *n = nrl_node_at(d->tensors, i), *most = nrl_node_find(n, "max_abs");
        cli_page("%s of %s: ", nrl_node_string(nrl_node_find(n, "slot"), ""),
                 nrl_node_string(nrl_node_find(n, "name"), ""));
        if (most)
            cli_page("differs by at most %.6g\n", nrl_node_f64(most, 0));
        else
            puts(nrl_node_string(nrl_node_find(n, "difference"), ""));
    }
    cli_page("%zu tensors differ, %lld are equal; %zu keys of the config differ\n", nrl_node_size(d->tensors),
             (long long)d->n_equal, nrl_node_size(d->keys));
}

static void print_json(difference *d)
{
    nrl_node *map = node_new(&d->a, NRL_NODE_MAP);
    node_append(&d->a, map, "equal_tensors", node_int(&d->a, d->n_equal));
    node_append(&d->a, map, "tensors", d->tensors);
    node_append(&d->a, map, "config", d->keys);
    checkpoint_verb_print(map);
}

nrl_status checkpoint_diff(int argc, char **argv, bool json)
{
    difference d = {0};
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    d.tensors = node_new(&d.a, NRL_NODE_LIST);
    d.keys = node_new(&d.a, NRL_NODE_LIST);
    nrl_status st = nrl_checkpoint_open(argv[1], NULL, &d.left);
    if (st == NRL_OK) st = nrl_checkpoint_open(argv[2], NULL, &d.right);
    if (st == NRL_OK) st = compare_tensors(&d);
    if (st == NRL_OK) {
        compare_nodes(&d, "", nrl_checkpoint_node(d.left, "config"), nrl_checkpoint_node(d.right, "config"));
        if (json)
            print_json(&d);
        else
            print_text(&d);
    }
    nrl_checkpoint_close(d.left);
    nrl_checkpoint_close(d.right);
    arena_free(&d.a);
    return st;
}
