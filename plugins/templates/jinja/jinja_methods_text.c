/*
 * jinja_methods_text.c - methods of text, with Python's names.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <string.h>

static jinja_value part(const jinja_value *of, const char *text, size_t size)
{
    jinja_value v = jinja_string(text, size);
    v.markup = of->markup;
    return v;
}

/* Each character may be compared with each character of the set. */
nrl_status vm_strip(jinja_vm *m, size_t size, size_t set_size)
{
    return vm_work(m, size / 16 + (size + set_size) / 16 * (set_size / 16) + set_size / 16);
}

static nrl_status call_strip(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    jinja_value v[3], set = {.kind = JINJA_UNDEFINED};
    const char *text = self->text;
    size_t size = self->size;
    (void)m;
    NRL_TRY(args_positional(name, args, 0, 1, v));
    if (!args_absent(&v[0]) && v[0].kind != JINJA_NONE) NRL_TRY(args_text(name, &v[0], &set));
    NRL_TRY(vm_strip(m, size, set.kind == JINJA_STRING ? set.size : 0));
    text_strip(&text, &size, set.kind == JINJA_STRING ? set.text : NULL, set.size, *name != 'r', *name != 'l');
    *out = part(self, text, size);
    return NRL_OK;
}

static nrl_status call_case(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                            jinja_value *out)
{
    static const char *const names[] = {"upper", "lower", "title", "capitalize", "swapcase"};
    jinja_value v[3];
    buffer b = {0};
    int to = 0;
    NRL_TRY(args_positional(name, args, 0, 0, v));
    NRL_TRY(vm_room(m, self->size * 2));
    NRL_TRY(vm_work(m, self->size / 4));
    while (to < 4 && strcmp(names[to], name) != 0)
        to++;
    if (!strcmp(name, "casefold")) to = TEXT_LOWER;
    text_convert(self->text, self->size, (text_case)to, &b);
    *out = vm_take(m, &b);
    out->markup = self->markup;
    return NRL_OK;
}

static nrl_status affix(jinja_vm *m, const char *name, const jinja_value *self, const jinja_value *with, bool *out)
{
    jinja_value t;
    NRL_TRY(args_text(name, with, &t));
    NRL_TRY(vm_work(m, 1 + t.size / 16));
    bool fits = t.size <= self->size;
    *out = fits && (!t.size || !memcmp(self->text + (*name == 's' ? 0 : self->size - t.size), t.text, t.size));
    return NRL_OK;
}

static nrl_status call_affix(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    jinja_value v[3];
    bool found = false;
    (void)m;
    NRL_TRY(args_positional(name, args, 1, 1, v));
    if (v[0].kind == JINJA_TUPLE) {
        for (size_t i = 0; i < v[0].list->n && !found; i++)
            NRL_TRY(affix(m, name, self, &v[0].list->items[i], &found));
    } else
        NRL_TRY(affix(m, name, self, &v[0], &found));
    *out = jinja_bool(found);
    return NRL_OK;
}

static nrl_status call_remove(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                              jinja_value *out)
{
    jinja_value v[3];
    bool found, first = !strcmp(name, "removeprefix");
    (void)m;
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(affix(m, first ? "s" : "e", self, &v[0], &found));
    size_t n = found ? v[0].size : 0;
    *out = part(self, self->text + (first ? n : 0), self->size - n);
    return NRL_OK;
}

/* A growing list of texts. */
typedef struct {
    jinja_value *at;
    size_t n, room;
} texts;

static void texts_push(jinja_vm *m, texts *t, const jinja_value *of, const char *text, size_t size)
{
    if (t->n == t->room) {
        t->room = t->room ? t->room * 2 : 8;
        jinja_value *more = vm_alloc(m, t->room * sizeof *more);
        if (t->n) memcpy(more, t->at, t->n * sizeof *more);
        t->at = more;
    }
    t->at[t->n++] = part(of, text, size);
}

static void split_spaces(jinja_vm *m, const jinja_value *self, int64_t most, texts *out)
{
    const char *p = self->text, *end = p + self->size, *begin;
    size_t n = (size_t)(end - p);
    text_strip(&p, &n, NULL, 0, true, false);
    while (p < end) {
        if (most-- == 0) {
            n = (size_t)(end - p);
            texts_push(m, out, self, p, n);
            return;
        }
        for (begin = p; p < end && !text_is_space(utf8_next(p, end, &n)); p += n)
            continue;
        texts_push(m, out, self, begin, (size_t)(p - begin));
        n = (size_t)(end - p);
        text_strip(&p, &n, NULL, 0, true, false);
    }
}

