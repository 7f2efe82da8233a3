/*
 * layout.c - layouts as pieces, pieces as stretches.
 */
#include "mesh/layout.h"
#include <string.h>

/* Without a mesh there is one rank. */
static int32_t coord_of(const nrl_mesh *m, int32_t rank, const char *axis)
{
    return m ? mesh_coord_of(m, rank, axis) : 0;
}

static int32_t own_rank(const nrl_mesh *m)
{
    return m ? nrl_mesh_rank(m) : 0;
}

static int64_t box_numel(const layout_piece *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->n_dims; d++) n *= p->end[d] - p->begin[d];
    return n;
}

/* Narrows the piece by one cut, whose ranges count from where earlier cuts of the same kind left it. */
static void apply_cut(layout_piece *p, const nrl_cut *cut, int32_t coord)
{
    int64_t begin = cut->begin[coord], end = cut->end[coord];
    if (cut->dim == NRL_CUT_FLAT) {
        p->flat_end = p->flat_begin + end;
        p->flat_begin += begin;
        return;
    }
    p->end[cut->dim] = p->begin[cut->dim] + end;
    p->begin[cut->dim] += begin;
    p->flat_end = box_numel(p);
}

layout_piece layout_piece_of(const nrl_mesh *m, int32_t rank, const nrl_part *part)
{
    layout_piece p = {.n_dims = part->n_dims};
    memcpy(p.dims, part->dims, sizeof p.dims);
    memcpy(p.end, part->dims, sizeof p.end);
    p.flat_end = box_numel(&p);
    for (int32_t i = 0; i < part->layout.n_cuts; i++)
        apply_cut(&p, &part->layout.cuts[i], coord_of(m, rank, part->layout.cuts[i].axis));
    return p;
}

int64_t layout_numel(const layout_piece *p)
{
    return p->flat_end - p->flat_begin;
}

/* The outermost dimension from which on the box is whole: elements of one index there are one stretch. */
static int first_whole(const layout_piece *p)
{
    int d = p->n_dims;
    while (d > 0 && p->begin[d - 1] == 0 && p->end[d - 1] == p->dims[d - 1]) d--;
    return d > 0 ? d - 1 : 0;
}

bool layout_next(const layout_piece *p, int64_t *at, int64_t *global_begin, int64_t *n)
{
    if (*at >= layout_numel(p)) return false;
    int cut = first_whole(p);
    int64_t inner = 1, in_box = p->flat_begin + *at;
    for (int d = cut + 1; d < p->n_dims; d++) inner *= p->dims[d];
    int64_t stretch = inner * (p->end[cut] - p->begin[cut]), row = in_box / stretch, column = in_box % stretch;
    int64_t scale = inner * p->dims[cut], global = p->begin[cut] * inner + column;
    for (int d = cut - 1; d >= 0; d--) {
        int64_t extent = p->end[d] - p->begin[d];
        global += (p->begin[d] + row % extent) * scale;
        row /= extent;
        scale *= p->dims[d];
    }
    *global_begin = global;
    *n = stretch - column;
    if (*n > layout_numel(p) - *at) *n = layout_numel(p) - *at;
    *at += *n;
    return true;
}

static int64_t numel_on(const nrl_mesh *m, int32_t rank, const nrl_param *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_parts; i++) {
        layout_piece piece = layout_piece_of(m, rank, &p->parts[i]);
        n += layout_numel(&piece);
    }
    return n;
}

int64_t layout_local_numel(const nrl_mesh *m, const nrl_param *p)
{
    return numel_on(m, own_rank(m), p);
}

/* Asked of every rank: a flat cut may leave one of them a whole parameter. */
bool layout_is_whole(const nrl_mesh *m, const nrl_param *p)
{
    for (int32_t r = 0; r < (m ? nrl_mesh_world(m) : 1); r++)
        if (numel_on(m, r, p) != p->numel) return false;
    return true;
}

static bool holds_same(const nrl_mesh *m, const nrl_param *p, int32_t a, int32_t b)
{
    for (int i = 0; i < p->n_parts; i++) {
        layout_piece x = layout_piece_of(m, a, &p->parts[i]), y = layout_piece_of(m, b, &p->parts[i]);
        if (x.flat_begin != y.flat_begin || x.flat_end != y.flat_end ||
            memcmp(x.begin, y.begin, sizeof x.begin) || memcmp(x.end, y.end, sizeof x.end))
            return false;
    }
    return true;
}

int32_t layout_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p)
{
    int32_t r = 0;
    while (r < rank && !holds_same(m, p, r, rank)) r++;
    return r;
}
