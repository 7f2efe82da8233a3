/*
 * syntax.cpp - statements and declarations; see syntax.h. Grammar: PTX ISA, "Syntax", "State spaces,
 * types and variables", "Directives".
 */
#include "fault.h"
#include "syntax.h"
#include "syntax_reader.h"
#include <stdlib.h>

namespace ptx
{
bool type_named(std::string_view name, type *out)
{
    static const struct {
        const char *name;
        type t;
    } all[] = {{"pred", {'p', 4}},     {"b8", {'b', 1}},       {"b16", {'b', 2}},       {"b32", {'b', 4}},
               {"b64", {'b', 8}},      {"u8", {'u', 1}},       {"u16", {'u', 2}},       {"u32", {'u', 4}},
               {"u64", {'u', 8}},      {"s8", {'s', 1}},       {"s16", {'s', 2}},       {"s32", {'s', 4}},
               {"s64", {'s', 8}},      {"f16", {'f', 2}},      {"f32", {'f', 4}},       {"f64", {'f', 8}},
               {"bf16", {'h', 2}},     {"f16x2", {'f', 4, 2}}, {"bf16x2", {'h', 4, 2}}, {"e4m3x2", {'4', 2, 2}},
               {"e5m2x2", {'5', 2, 2}}};
    for (const auto &row : all)
        if (name == row.name) {
            *out = row.t;
            return true;
        }
    return false;
}

static bool space_named(std::string_view word, space *out)
{
    static const struct {
        const char *name;
        space s;
    } all[] = {{".param", space::param},
               {".local", space::local},
               {".shared", space::shared},
               {".global", space::global},
               {".const", space::constant}};
    for (const auto &row : all)
        if (word == row.name) {
            *out = row.s;
            return true;
        }
    return false;
}

/* After the space: {.align N} .type name{[N]}; leaves the punctuation after it. */
static variable read_variable(reader &r, space where, bool external)
{
    variable v = {"", where, 0, 0, external};
    type t;
    for (;;) {
        std::string_view word = r.word();
        if (word == ".align")
            v.align = (uint32_t)r.number();
        else if (word == ".ptr" || word == ".global" || word == ".shared")
            continue; /* hints on a pointer parameter */
        else if (word[0] == '.' && type_named(word.substr(1), &t))
            v.bytes = t.bytes;
        else if (word == ".v2" || word == ".v4")
            continue;
        else {
            v.name = word;
            break;
        }
    }
    if (!v.bytes) r.unknown();
    if (!v.align) v.align = (uint32_t)v.bytes;
    while (r.skip("["))
        if (r.skip("]"))
            v.external = true;
        else {
            v.bytes *= r.number();
            r.need("]");
        }
    return v;
}

static void read_variable_list(reader &r, function *f, int *count)
{
    r.need("(");
    while (!r.skip(")")) {
        space where;
        if (r.skip(",")) continue;
        if (!space_named(r.word(), &where)) r.unknown();
        f->variables.push_back(read_variable(r, where, false));
        r.declare(f->variables.back().name, (int)f->variables.size() - 1);
        ++*count;
    }
}

static void read_registers(reader &r, function *f)
{
    type t;
    std::string_view word = r.word();
    if (!type_named(word.substr(1), &t)) r.unknown();
    do {
        std::string name(r.word());
        size_t n = 1;
        bool many = r.skip("<");
        if (many) {
            n = r.number();
            r.need(">");
        }
        r.declare_registers(name, many, (int)f->registers.size(), (int)n);
        f->registers.insert(f->registers.end(), n, t);
    } while (r.skip(","));
    r.need(";");
}

static void read_body(reader &r, function *f)
{
    r.need("{");
    for (int depth = 1; depth > 0;) {
        const token &t = r.peek();
        space where;
        if (r.skip("{")) {
            depth++;
            r.open_scope();
        } else if (r.skip("}")) {
            depth--;
            r.close_scope();
        } else if (r.skip(".reg")) {
            read_registers(r, f);
        } else if (r.skip(".pragma") || r.skip(".loc") || r.skip(".file")) {
            r.skip_line(t.line);
        } else if (t.is == token::WORD && space_named(t.text, &where)) {
            r.next();
            f->variables.push_back(read_variable(r, where, false));
            r.declare(f->variables.back().name, (int)f->variables.size() - 1);
            r.need(";");
        } else if (t.is == token::WORD && r.peek(1).text == ":") {
            f->labels[std::string(t.text)] = f->body.size();
            r.next();
            r.next();
        } else {
            f->body.push_back(r.read_statement());
        }
    }
}

function parse_function(const module &m, const std::string &name)
{
    auto at = m.functions.find(name);
    if (at == m.functions.end()) fail(PTX_SYNTAX, "no function '%s' in this PTX", name.c_str());
    reader r(m.tokens, at->second);
    function f;
    f.is_entry = r.word() == ".entry";
    if (r.peek().text == "(") read_variable_list(r, &f, &f.n_returns);
    f.name = r.word();
    if (r.peek().text == "(") read_variable_list(r, &f, &f.n_params);
    while (r.peek().text != "{") {
        std::string_view word = r.word();
        unsigned size[3] = {1, 1, 1};
        for (int i = 0; r.peek().is == token::NUMBER; i++) {
            unsigned n = (unsigned)r.number();
            if (i < 3) size[i] = n;
            r.skip(",");
        }
        if (word == ".maxntid") f.most_threads = size[0] * size[1] * size[2];
        if (word == ".reqntid")
            for (int i = 0; i < 3; i++)
                f.exact_threads[i] = size[i];
    }
    read_body(r, &f);
    return f;
}

/* Skips the body or the semicolon; returns whether there was a body. */
static bool skip_function(reader &r)
{
    while (r.peek().text != "{" && r.peek().text != ";")
        r.next();
    if (r.skip(";")) return false;
    int depth = 0;
    do {
        if (r.peek().text == "{") depth++;
        if (r.peek().text == "}") depth--;
        if (r.peek().is == token::END) r.unknown();
        r.next();
    } while (depth > 0);
    return true;
}

static std::string function_name(const reader &at)
{
    reader r = at;
    r.next();
    if (r.peek().text == "(")
        while (r.next().text != ")") {
        }
    return std::string(r.word());
}

module parse_module(std::string_view text)
{
    module m;
    m.tokens = tokens_of(text);
    reader r(m.tokens, 0);
    bool external = false;
    while (r.peek().is != token::END) {
        const token &t = r.peek();
        space where;
        if (t.text == ".entry" || t.text == ".func") {
            std::string name = function_name(r);
            size_t begin = r.position();
            if (skip_function(r)) m.functions[name] = begin;
        } else if (r.skip(".version") || r.skip(".target") || r.skip(".address_size") || r.skip(".file")) {
            r.skip_line(t.line);
            continue;
        } else if (space_named(t.text, &where)) {
            r.next();
            m.variables.push_back(read_variable(r, where, external));
            if (r.peek().text != ";") fail(PTX_SYNTAX, "line %d: variables with values are not modelled", t.line);
            r.need(";");
        } else if (t.text == ".extern") {
            r.next();
            external = true;
            continue;
        } else if (t.text == ".visible" || t.text == ".weak" || t.text == ".common") {
            r.next();
            continue;
        } else {
            r.unknown();
        }
        external = false;
    }
    return m;
}
} // namespace ptx
