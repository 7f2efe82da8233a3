/*
 * builder.cpp - opcodes and operands; see builder.h.
 */
#include "builder.h"
#include <fenv.h>
#include <string.h>

namespace ptx
{
void builder::unknown() const
{
    fail(PTX_OPCODE, "kernel %s, line %d: '%s' is not modelled", p_->kernel.c_str(), s_->line, s_->opcode.c_str());
}

bool builder::take(const char *part)
{
    for (size_t i = 1; i < parts_.size(); i++)
        if (parts_[i] == part) {
            parts_.erase(parts_.begin() + (long)i);
            return true;
        }
    return false;
}

int builder::take_one_of(std::initializer_list<const char *> parts)
{
    int i = 0;
    for (const char *part : parts) {
        if (take(part)) return i;
        i++;
    }
    return -1;
}

void builder::drop(std::initializer_list<const char *> parts)
{
    for (const char *part : parts)
        take(part);
}

bool builder::has_type() const
{
    type t;
    for (size_t i = 1; i < parts_.size(); i++)
        if (type_named(parts_[i], &t)) return true;
    return false;
}

type builder::take_type()
{
    type t;
    for (size_t i = 1; i < parts_.size(); i++)
        if (type_named(parts_[i], &t)) {
            parts_.erase(parts_.begin() + (long)i);
            return t;
        }
    unknown();
}

bool builder::take_rounding()
{
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    int mode = take_one_of({"rn", "rz", "rm", "rp"});
    in.small[7] = (uint8_t)(modes[mode < 0 ? 0 : mode] >> 8);
    return mode >= 0;
}

const operand &builder::at(size_t k) const
{
    if (k >= s_->operands.size()) unknown();
    return s_->operands[k];
}

int builder::register_bytes(const operand &o) const
{
    return o.is == operand::REGISTER ? u_->f.registers[(size_t)o.index].bytes : 0;
}

void builder::no_result()
{
    if (sink_ == NO_PLACE) sink_ = new_place(256);
    p_->operands.push_back(sink_);
    in.n_results++;
}

int builder::result(const operand &o, int bytes)
{
    if (o.is == operand::SINK) {
        no_result();
        return bytes ? bytes : 8;
    }
    int width = register_bytes(o);
    if (!width || (bytes && width != bytes))
        fail(PTX_SYNTAX, "kernel %s, line %d: '%s' has a result of another width", p_->kernel.c_str(), s_->line,
             s_->opcode.c_str());
    p_->operands.push_back(u_->registers[(size_t)o.index]);
    in.n_results++;
    return width;
}

void builder::predicate_result(const operand &o)
{
    if (o.is == operand::SINK)
        no_result();
    else if (o.is == operand::REGISTER && u_->f.registers[(size_t)o.index].kind == 'p')
        result(o, 4);
    else
        unknown();
}

void builder::predicate_source(const operand &o)
{
    if (o.is == operand::REGISTER && u_->f.registers[(size_t)o.index].kind != 'p') unknown();
    type t = {'p', 4};
    source(o, t);
}

/* A literal in the encoding of t. PTX ISA, "Constants": floating-point ones have no type of their own. */
static uint64_t literal_bits(const operand &o, type t)
{
    double d = 0;
    float f;
    uint32_t word = (uint32_t)o.bits;
    memcpy(&f, &word, sizeof f);
    if (o.literal == 'd') memcpy(&d, &o.bits, sizeof d);
    if (o.literal == 'f') d = f;
    if (t.kind == 'p') return o.bits ? (uint64_t)ALL_LANES : 0;
    if (o.literal == 'i' && t.kind != 'f') return o.bits;
    if (t.bytes == 4 && o.literal == 'f') return o.bits;
    if (o.literal == 'i') d = (double)(int64_t)o.bits;
    if (t.bytes == 8) {
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        return bits;
    }
    f = (float)d;
    memcpy(&word, &f, sizeof word);
    return word;
}

uint32_t builder::place_of(const operand &o, type t)
{
    if (o.is == operand::REGISTER) return u_->registers[(size_t)o.index];
    if (o.is == operand::NUMBER) return constant_place(t.bytes, literal_bits(o, t));
    if (o.is == operand::SPECIAL) return special_place(o.name);
    if (o.is == operand::VARIABLE) return constant_place(t.bytes, u_->variables[(size_t)o.index] + (uint64_t)o.offset);
    if (o.is == operand::NAME) {
        bool dynamic = is_dynamic(o.name);
        uint64_t at = dynamic ? 0 : shared_variable(o.name);
        return constant_place(t.bytes, at + (uint64_t)o.offset, dynamic);
    }
    unknown();
}

int builder::source(const operand &o, type t, bool any_width)
{
    int width = register_bytes(o);
    if (width && width != t.bytes && !any_width)
        fail(PTX_SYNTAX, "kernel %s, line %d: '%s' has an operand of %d bytes, expected %d", p_->kernel.c_str(),
             s_->line, s_->opcode.c_str(), width, t.bytes);
    if (o.is == operand::REGISTER && (t.kind == 'p') != (u_->f.registers[(size_t)o.index].kind == 'p')) unknown();
    uint32_t place = place_of(o, t);
    p_->operands.push_back(place);
    in.n_sources++;
    return width ? width : o.is == operand::SPECIAL ? 4 : t.bytes;
}

void builder::address(const operand &o)
{
    if (o.is != operand::ADDRESS) unknown();
    const operand &base = o.parts[0];
    type t = {'u', 8};
    in.small[6] = (uint8_t)(base.is == operand::REGISTER ? source(base, t, true) : source(base, t));
    in.offset = o.offset;
}

space builder::space_of(const operand &o) const
{
    if (o.is != operand::ADDRESS) unknown();
    const operand &base = o.parts[0];
    bool own = base.is != operand::VARIABLE || base.index < u_->f.n_params;
    return u_->f.is_entry && own ? space::param : space::local;
}

uint64_t builder::number(const operand &o) const
{
    if (o.is != operand::NUMBER || o.literal != 'i') unknown();
    return o.bits;
}

const std::string &builder::label(const operand &o) const
{
    if (o.is != operand::NAME) unknown();
    return o.name;
}

void builder::jump(const std::string &name)
{
    jumps_.push_back({p_->code.size(), name, u_});
}

/* ---- places ---- */

uint32_t builder::new_place(uint32_t bytes)
{
    uint32_t place = p_->register_bytes;
    p_->register_bytes += (bytes + 63) / 64 * 64;
    return place;
}

uint32_t builder::constant_place(int bytes, uint64_t bits, bool dynamic)
{
    auto key = std::make_pair(dynamic ? -bytes : bytes, bits);
    auto at = constants_.find(key);
    if (at != constants_.end()) return at->second;
    uint32_t place = new_place((uint32_t)bytes * 32);
    p_->constants.push_back({place, (uint8_t)bytes, dynamic, bits});
    return constants_[key] = place;
}

uint32_t builder::special_place(const std::string &name)
{
    auto at = specials_.find(name);
    if (at != specials_.end()) return at->second;
    uint32_t place = new_place(8 * 32);
    p_->specials.push_back({place, name});
    return specials_[name] = place;
}
} // namespace ptx
