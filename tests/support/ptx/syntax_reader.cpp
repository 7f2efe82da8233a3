/*
 * syntax_reader.cpp - see syntax_reader.h. Operands: PTX ISA, "Instruction operands", "Constants".
 */
#include "syntax_reader.h"
#include "fault.h"
#include <stdlib.h>
#include <string.h>

namespace ptx
{
bool reader::skip(std::string_view text)
{
    if (peek().text != text) return false;
    next();
    return true;
}

void reader::unknown() const
{
    const token &t = peek();
    fail(PTX_SYNTAX, "line %d: '%.*s' is not understood here", t.line, (int)t.text.size(), t.text.data());
}

void reader::need(std::string_view text)
{
    if (!skip(text)) unknown();
}

std::string_view reader::word()
{
    if (peek().is != token::WORD) unknown();
    return next().text;
}

uint64_t reader::number()
{
    if (peek().is != token::NUMBER) unknown();
    return strtoull(std::string(next().text).c_str(), nullptr, 0);
}

void reader::skip_line(int line)
{
    while (peek().is != token::END && peek().line == line)
        next();
}

void reader::open_scope()
{
    scopes_.emplace_back();
}

void reader::close_scope()
{
    scopes_.pop_back();
}

void reader::declare(const std::string &name, int variable)
{
    scopes_.back().names[name] = {variable, 0};
}

void reader::declare_registers(const std::string &name, bool many, int first, int n)
{
    if (many)
        scopes_.back().families[name] = {first, n};
    else
        scopes_.back().names[name] = {first, -1};
}

bool reader::find_register(std::string_view name, int *out) const
{
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    int number = digits < name.size() ? atoi(std::string(name.substr(digits)).c_str()) : -1;
    for (size_t i = scopes_.size(); i-- > 0;) {
        auto one = scopes_[i].names.find(name);
        if (one != scopes_[i].names.end() && one->second.n == -1) {
            *out = one->second.first;
            return true;
        }
        auto many = scopes_[i].families.find(name.substr(0, digits));
        if (number >= 0 && many != scopes_[i].families.end() && number < many->second.n) {
            *out = many->second.first + number;
            return true;
        }
    }
    return false;
}

bool reader::find_variable(std::string_view name, int *out) const
{
    for (size_t i = scopes_.size(); i-- > 0;) {
        auto one = scopes_[i].names.find(name);
        if (one == scopes_[i].names.end() || one->second.n != 0) continue;
        *out = one->second.first;
        return true;
    }
    return false;
}

int reader::need_register(std::string_view name) const
{
    int out;
    if (!find_register(name, &out)) unknown();
    return out;
}

/* 12, 0x1F, 0f3F800000, 0d3FF0000000000000, 1.5; the sign was read already. */
operand reader::read_number()
{
    operand o;
    o.is = operand::NUMBER;
    bool minus = skip("-");
    if (peek().is != token::NUMBER) unknown();
    std::string text(next().text);
    bool marked = text.size() > 2 && text[0] == '0';
    if (marked && (text[1] == 'f' || text[1] == 'F')) {
        o.literal = 'f';
        o.bits = strtoull(text.c_str() + 2, nullptr, 16);
        if (minus) o.bits ^= 0x80000000u;
    } else if (marked && (text[1] == 'd' || text[1] == 'D')) {
        o.literal = 'd';
        o.bits = strtoull(text.c_str() + 2, nullptr, 16);
        if (minus) o.bits ^= (uint64_t)1 << 63;
    } else if (text.find('.') != std::string::npos) {
        double value = strtod(text.c_str(), nullptr);
        if (minus) value = -value;
        o.literal = 'd';
        memcpy(&o.bits, &value, sizeof value);
    } else {
        o.bits = strtoull(text.c_str(), nullptr, 0);
        if (minus) o.bits = 0 - o.bits;
    }
    return o;
}

operand reader::read_name()
{
    operand o;
    std::string_view name = word();
    if (name == "_") return o;
    if (find_register(name, &o.index)) {
        o.is = operand::REGISTER;
    } else if (find_variable(name, &o.index)) {
        o.is = operand::VARIABLE;
    } else {
        o.is = name[0] == '%' ? operand::SPECIAL : operand::NAME;
        o.name = name;
    }
    if (skip("|")) {
        std::string_view second = word();
        if (second != "_") o.second = need_register(second);
    }
    return o;
}

operand reader::read_parts(const char *end, operand::kind is)
{
    operand o;
    o.is = is;
    next();
    while (!skip(end)) {
        o.parts.push_back(read_operand());
        skip(",");
    }
    return o;
}

/* [base], [base+12], [base+-8] */
operand reader::read_address()
{
    operand o;
    o.is = operand::ADDRESS;
    next();
    o.parts.push_back(read_operand());
    std::swap(o.offset, o.parts[0].offset);
    need("]");
    return o;
}

operand reader::read_operand()
{
    const token &t = peek();
    if (t.text == "{") return read_parts("}", operand::VECTOR);
    if (t.text == "(") return read_parts(")", operand::LIST);
    if (t.text == "[") return read_address();
    if (t.is == token::NUMBER || t.text == "-") return read_number();
    bool inverted = skip("!");
    operand o = read_name();
    o.inverted = inverted;
    if (skip("+")) o.offset = (int64_t)read_number().bits;
    return o;
}

statement reader::read_statement()
{
    statement s;
    s.line = peek().line;
    if (skip("@")) {
        s.guard_inverted = skip("!");
        s.guard = need_register(word());
    }
    s.opcode = word();
    while (!skip(";")) {
        s.operands.push_back(read_operand());
        if (peek().text != ";") need(",");
    }
    return s;
}
} // namespace ptx
