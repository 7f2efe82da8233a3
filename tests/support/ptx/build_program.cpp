/*
 * build_program.cpp - functions to code: positions of registers and variables, calls, labels.
 * Called functions follow the code of the kernel. There is no recursion, so each function has
 * registers of its own, and its parameters are in the thread's local memory.
 */
#include "builder.h"

namespace ptx
{
/* The first bytes belong to the driver on sm_90, so no variable has the address NULL. */
enum { SHARED_BEGIN = 1024 };

uint64_t window_of(space s)
{
    if (s == space::shared) return WINDOW_SHARED;
    if (s == space::local) return WINDOW_LOCAL;
    return s == space::param ? (uint64_t)WINDOW_PARAM : 0;
}

static uint32_t aligned(uint32_t at, uint32_t to)
{
    return (at + to - 1) / to * to;
}

uint32_t builder::shared_variable(const std::string &name)
{
    auto known = shared_.find(name);
    if (known != shared_.end()) return known->second;
    for (const variable &v : m_.variables) {
        if (v.name != name) continue;
        if (v.where != space::shared)
            fail(PTX_OPCODE, "kernel %s: variable %s: only shared ones are modelled", p_->kernel.c_str(), name.c_str());
        p_->shared_end = aligned(p_->shared_end, v.align);
        uint32_t at = p_->shared_end;
        p_->shared_end += (uint32_t)v.bytes;
        return shared_[name] = at;
    }
    fail(PTX_SYNTAX, "kernel %s: nothing is called %s", p_->kernel.c_str(), name.c_str());
}

bool builder::is_dynamic(const std::string &name) const
{
    for (const variable &v : m_.variables)
        if (v.name == name) return v.external && v.where == space::shared;
    return false;
}

void builder::lay_out(unit *u)
{
    const function &f = u->f;
    for (type t : f.registers)
        u->registers.push_back(new_place(t.kind == 'p' ? 4 : t.bytes * 32u));
    for (size_t i = 0; i < f.variables.size(); i++) {
        const variable &v = f.variables[i];
        bool is_parameter = f.is_entry && (int)i < f.n_params;
        uint32_t *end = is_parameter               ? &p_->parameter_bytes
                        : v.where == space::shared ? &p_->shared_end
                                                   : &p_->local_bytes;
        *end = aligned(*end, v.align);
        u->variables.push_back(*end);
        if (is_parameter) p_->parameters.push_back({*end, (uint32_t)v.bytes});
        *end += (uint32_t)v.bytes;
    }
}

/* Adds the current `in`, whose operands were pushed before. */
void builder::emit()
{
    in.line = s_ ? s_->line : 0;
    if (s_ && s_->guard >= 0) {
        in.guard = u_->registers[(size_t)s_->guard];
        in.guard_inverted = s_->guard_inverted;
    }
    p_->code.push_back(in);
    p_->opcodes.push_back(s_ ? s_->opcode : "ret");
}

void builder::add_statement(const statement &s)
{
    static const build_row *const tables[] = {build_arithmetic, build_special_functions,
                                              build_bits,       build_moves,
                                              build_convert,    build_memory,
                                              build_async,      build_warp,
                                              build_tensor,     build_flow};
    s_ = &s;
    parts_ = split_at_dots(s.opcode);
    if (name() == "call") return add_call(s);
    for (const build_row *table : tables)
        for (const build_row *row = table; row->name; row++) {
            if (name() != row->name) continue;
            in = instruction();
            in.first_op = (uint32_t)p_->operands.size();
            row->build(*this);
            if (parts_.size() > 1) unknown();
            return emit();
        }
    unknown();
}

builder::unit *builder::unit_named(const std::string &name)
{
    for (auto &u : units_)
        if (u->f.name == name) return u.get();
    units_.push_back(std::make_unique<unit>());
    units_.back()->f = parse_function(m_, name);
    lay_out(units_.back().get());
    return units_.back().get();
}

/* Variable b of `to` becomes variable a of `from`, in each thread's local memory. */
void builder::copy_between(const unit *from, int a, const unit *to, int b)
{
    in = instruction();
    in.first_op = (uint32_t)p_->operands.size();
    in.run = local_copy;
    in.offset = from->variables[(size_t)a];
    in.target = to->variables[(size_t)b];
    in.small[0] = (uint8_t)to->f.variables[(size_t)b].bytes;
    emit();
}

/* call{.uni} {(results),} name, (arguments): PTX ISA, "Control flow: call". By name only. */
void builder::add_call(const statement &s)
{
    size_t k = s.operands.size() > 1 && s.operands[0].is == operand::LIST ? 1 : 0;
    unit *callee = unit_named(label(at(k)));
    const function &f = callee->f;
    std::vector<operand> none;
    const std::vector<operand> &results = k ? s.operands[0].parts : none;
    const std::vector<operand> &arguments = s.operands.size() > k + 1 ? s.operands[k + 1].parts : none;
    if ((int)results.size() != f.n_returns || (int)arguments.size() != f.n_params) unknown();
    for (int i = 0; i < f.n_params; i++) {
        if (arguments[(size_t)i].is != operand::VARIABLE) unknown();
        copy_between(u_, arguments[(size_t)i].index, callee, f.n_returns + i);
    }
    in = instruction();
    in.first_op = (uint32_t)p_->operands.size();
    in.run = simple_nothing;
    in.how = flow::call;
    calls_.push_back({p_->code.size(), f.name, nullptr});
    emit();
    for (int i = 0; i < f.n_returns; i++)
        copy_between(callee, i, u_, results[(size_t)i].index);
}

void builder::add_unit(const std::string &name)
{
    unit *u = unit_named(name);
    u_ = u;
    entries_[name] = (uint32_t)p_->code.size();
    for (const statement &s : u->f.body) {
        u->begin_of.push_back((uint32_t)p_->code.size());
        u_ = u;
        add_statement(s);
    }
    u->begin_of.push_back((uint32_t)p_->code.size());
    s_ = nullptr; /* the end of a body returns */
    in = instruction();
    in.first_op = (uint32_t)p_->operands.size();
    in.run = simple_nothing;
    in.how = flow::leave;
    emit();
}

void builder::link()
{
    for (const fix &j : jumps_) {
        auto at = j.in->f.labels.find(j.label);
        if (at == j.in->f.labels.end()) fail(PTX_SYNTAX, "kernel %s: no label %s", p_->kernel.c_str(), j.label.c_str());
        p_->code[j.instruction].target = j.in->begin_of[at->second];
    }
    for (const fix &c : calls_)
        p_->code[c.instruction].target = entries_[c.label];
    for (instruction &i : p_->code)
        i.op = p_->operands.data() + i.first_op;
    /* Dynamic shared memory: only aligned as declared, to detect code that relies on more. */
    p_->shared_dynamic = aligned(p_->shared_end, 32) + 16;
    for (constant &c : p_->constants)
        if (c.dynamic) c.bits += p_->shared_dynamic;
}

void builder::add_entry(const std::string &kernel)
{
    p_->kernel = kernel;
    p_->shared_begin = p_->shared_end = SHARED_BEGIN;
    add_unit(kernel);
    const function &f = units_[0]->f;
    if (!f.is_entry) fail(PTX_SYNTAX, "%s is no kernel", kernel.c_str());
    p_->most_threads = f.most_threads;
    for (int i = 0; i < 3; i++)
        p_->exact_threads[i] = f.exact_threads[i];
    for (size_t i = 1; i < units_.size(); i++) /* units are added during the loop */
        add_unit(std::string(units_[i]->f.name));
    link();
}

std::unique_ptr<program> build_program(const module &m, const std::string &kernel)
{
    auto p = std::make_unique<program>();
    builder b(p.get(), m);
    b.add_entry(kernel);
    return p;
}
} // namespace ptx