static void split_text(jinja_vm *m, const jinja_value *self, const jinja_value *by, int64_t most, texts *out)
{
    const char *p = self->text, *end = p + self->size, *found;
    while (most-- != 0 && (found = text_find(p, (size_t)(end - p), by->text, by->size))) {
        texts_push(m, out, self, p, (size_t)(found - p));
        p = found + by->size;
    }
    texts_push(m, out, self, p, (size_t)(end - p));
}

/* The last occurrence of part in text[0..size), or NULL; also NULL if the steps run out, which
 * vm_work reports. In the worst case the whole part is compared at each position. */
static const char *find_last(jinja_vm *m, const char *text, size_t size, const jinja_value *what)
{
    enum { A_STEP = 64 };
    const int64_t most = A_STEP * (m->limits.steps - m->steps + 1), each = 1 + (int64_t)(what->size / A_STEP);
    int64_t left = most;
    size_t i = size < what->size ? 0 : size - what->size + 1;
    for (; i > 0 && left > 0 && memcmp(text + i - 1, what->text, what->size) != 0; i--)
        left -= each;
    m->steps += (most - left) / A_STEP;
    return i > 0 && left > 0 ? text + i - 1 : NULL;
}

static void reverse(jinja_value *items, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        jinja_value v = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = v;
    }
}

static void rsplit_text(jinja_vm *m, const jinja_value *self, const jinja_value *by, int64_t most, texts *out)
{
    size_t size = self->size;
    const char *found;
    while (most-- != 0 && (found = find_last(m, self->text, size, by))) {
        texts_push(m, out, self, found + by->size, (size_t)(self->text + size - found) - by->size);
        size = (size_t)(found - self->text);
    }
    texts_push(m, out, self, self->text, size);
    reverse(out->at, out->n);
}

static nrl_status call_split(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    static const char *const names[] = {"sep", "maxsplit", NULL};
    jinja_value v[MAX_PARAMS], by;
    int64_t most;
    texts t = {0};
    NRL_TRY(args_bind(name, names, 0, args, v));
    NRL_TRY(args_int(name, &v[1], -1, &most));
    NRL_TRY(vm_work(m, self->size / 8));
    NRL_TRY(vm_room(m, self->size * 3 * sizeof(jinja_value) / 2));
    bool last = *name == 'r';
    if (args_absent(&v[0]) || v[0].kind == JINJA_NONE) {
        if (last && most >= 0) return nrl_fail(NRL_ERR_CONFIG, "rsplit at white space with a maximum is not supported");
        split_spaces(m, self, most, &t);
    } else {
        NRL_TRY(args_text(name, &v[0], &by));
        if (!by.size) return JINJA_FAIL("%s: an empty separator", name);
        if (last)
            rsplit_text(m, self, &by, most, &t);
        else
            split_text(m, self, &by, most, &t);
    }
    *out = vm_list(m, JINJA_LIST, t.at, t.n);
    return vm_work(m, 0);
}

static nrl_status call_partition(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                                 jinja_value *out)
{
    jinja_value v[3], by;
    texts t = {0};
    bool last = *name == 'r';
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(args_text(name, &v[0], &by));
    if (!by.size) return JINJA_FAIL("%s: an empty separator", name);
    const char *end = self->text + self->size;
    const char *found =
        last ? find_last(m, self->text, self->size, &by) : text_find(self->text, self->size, by.text, by.size);
    if (!found && last) texts_push(m, &t, self, "", 0);
    texts_push(m, &t, self, self->text, found ? (size_t)(found - self->text) : self->size);
    texts_push(m, &t, self, by.text, found ? by.size : 0);
    if (found)
        texts_push(m, &t, self, found + by.size, (size_t)(end - found) - by.size);
    else if (!last)
        texts_push(m, &t, self, "", 0);
    if (!found && last) reverse(t.at + 1, 2);
    *out = vm_list(m, JINJA_TUPLE, t.at, t.n);
    return vm_work(m, 0);
}

static nrl_status call_lines(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    static const char *const names[] = {"keepends", NULL};
    jinja_value v[MAX_PARAMS];
    texts t = {0};
    NRL_TRY(args_bind(name, names, 0, args, v));
    NRL_TRY(vm_work(m, self->size / 8));
    NRL_TRY(vm_room(m, self->size * 3 * sizeof(jinja_value)));
    const char *p = self->text, *end = p + self->size, *begin = p;
    while (p < end) {
        size_t n;
        int32_t c = utf8_next(p, end, &n);
        bool line = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (c == '\r' && p + 1 < end && p[1] == '\n') n = 2;
        p += n;
        if (!line) continue;
        texts_push(m, &t, self, begin, (size_t)(p - begin) - (jinja_truth(&v[0]) ? 0 : n));
        begin = p;
    }
    if (begin < end) texts_push(m, &t, self, begin, (size_t)(end - begin));
    *out = vm_list(m, JINJA_LIST, t.at, t.n);
    return NRL_OK;
}

