/*
 * syntax_reader.h - iterates over tokens, keeps scopes of names, and reads one statement.
 */
#ifndef SUPPORT_PTX_SYNTAX_READER_H
#define SUPPORT_PTX_SYNTAX_READER_H
#include "syntax.h"

namespace ptx
{
class reader
{
  public:
    reader(const std::vector<token> &tokens, size_t at) : tokens_(tokens), at_(at), scopes_(1) {}
    const token &peek(size_t ahead = 0) const
    {
        return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : tokens_.back();
    }
    const token &next()
    {
        return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back();
    }
    size_t position() const
    {
        return at_;
    }
    bool skip(std::string_view text);
    void need(std::string_view text);
    std::string_view word();
    uint64_t number();
    void skip_line(int line);
    [[noreturn]] void unknown() const;

    void open_scope();
    void close_scope();
    void declare(const std::string &name, int variable);
    /* many: name<n> declares name0 to name(n-1) */
    void declare_registers(const std::string &name, bool many, int first, int n);
    statement read_statement();

  private:
    struct place {
        int first, n; /* n 0: a variable, -1: one register */
    };
    struct scope {
        std::map<std::string, place, std::less<>> names, families;
    };
    const std::vector<token> &tokens_;
    size_t at_;
    std::vector<scope> scopes_;

    bool find_register(std::string_view name, int *out) const;
    bool find_variable(std::string_view name, int *out) const;
    int need_register(std::string_view name) const;
    operand read_operand();
    operand read_number();
    operand read_name();
    operand read_parts(const char *end, operand::kind is);
    operand read_address();
};
} // namespace ptx

#endif
