/*
 * op_tensor.cpp - ldmatrix and mma.m16n8k16 with f32 sums: PTX ISA, "Warp-level matrix instructions".
 */
#include "access.h"
#include "ops.h"
#include <math.h>

namespace ptx
{
/* ldmatrix: lane 8i+r passes the address of row r of matrix i, 8 values of 16 bits, aligned to 16
 * bytes; lane l gets from each matrix the values 2 (l%4) and + 1 of row l/4, or with .trans of
 * column l/4. small[0]: matrices, [1]: .trans. */
static void load_matrix(warp &w, const instruction &in, uint32_t mask)
{
    uint16_t rows[32][8];
    int n = in.small[0];
    (void)mask;
    for (int l = 0; l < 8 * n; l++) {
        uint64_t at = address_of_lane(w, in, n, l);
        memcpy(rows[l], reach(w, in.where, at, sizeof rows[l], l, access::read), sizeof rows[l]);
    }
    for (int i = 0; i < n; i++) {
        uint32_t *d = place<uint32_t>(w, in, i);
        for (int l = 0; l < LANES; l++) {
            int r = l / 4, c = 2 * (l % 4);
            uint16_t low = in.small[1] ? rows[8 * i + c][r] : rows[8 * i + r][c];
            uint16_t high = in.small[1] ? rows[8 * i + c + 1][r] : rows[8 * i + r][c + 1];
            d[l] = (uint32_t)high << 16 | low;
        }
    }
}

static void build_load_matrix(builder &b)
{
    static const uint8_t counts[] = {1, 2, 4};
    bool right = b.take("sync") && b.take("aligned") && b.take("m8n8");
    int n = b.take_one_of({"x1", "x2", "x4"});
    b.in.small[1] = b.take("trans");
    b.in.where = b.take_one_of({"shared", "shared::cta"}) < 0 ? space::generic : space::shared;
    if (!right || n < 0 || b.take_type().bytes != 2) b.unknown();
    b.in.small[0] = counts[n];
    if (b.at(0).parts.size() != counts[n]) b.unknown();
    for (const operand &o : b.at(0).parts)
        b.result(o, 4);
    b.address(b.at(1));
    b.in.how = flow::meet;
    b.in.run = load_matrix;
}

struct bf16_value {
    static float of(uint32_t bits)
    {
        return same_bits<float>(bits << 16);
    }
};
struct f16_value {
    static float of(uint32_t h)
    {
        uint32_t exponent = h >> 10 & 31, fraction = h & 1023, sign = (h & 0x8000) << 16;
        if (exponent == 31) return same_bits<float>(sign | 0x7f800000u | fraction << 13);
        if (exponent) return same_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
        float size = (float)fraction * 0x1p-24f;
        return sign ? -size : size;
    }
};

/* With g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix fragments for mma.m16n8k16"):
 *   a, element i of 8: row g, or g + 8 for i = 2, 3, 6, 7; column 2t + i%2, and 8 more from i = 4;
 *   b, element i of 4: row 2t + i%2, and 8 more from i = 2; column g;
 *   c and d, element i of 4: row g, or g + 8 from i = 2; column 2t + i%2.
 * Products are exact, sums made in f32 in the order of k; a GPU's order is its own. */
template <class V> static void multiply(warp &w, const instruction &in, uint32_t mask)
{
    float a[16][16], b[16][8], c[16][8];
    (void)mask;
    for (int l = 0; l < LANES; l++) {
        int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < 8; i++)
            a[g + (i & 2 ? 8 : 0)][t + i % 2 + (i & 4 ? 8 : 0)] =
                V::of(place<uint32_t>(w, in, 4 + i / 2)[l] >> (16 * (i % 2)) & 0xffff);
        for (int i = 0; i < 4; i++)
            b[t + i % 2 + (i & 2 ? 8 : 0)][g] = V::of(place<uint32_t>(w, in, 8 + i / 2)[l] >> (16 * (i % 2)) & 0xffff);
        for (int i = 0; i < 4; i++)
            c[g + (i & 2 ? 8 : 0)][t + i % 2] = place<float>(w, in, 10 + i)[l];
    }
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                c[r][n] += a[r][k] * b[k][n];
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++)
            place<float>(w, in, i)[l] = c[l / 4 + (i & 2 ? 8 : 0)][2 * (l % 4) + i % 2];
}

static void build_mma(builder &b)
{
    static const size_t sizes[] = {4, 4, 2, 4};
    type u32 = {'u', 4};
    bool right = b.take("sync") && b.take("aligned") && b.take("m16n8k16") && b.take("row") && b.take("col");
    if (!right) b.unknown();
    type d = b.take_type(), a = b.take_type(), other = b.take_type(), c = b.take_type();
    bool f32 = d.kind == 'f' && d.bytes == 4 && c.kind == 'f' && c.bytes == 4;
    if (!f32 || a.bytes != 2 || a.kind != other.kind || other.bytes != 2) b.unknown();
    for (size_t k = 0; k < 4; k++) {
        if (b.at(k).parts.size() != sizes[k]) b.unknown();
        for (const operand &o : b.at(k).parts)
            if (k == 0)
                b.result(o, 4);
            else
                b.source(o, u32);
    }
    b.in.how = flow::meet;
    b.in.run = a.kind == 'h' ? multiply<bf16_value> : multiply<f16_value>;
}

const build_row build_tensor[] = {{"ldmatrix", build_load_matrix}, {"mma", build_mma}, {nullptr, nullptr}};
} // namespace ptx
