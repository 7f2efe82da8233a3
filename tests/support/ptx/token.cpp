/*
 * token.cpp - see token.h.
 */
#include "token.h"
#include <ctype.h>

namespace ptx
{
static bool begins_word(char c)
{
    return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* "::" occurs inside modifiers such as .shared::cta. */
static bool goes_on(std::string_view text, size_t i)
{
    char c = text[i];
    if (isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.') return true;
    return c == ':' && ((i + 1 < text.size() && text[i + 1] == ':') || text[i - 1] == ':');
}

static size_t after_comment(std::string_view text, size_t i, int *line)
{
    bool block = text[i + 1] == '*';
    for (i += 2; i < text.size(); i++) {
        if (text[i] == '\n' && !block) return i;
        if (text[i] == '\n') ++*line;
        if (block && text[i] == '*' && i + 1 < text.size() && text[i + 1] == '/') return i + 2;
    }
    return i;
}

std::vector<token> tokens_of(std::string_view text)
{
    std::vector<token> out;
    out.reserve(text.size() / 6);
    int line = 1;
    for (size_t i = 0; i < text.size();) {
        char c = text[i];
        if (c == '\n') line++;
        if (isspace((unsigned char)c)) {
            i++;
            continue;
        }
        if (c == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*')) {
            i = after_comment(text, i, &line);
            continue;
        }
        size_t from = i++;
        token::kind is = token::MARK;
        if (c == '"') {
            is = token::TEXT;
            while (i < text.size() && text[i] != '"')
                i++;
            i++;
        } else if (begins_word(c) || isdigit((unsigned char)c)) {
            is = begins_word(c) ? token::WORD : token::NUMBER;
            while (i < text.size() && goes_on(text, i))
                i++;
        }
        out.push_back({is, line, text.substr(from, i - from)});
    }
    out.push_back({token::END, line, {}});
    return out;
}

std::vector<std::string> split_at_dots(std::string_view word)
{
    std::vector<std::string> out(1);
    for (char c : word)
        if (c == '.')
            out.emplace_back();
        else
            out.back() += c;
    return out;
}
} // namespace ptx