static nrl_status call_replace(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                               jinja_value *out)
{
    static const char *const names[] = {"old", "new", "count", NULL};
    jinja_value v[MAX_PARAMS];
    NRL_TRY(args_bind(name, names, 2, args, v));
    const jinja_args same = {.at = v, .n = args_absent(&v[2]) ? 2 : 3};
    NRL_TRY(args_text(name, &v[0], &v[0]));
    NRL_TRY(args_text(name, &v[1], &v[1]));
    int64_t count;
    NRL_TRY(args_int(name, same.n == 3 ? &v[2] : &(jinja_value){.kind = JINJA_NONE}, -1, &count));
    return jinja_find_filter("replace", 7)->call(m, self, &same, out);
}

static nrl_status call_find(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                            jinja_value *out)
{
    jinja_value v[3], what;
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(args_text(name, &v[0], &what));
    NRL_TRY(vm_work(m, self->size / 16));
    bool last = *name == 'r', must = strstr(name, "index") != NULL;
    const char *found = !what.size ? self->text + (last ? self->size : 0)
                        : last     ? find_last(m, self->text, self->size, &what)
                                   : text_find(self->text, self->size, what.text, what.size);
    NRL_TRY(vm_work(m, 0));
    if (!found && must) return JINJA_FAIL("%s: the text does not contain the part", name);
    *out = jinja_int(found ? (int64_t)text_length(self->text, (size_t)(found - self->text)) : -1);
    return NRL_OK;
}

nrl_status method_count(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                        jinja_value *out)
{
    jinja_value v[3], what;
    int64_t n = 0;
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(vm_work(m, 1));
    if (self->kind != JINJA_STRING) {
        for (size_t i = 0; i < self->list->n; i++)
            n += vm_equal(m, &self->list->items[i], &v[0]);
        *out = jinja_int(n);
        return vm_work(m, self->list->n / 8);
    }
    NRL_TRY(args_text(name, &v[0], &what));
    const char *p = self->text, *end = p + self->size;
    if (!what.size) n = (int64_t)text_length(p, self->size) + 1;
    for (; what.size && (p = text_find(p, (size_t)(end - p), what.text, what.size)); p += what.size)
        n++;
    *out = jinja_int(n);
    return vm_work(m, self->size / 16);
}

static nrl_status call_join(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                            jinja_value *out)
{
    jinja_value v[3], *items, text;
    size_t n;
    buffer b = {0};
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(vm_need_defined(&v[0]));
    NRL_TRY(vm_items(m, &v[0], &items, &n));
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        st = args_text("join: an item", &items[i], &text);
        if (st == NRL_OK) st = vm_room(m, b.size + self->size + text.size);
        if (st != NRL_OK) break;
        if (i) buffer_add(&b, self->text, self->size);
        buffer_add(&b, text.text, text.size);
    }
    *out = vm_take(m, &b);
    return st;
}

static bool is_digit(int32_t c)
{
    return text_is_number(c);
}

static bool is_alpha(int32_t c)
{
    return text_is_letter(c);
}

static bool is_alnum(int32_t c)
{
    return is_digit(c) || is_alpha(c);
}

static nrl_status call_is(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                          jinja_value *out)
{
    static const struct {
        const char *name;
        bool (*is)(int32_t c);
    } rows[] = {{"isdigit", is_digit}, {"isdecimal", is_digit}, {"isnumeric", is_digit},
                {"isalpha", is_alpha}, {"isalnum", is_alnum},   {"isspace", text_is_space}};
    jinja_value v[3];
    size_t row = 0, n;
    NRL_TRY(args_positional(name, args, 0, 0, v));
    NRL_TRY(vm_work(m, self->size / 16));
    while (strcmp(rows[row].name, name) != 0)
        row++;
    bool all = self->size > 0;
    for (size_t i = 0; all && i < self->size; i += n)
        all = rows[row].is(utf8_next(self->text + i, self->text + self->size, &n));
    *out = jinja_bool(all);
    return NRL_OK;
}

