/*
 * op_memory.cpp - ld, st, atom, red: PTX ISA, "Data movement" and "Parallel synchronization". Cache
 * hints and memory orders have no effect, because blocks run one after another.
 *
 * small[0]: bytes of an element, [1]: elements, [2]: bytes of the registers, [3]: signed, [4]:
 * strong, as for volatile.
 */
#include "access.h"
#include "ops.h"

namespace ptx
{
static void load(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t bytes = in.small[0], n = in.small[1], width = in.small[2];
    access how = in.small[4] ? access::strong_read : access::read;
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        const uint8_t *from = reach(w, in.where, address_of_lane(w, in, (int)n, l), bytes * n, l, how);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t x = 0;
            copy_small(&x, from + i * bytes, bytes);
            if (in.small[3]) x = (uint64_t)((int64_t)(x << (64 - 8 * bytes)) >> (64 - 8 * bytes));
            copy_small(w.registers + in.op[i] + (uint32_t)l * width, &x, width);
        }
    }
}

static void store(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t bytes = in.small[0], n = in.small[1], width = in.small[2];
    access how = in.small[4] ? access::strong_write : access::write;
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        uint8_t *to = reach(w, in.where, address_of_lane(w, in, 0, l), bytes * n, l, how);
        for (uint32_t i = 0; i < n; i++)
            copy_small(to + i * bytes, w.registers + in.op[1 + i] + (uint32_t)l * width, bytes);
    }
}

static space take_space(builder &b)
{
    static const space spaces[] = {space::global, space::shared, space::shared,
                                   space::local,  space::param,  space::constant};
    int s = b.take_one_of({"global", "shared", "shared::cta", "local", "param", "const"});
    return s < 0 ? space::generic : spaces[s];
}

static void drop_orders(builder &b)
{
    b.in.small[4] = b.take_one_of({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"}) >= 0;
    b.drop({"weak", "sys", "gpu", "cta", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_last",
            "L1::no_allocate", "L1::evict_first", "L2::64B", "L2::128B", "L2::256B"});
}

/* Elements of a vector operand, or the operand alone. */
static std::vector<operand> elements(const operand &o)
{
    return o.is == operand::VECTOR ? o.parts : std::vector<operand>{o};
}

static void begin_access(builder &b, const operand &at, const std::vector<operand> &values)
{
    int vector = b.take_one_of({"v2", "v4"});
    b.in.where = take_space(b);
    drop_orders(b);
    type t = b.take_type();
    b.in.small[0] = t.bytes;
    b.in.small[1] = (uint8_t)values.size();
    b.in.small[3] = t.kind == 's';
    if (values.size() != (vector == 0 ? 2u : vector == 1 ? 4u : 1u)) b.unknown();
    if (b.in.where == space::param) b.in.where = b.space_of(at);
}

static void build_load(builder &b)
{
    std::vector<operand> values = elements(b.at(0));
    begin_access(b, b.at(1), values);
    for (const operand &o : values)
        b.in.small[2] = (uint8_t)b.result(o, 0);
    if (b.in.small[2] < b.in.small[0]) b.unknown();
    b.address(b.at(1));
    b.in.run = load;
}

static void build_store(builder &b)
{
    std::vector<operand> values = elements(b.at(1));
    begin_access(b, b.at(0), values);
    b.address(b.at(0));
    type t = {'b', b.in.small[0]};
    for (const operand &o : values)
        b.in.small[2] = (uint8_t)b.source(o, t, true);
    if (b.in.small[2] < b.in.small[0]) b.unknown();
    b.in.run = store;
}

void local_copy(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t n = in.small[0];
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        size_t base = (size_t)l * w.p->local_bytes;
        memcpy(&w.local[base + in.target], &w.local[base + (size_t)in.offset], n);
        memcpy(&w.local_written[base + in.target], &w.local_written[base + (size_t)in.offset], n);
    }
}

/* ---- atomics: one lane after another ---- */

enum { ADD = 0, MIN, MAX, AND, OR, XOR, EXCHANGE, COMPARE };

template <class T> static T changed(int op, T old, T x, T y)
{
    switch (op) {
    case ADD:
        return (T)(old + x);
    case MIN:
        return old < x ? old : x;
    case MAX:
        return old > x ? old : x;
    case EXCHANGE:
        return x;
    case COMPARE:
        return old == x ? y : old;
    }
    if constexpr (std::is_integral_v<T>) return op == AND ? (T)(old & x) : op == OR ? (T)(old | x) : (T)(old ^ x);
    return old;
}

/* small[0]: operation, [1]: the result is not used */
template <class T> static void atomic(warp &w, const instruction &in, uint32_t mask)
{
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        uint8_t *at = reach(w, in.where, address_of_lane(w, in, 1, l), sizeof(T), l, access::atomic);
        T old, x = place<T>(w, in, 2)[l], y = in.small[0] == COMPARE ? place<T>(w, in, 3)[l] : x;
        memcpy(&old, at, sizeof old);
        T now = changed(in.small[0], old, x, y);
        memcpy(at, &now, sizeof now);
        if (!in.small[1]) place<T>(w, in, 0)[l] = old;
    }
}

static void build_atomic(builder &b, bool wants_old)
{
    size_t k = wants_old ? 1 : 0;
    int op = b.take_one_of({"add", "min", "max", "and", "or", "xor", "exch", "cas"});
    b.in.where = take_space(b);
    drop_orders(b);
    type t = b.take_type();
    if (op < 0) b.unknown();
    if (wants_old)
        b.result(b.at(0), t.bytes);
    else
        b.no_result();
    b.address(b.at(k));
    for (size_t i = k + 1; i < b.count(); i++)
        b.source(b.at(i), t);
    b.in.small[0] = (uint8_t)op;
    b.in.small[1] = !wants_old;
    need(b, t.bytes < 4 ? nullptr : of_number(t, [](auto x) -> handler { return atomic<decltype(x)>; }));
}

static void build_atom(builder &b)
{
    build_atomic(b, true);
}

static void build_red(builder &b)
{
    build_atomic(b, false);
}

const build_row build_memory[] = {
    {"ld", build_load}, {"st", build_store}, {"atom", build_atom}, {"red", build_red}, {nullptr, nullptr},
};
} // namespace ptx
