/*
 * builder.h - functions with which the op_*.cpp files build instructions: they take the parts of an
 * opcode one by one, and any part that is left at the end is an unsupported modifier.
 */
#ifndef SUPPORT_PTX_BUILDER_H
#define SUPPORT_PTX_BUILDER_H
#include "fault.h"
#include "program.h"
#include <initializer_list>

namespace ptx
{
class builder
{
  public:
    instruction in;

    builder(program *p, const module &m) : p_(p), m_(m) {}
    /* ---- the opcode ---- */
    const std::string &name() const
    {
        return parts_[0];
    }
    bool take(const char *part);
    int take_one_of(std::initializer_list<const char *> parts); /* the index of the part, -1 = none */
    void drop(std::initializer_list<const char *> parts);       /* modifiers that have no effect here */
    type take_type();
    bool has_type() const;
    /* rn rz rm rp as FE_*; false: none. Sets in.small[7]. */
    bool take_rounding();
    [[noreturn]] void unknown() const; /* opcode */

    /* ---- operands, in the order in which they become in.op ---- */
    size_t count() const
    {
        return s_->operands.size();
    }
    const operand &at(size_t k) const;
    int register_bytes(const operand &o) const; /* width of a register; 0 for other operands */
    /* bytes 0: the width of the register. Returns the width. */
    int result(const operand &o, int bytes);
    void no_result(); /* the result is not used */
    int source(const operand &o, type t, bool any_width = false);
    void predicate_result(const operand &o);
    void predicate_source(const operand &o);
    void address(const operand &o); /* sets in.offset and in.small[6], the width of the base in bytes */
    /* Parameters of the kernel are in another space than arguments of functions. */
    space space_of(const operand &o) const;
    uint64_t number(const operand &o) const;
    const std::string &label(const operand &o) const;
    void jump(const std::string &label); /* in.target, set when all code is built */

    /* ---- used by build_program ---- */
    void add_entry(const std::string &kernel);

  private:
    struct unit { /* a function that is being built */
        function f;
        std::vector<uint32_t> registers; /* places */
        std::vector<uint32_t> variables; /* addresses */
        std::vector<uint32_t> begin_of;  /* of each statement, in the code */
    };
    struct fix {
        size_t instruction;
        std::string label;
        const unit *in;
    };
    program *p_;
    const module &m_;
    unit *u_ = nullptr;
    const statement *s_ = nullptr;
    std::vector<std::string> parts_;
    std::vector<fix> jumps_, calls_;
    std::map<std::string, uint32_t> entries_;  /* of functions, in the code */
    std::vector<std::unique_ptr<unit>> units_; /* all that were started */
    std::map<std::pair<int, uint64_t>, uint32_t> constants_;
    std::map<std::string, uint32_t> specials_, shared_;
    uint32_t sink_ = NO_PLACE;

    uint32_t new_place(uint32_t bytes);
    uint32_t constant_place(int bytes, uint64_t bits, bool dynamic = false);
    uint32_t special_place(const std::string &name);
    uint32_t place_of(const operand &o, type t);
    bool is_dynamic(const std::string &name) const;
    uint32_t shared_variable(const std::string &name);
    void lay_out(unit *u);
    void add_unit(const std::string &name);
    void add_statement(const statement &s);
    void add_call(const statement &s);
    void copy_between(const unit *from, int a, const unit *to, int b);
    unit *unit_named(const std::string &name);
    void emit();
    void link();
};

typedef void (*build_function)(builder &b);
struct build_row {
    const char *name;
    build_function build;
};
/* Each ends an op_*.cpp; a row without a name terminates it. */
extern const build_row build_arithmetic[], build_special_functions[], build_bits[], build_moves[], build_convert[],
    build_memory[], build_async[], build_warp[], build_tensor[], build_flow[];
void local_copy(warp &w, const instruction &in, uint32_t mask); /* op_memory.cpp: parameters of a call */
void simple_nothing(warp &w, const instruction &in, uint32_t mask);
} // namespace ptx

#endif
