/*
 * layout.c - turns layouts into shards, and shards into ranges.
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

static int64_t box_numel(const layout_shard *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->n_dims; d++)
        n *= p->end[d] - p->begin[d];
    return n;
}

bool layout_holds_part(const nrl_mesh *m, int32_t rank, const nrl_part *part)
{
    return !part->layout.owner_stages || part->layout.owner_stages[(m ? mesh_stage_of(m, rank) : 0)];
}

static layout_shard whole_of(const nrl_part *part)
{
    layout_shard p = {.n_dims = part->n_dims};
    memcpy(p.dims, part->dims, sizeof p.dims);
    memcpy(p.end, part->dims, sizeof p.end);
    p.flat_end = box_numel(&p);
    return p;
}

int layout_n_boxes(const nrl_part *part)
{
    for (int32_t i = 0; i < part->layout.n_placements && part->groups > 1; i++)
        if (part->layout.placements[i].dim == 0) return part->groups;
    return 1;
}

/* Narrows the box by one placement, whose ranges count from the start of the box that earlier
 * placements left. */
static void cut_box(layout_shard *p, const nrl_placement *cut, int32_t coord)
{
    p->end[cut->dim] = p->begin[cut->dim] + cut->end[coord];
    p->begin[cut->dim] += cut->begin[coord];
}

layout_shard layout_box_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k)
{
    layout_shard p = whole_of(part);
    int64_t each = part->dims[0] / layout_n_boxes(part);
    p.begin[0] = k * each;
    p.end[0] = p.begin[0] + each;
    for (int32_t i = 0; i < part->layout.n_placements; i++) {
        const nrl_placement *cut = &part->layout.placements[i];
        if (cut->dim != NRL_SHARD_FLAT) cut_box(&p, cut, coord_of(m, rank, cut->axis));
    }
    p.flat_end = box_numel(&p);
    return p;
}

static int64_t clamped(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* Flat ranges count through all boxes, in order. */
static layout_shard cut_piece(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k)
{
    layout_shard p = layout_box_of(m, rank, part, k);
    int64_t numel = p.flat_end, begin = 0, end = numel * layout_n_boxes(part);
    for (int32_t i = 0; i < part->layout.n_placements; i++) {
        const nrl_placement *cut = &part->layout.placements[i];
        int32_t coord = coord_of(m, rank, cut->axis);
        if (cut->dim != NRL_SHARD_FLAT) continue;
        end = begin + cut->end[coord];
        begin += cut->begin[coord];
    }
    p.flat_begin = clamped(begin - k * numel, numel);
    p.flat_end = clamped(end - k * numel, numel);
    return p;
}

layout_shard layout_shard_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k)
{
    layout_shard p = cut_piece(m, rank, part, k);
    if (!layout_holds_part(m, rank, part)) p.flat_end = p.flat_begin = 0;
    return p;
}

typedef layout_shard (*piece_fn)(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k);

static int64_t sum_on(const nrl_mesh *m, int32_t rank, const nrl_part *part, piece_fn piece_of)
{
    int64_t n = 0;
    for (int k = 0; k < layout_n_boxes(part); k++) {
        layout_shard piece = piece_of(m, rank, part, k);
        n += piece_numel(&piece);
    }
    return n;
}

static int64_t numel_on(const nrl_mesh *m, int32_t rank, const nrl_param *p, piece_fn piece_of)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_parts; i++)
        n += sum_on(m, rank, &p->parts[i], piece_of);
    return n;
}

int64_t nrl_part_numel(const nrl_mesh *mesh, const nrl_part *part)
{
    return sum_on(mesh, own_rank(mesh), part, cut_piece); /* also if another stage holds it */
}

int64_t layout_local_numel(const nrl_mesh *m, const nrl_param *p)
{
    return numel_on(m, own_rank(m), p, layout_shard_of);
}

int64_t layout_whole_numel(const nrl_param *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_parts; i++) {
        layout_shard whole = whole_of(&p->parts[i]);
        n += piece_numel(&whole);
    }
    return n;
}

/* Checks every rank, because a flat shard may leave one of them a whole parameter. */
bool layout_is_whole(const nrl_mesh *m, const nrl_param *p)
{
    for (int32_t r = 0; r < (m ? nrl_mesh_world(m) : 1); r++)
        if (layout_is_held(m, r, p) && numel_on(m, r, p, layout_shard_of) != layout_whole_numel(p)) return false;
    return true;
}

bool layout_is_work(const nrl_mesh *m, const nrl_param *p)
{
    for (int32_t r = 0; r < (m ? nrl_mesh_world(m) : 1); r++)
        if (layout_is_held(m, r, p) && numel_on(m, r, p, layout_shard_of) != numel_on(m, r, p, layout_box_of))
            return false;
    return true;
}

bool layout_is_held(const nrl_mesh *m, int32_t rank, const nrl_param *p)
{
    for (int i = 0; i < p->n_parts; i++)
        if (layout_holds_part(m, rank, &p->parts[i])) return true;
    return false;
}

bool layout_is_everywhere(const nrl_mesh *m, const nrl_param *p)
{
    for (int32_t r = 0; r < (m ? nrl_mesh_world(m) : 1); r++)
        if (!layout_is_held(m, r, p)) return false;
    return layout_is_whole(m, p);
}

static bool holds_same(const nrl_mesh *m, const nrl_param *p, int32_t a, int32_t b, piece_fn piece_of)
{
    if (layout_is_held(m, a, p) != layout_is_held(m, b, p)) return false;
    for (int i = 0; i < p->n_parts; i++)
        for (int k = 0; k < layout_n_boxes(&p->parts[i]); k++) {
            layout_shard x = piece_of(m, a, &p->parts[i], k), y = piece_of(m, b, &p->parts[i], k);
            if (!piece_is_same(&x, &y)) return false;
        }
    return true;
}

static int32_t first_alike(const nrl_mesh *m, int32_t rank, const nrl_param *p, piece_fn piece_of)
{
    int32_t r = 0;
    while (r < rank && !holds_same(m, p, r, rank, piece_of))
        r++;
    return r;
}

int32_t layout_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p)
{
    return first_alike(m, rank, p, layout_shard_of);
}

int32_t layout_work_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p)
{
    return first_alike(m, rank, p, layout_box_of);
}

void layout_settle(const nrl_mesh *m, nrl_param *p)
{
    int64_t rows = 0;
    for (int i = 0; i < p->n_parts; i++) {
        layout_shard box = layout_box_of(m, own_rank(m), &p->parts[i], 0);
        rows += (box.end[0] - box.begin[0]) * layout_n_boxes(&p->parts[i]);
        for (int d = 1; d < p->n_dims; d++)
            p->dims[d] = box.end[d] - box.begin[d];
        if (i == 0) memcpy(p->first, box.begin, sizeof p->first);
    }
    p->dims[0] = rows;
    p->numel = numel_on(m, own_rank(m), p, layout_box_of);
}
