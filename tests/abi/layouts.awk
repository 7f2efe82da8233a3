# layouts.awk - from the public headers, a C program that prints the layout of each struct and the value of each constant
# of an enum, one a line. The includes of the headers come before it.
function is_name(c) { return c ~ /[A-Za-z0-9_]/ }

# Prints the members of a struct's body; anonymous unions and structs are part of it.
function members(type, body,    i, c, depth, part, n) {
    part = ""
    depth = 0
    for (i = 1; i <= length(body); i++) {
        c = substr(body, i, 1)
        if (c ~ /[({]/) depth++
        if (c ~ /[)}]/) depth--
        if (c == ";" && depth == 0) {
            member(type, part)
            part = ""
        } else
            part = part c
    }
    member(type, part) # what no semicolon ends: a macro for several members
}

function member(type, text,    open, end, inner, name, list, n, i) {
    gsub(/^[ \n]+|[ \n]+$/, "", text)
    if (text == "") return
    open = index(text, "{")
    if (open) {
        end = length(text)
        while (substr(text, end, 1) != "}") end--
        name = substr(text, end + 1)
        gsub(/[ \n]/, "", name)
        if (name == "") members(type, substr(text, open + 1, end - open - 1))
        else print_member(type, name)
        return
    }
    if (match(text, /\(\*+(const )?[a-z_0-9]+/)) { # a pointer to a function
        name = substr(text, RSTART, RLENGTH)
        sub(/^\(\*+(const )?/, "", name)
        print_member(type, name)
        return
    }
    if (match(text, /^NRL_[A-Z]+\(NRL_[A-Z]+_MEMBER\)/)) { # a list X(name, type) of members
        printf "#define EACH(name, t) MEMBER(%s, name);\n    %s(EACH)\n#undef EACH\n", type, substr(text, 1, index(text, "(") - 1)
        return
    }
    if (text ~ /^NRL_[A-Z]+_MEMBER\(/) { # a macro for one
        name = text
        sub(/^[^(]*\(/, "", name)
        sub(/[,)].*$/, "", name)
        print_member(type, name)
        return
    }
    n = split(text, list, ",")
    for (i = 1; i <= n; i++) {
        name = list[i]
        sub(/[ \n]*\[.*$/, "", name)
        sub(/^.*[^A-Za-z0-9_]/, "", name)
        print_member(type, name)
    }
}

function print_member(type, name) { printf "    MEMBER(%s, %s);\n", type, name }

function constants(body,    list, n, i, name) {
    n = split(body, list, ",")
    for (i = 1; i <= n; i++) {
        name = list[i]
        sub(/=.*/, "", name)
        gsub(/[ \n]/, "", name)
        if (name != "") printf "    CONSTANT(%s);\n", name
    }
}

/^ *#/ || continued { continued = /\\$/; next }
{ text = text $0 "\n" }

END {
    print "#include <stdio.h>"
    print "#define SIZE(T) printf(\"%s %zu\\n\", #T, sizeof(T))"
    print "#define MEMBER(T, m) printf(\"%s.%s %zu %zu\\n\", #T, #m, offsetof(T, m), sizeof(((T *)0)->m))"
    print "#define CONSTANT(c) printf(\"%s = %lld\\n\", #c, (long long)(c))"
    print "int main(void)\n{"
    while (match(text, /\/\*[^*]*\*+([^\/*][^*]*\*+)*\//)) text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
    # Two searches: mawk finds the first alternative of (typedef struct|enum) wherever it stands.
    for (;;) {
        at_enum = match(text, /enum[ \n]*[A-Za-z_0-9]*[ \n]*\{/)
        enum_end = RSTART + RLENGTH
        at_struct = match(text, /typedef struct[ \n]*[A-Za-z_0-9]*[ \n]*\{/)
        if (!at_enum && !at_struct) break
        is_enum = at_enum && (!at_struct || at_enum < at_struct)
        text = substr(text, is_enum ? enum_end : RSTART + RLENGTH)
        depth = 1
        for (at = 1; depth; at++) {
            c = substr(text, at, 1)
            if (c == "{") depth++
            if (c == "}") depth--
        }
        body = substr(text, 1, at - 2)
        text = substr(text, at)
        name = substr(text, 1, index(text, ";") - 1)
        gsub(/[ \n]/, "", name)
        if (is_enum) {
            constants(body)
        } else {
            printf "    SIZE(%s);\n", name
            members(name, body)
        }
    }
    print "    return 0;\n}"
}
