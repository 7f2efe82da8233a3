/*
 * token.h - the words of a PTX text.
 */
#ifndef SUPPORT_PTX_TOKEN_H
#define SUPPORT_PTX_TOKEN_H
#include <string>
#include <string_view>
#include <vector>

namespace ptx
{
/* A word includes its dots: "ld.global.u32", "%tid.x", ".reg". */
struct token {
    enum kind : unsigned char { WORD, NUMBER, MARK, TEXT, END } is;
    int line;
    std::string_view text;
};

std::vector<token> tokens_of(std::string_view text);
std::vector<std::string> split_at_dots(std::string_view word);
} // namespace ptx

#endif