static nrl_status call_is_case(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                               jinja_value *out)
{
    jinja_value v[3];
    buffer same = {0}, other = {0};
    bool upper = !strcmp(name, "isupper");
    NRL_TRY(args_positional(name, args, 0, 0, v));
    NRL_TRY(vm_room(m, self->size * 4));
    NRL_TRY(vm_work(m, self->size / 2));
    text_convert(self->text, self->size, upper ? TEXT_UPPER : TEXT_LOWER, &same);
    text_convert(self->text, self->size, upper ? TEXT_LOWER : TEXT_UPPER, &other);
    bool is = same.size == self->size && self->size && !memcmp(same.text, self->text, self->size) &&
              (other.size != self->size || memcmp(other.text, self->text, self->size));
    buffer_free(&same);
    buffer_free(&other);
    *out = jinja_bool(is);
    return NRL_OK;
}

static nrl_status call_justify(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                               jinja_value *out)
{
    jinja_value v[3], fill = jinja_string(" ", 1);
    int64_t width;
    buffer b = {0};
    NRL_TRY(args_positional(name, args, 1, 2, v));
    NRL_TRY(args_int(name, &v[0], 0, &width));
    if (!args_absent(&v[1])) NRL_TRY(args_text(name, &v[1], &fill));
    if (text_length(fill.text, fill.size) != 1) return JINJA_FAIL("%s: expected a single fill character", name);
    int64_t have = (int64_t)text_length(self->text, self->size);
    size_t blanks = width > have ? (size_t)(width - have) : 0;
    if (blanks > SIZE_MAX / 16) blanks = SIZE_MAX / 16;
    NRL_TRY(vm_room(m, self->size + blanks * fill.size));
    /* str.center puts the odd space on the left if the width is odd */
    size_t left = *name == 'l' ? 0 : *name == 'r' ? blanks : blanks / 2 + (blanks & (size_t)width & 1);
    for (size_t i = 0; i < blanks + 1; i++) {
        if (i == left) buffer_add(&b, self->text, self->size);
        if (i < blanks) buffer_add(&b, fill.text, fill.size);
    }
    *out = vm_take(m, &b);
    return vm_work(m, blanks / 16);
}

static nrl_status call_zfill(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    jinja_value v[3];
    int64_t width;
    buffer b = {0};
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(args_int(name, &v[0], 0, &width));
    int64_t have = (int64_t)text_length(self->text, self->size);
    size_t zeros = width > have ? (size_t)(width - have) : 0, sign = self->size && strchr("+-", *self->text) ? 1 : 0;
    NRL_TRY(vm_room(m, self->size + zeros));
    buffer_add(&b, self->text, sign);
    for (size_t i = 0; i < zeros; i++)
        buffer_add(&b, "0", 1);
    buffer_add(&b, self->text + sign, self->size - sign);
    *out = vm_take(m, &b);
    return vm_work(m, zeros / 16);
}

const method_row jinja_text_methods[] = {
    {JINJA_STRING, "strip", call_strip},         {JINJA_STRING, "lstrip", call_strip},
    {JINJA_STRING, "rstrip", call_strip},        {JINJA_STRING, "upper", call_case},
    {JINJA_STRING, "lower", call_case},          {JINJA_STRING, "casefold", call_case},
    {JINJA_STRING, "title", call_case},          {JINJA_STRING, "capitalize", call_case},
    {JINJA_STRING, "swapcase", call_case},       {JINJA_STRING, "startswith", call_affix},
    {JINJA_STRING, "endswith", call_affix},      {JINJA_STRING, "removeprefix", call_remove},
    {JINJA_STRING, "removesuffix", call_remove}, {JINJA_STRING, "split", call_split},
    {JINJA_STRING, "rsplit", call_split},        {JINJA_STRING, "splitlines", call_lines},
    {JINJA_STRING, "partition", call_partition}, {JINJA_STRING, "rpartition", call_partition},
    {JINJA_STRING, "replace", call_replace},     {JINJA_STRING, "find", call_find},
    {JINJA_STRING, "rfind", call_find},          {JINJA_STRING, "index", call_find},
    {JINJA_STRING, "rindex", call_find},         {JINJA_STRING, "count", method_count},
    {JINJA_STRING, "join", call_join},           {JINJA_STRING, "isdigit", call_is},
    {JINJA_STRING, "isdecimal", call_is},        {JINJA_STRING, "isnumeric", call_is},
    {JINJA_STRING, "isalpha", call_is},          {JINJA_STRING, "isalnum", call_is},
    {JINJA_STRING, "isspace", call_is},          {JINJA_STRING, "isupper", call_is_case},
    {JINJA_STRING, "islower", call_is_case},     {JINJA_STRING, "ljust", call_justify},
    {JINJA_STRING, "rjust", call_justify},       {JINJA_STRING, "center", call_justify},
    {JINJA_STRING, "zfill", call_zfill},         {0},
};
