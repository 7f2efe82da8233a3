/*
 * console.c - one aligned line per step on stdout; evaluations and events on lines of their own; on a
 * terminal, a progress bar below them; warnings on stderr. A value's name decides how it is formatted;
 * values with other names (an algorithm's metrics) follow in the record's order.
 */
#include "base/escape.h"
#include "text.h"
#include <errno.h>
#include <limits.h>
#include <nrl/run.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    int64_t every;
    bool progress;
    int64_t samples;
} console_options;

static const nrl_option console_rows[] = {
    NRL_OPT_INT(console_options, every, "1", 1, 2e15, "number of steps between lines; the last step always has a line"),
    NRL_OPT_BOOL(console_options, progress, "true", "show a progress bar if stdout is a terminal"),
    NRL_OPT_INT(console_options, samples, "1", 0, 1e6, "texts of eval.samples that are printed at each evaluation"),
};

typedef struct {
    console_options options;
    bool bar, color, terminal;
    text bar_text;
} console;

/* ---- the values of a training step, in the order of the line ---- */

typedef struct {
    const char *name, *label; /* label NULL: part of another column, or not shown */
    void (*print)(text *t, double value);
    int width; /* minimum width of the value, so that lines align */
} column;

static const column columns[] = {
    {"loss", "loss", text_fixed, 6},
    {"reward", "reward", text_fixed, 6}, /* the loss of reinforcement learning says little */
    {"grad_norm", "grad_norm", text_short, 6},
    {"lr", "lr", text_exponent, 7},
    {"tokens_per_s", "", text_rate, 13},
    {"mfu", "MFU", text_percent, 5},
    {"mem_bytes", "mem", text_memory, 8},
    {"data_fraction", "data", text_percent, 4},
    {"comm_fraction", "comm", text_percent, 4},
    {"mem_total_bytes", NULL, NULL, 0},
    {"epoch", NULL, NULL, 0},
    {"tokens", NULL, NULL, 0},
    {"overflows", NULL, NULL, 0},
    {"comm_bytes", NULL, NULL, 0},
    {"comm_messages", NULL, NULL, 0},
    {"save_s", NULL, NULL, 0},
    {"save_stall_s", NULL, NULL, 0},
    {"save_snapshot_s", NULL, NULL, 0},
    {"step_s", NULL, NULL, 0},
    {"data_s", NULL, NULL, 0},
    {"comm_s", NULL, NULL, 0},
    {"samples_per_s", NULL, NULL, 0},
    {"grad_norm_mean", NULL, NULL, 0},
    {"cpu_percent", NULL, NULL, 0},
    {"host_mem_bytes", NULL, NULL, 0},
    {"host_mem_percent", NULL, NULL, 0},
    {"device_mem_bytes", NULL, NULL, 0},
    {"device_mem_reserved_bytes", NULL, NULL, 0},
    {"device_mem_peak_bytes", NULL, NULL, 0},
    {"device_percent", NULL, NULL, 0},
    {"tensor_mem_bytes", NULL, NULL, 0},
    {"heap_mem_bytes", NULL, NULL, 0},
    {"update_norm", NULL, NULL, 0},
    {"param_norm", NULL, NULL, 0},
    {"rank_work_s_min", NULL, NULL, 0},
    {"rank_work_s_mean", NULL, NULL, 0},
    {"rank_work_s_max", NULL, NULL, 0},
    {"rank_wait_s_min", NULL, NULL, 0},
    {"rank_wait_s_mean", NULL, NULL, 0},
    {"rank_wait_s_max", NULL, NULL, 0},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const nrl_value *find(const nrl_record *r, const char *name)
{
    for (size_t i = 0; i < r->n_values; i++)
        if (r->values[i].name && !strcmp(r->values[i].name, name)) return &r->values[i];
    return NULL;
}

static bool is_column(const char *name)
{
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (!strcmp(columns[i].name, name)) return true;
    return false;
}

/* ---- lines ---- */

enum { USUAL_COLUMNS = 80, LONGEST_LINE = 1 << 20, INDENT = 10, LABEL = 11, EVENT_INDENT = 4 };

static int columns_of(int file, int or_value)
{
    struct winsize size;
    return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : or_value;
}

static int terminal_columns(void)
{
    return columns_of(STDOUT_FILENO, USUAL_COLUMNS);
}

/* Columns of an ASCII text without its colour escapes. */
static int text_columns(const char *s)
{
    int n = 0;
    for (; *s; s++) {
        if (*s == '\033')
            s += strcspn(s, "m");
        else
            n++;
        if (!*s) break;
    }
    return n;
}

/* What a line may have: on a terminal, what it shows without wrapping. */
static int line_columns(const console *c)
{
    return c->terminal ? terminal_columns() - 1 : LONGEST_LINE;
}

static void add_label(const console *c, text *t, const char *label)
{
    text_add(t, "  ");
    if (!*label) return;
    if (c->color) text_add(t, "\033[2m");
    text_name(t, label);
    if (c->color) text_add(t, "\033[22m");
    text_add(t, " ");
}

static void add_value(const console *c, text *t, const char *label, void (*print)(text *, double), double value,
                      int width)
{
    text v = {.n = 0};
    bool alarm = c->color && !isfinite(value);
    print(&v, value);
    add_label(c, t, label);
    if (alarm) text_add(t, "\033[31m");
    text_add(t, "%*s", width, v.s);
    if (alarm) text_add(t, "\033[39m");
}

static void add_step(text *t, const nrl_record *r)
{
    int width = snprintf(NULL, 0, "%lld", (long long)r->total_steps);
    if (r->total_steps > 0)
        text_add(t, "step %*lld/%lld", width, (long long)r->step, (long long)r->total_steps);
    else
        text_add(t, "step %lld", (long long)r->step);
}

/* Appends a value if it fits into the line; else leaves it out, or begins another line. */
static void add_cell(text *t, const text *cell, int room, bool breaks)
{
    const char *line = strrchr(t->s, '\n');
    int used = text_columns(line ? line + 1 : t->s);
    if (used + text_columns(cell->s) > room) {
        if (!breaks) return;
        text_add(t, "\n%*s", INDENT, "");
    }
    text_add(t, "%s", cell->s);
}

static void add_columns(const console *c, text *t, const nrl_record *r, int room)
{
    const nrl_value *total = find(r, "mem_total_bytes");
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const column *k = &columns[i];
        const nrl_value *v = k->label ? find(r, k->name) : NULL;
        text cell = {.n = 0};
        if (!v) continue;
        if (k->print == text_memory && total && total->value > 0) {
            add_label(c, &cell, k->label);
            text_memory_of(&cell, v->value, total->value);
        } else {
            add_value(c, &cell, k->label, k->print, v->value, k->width);
        }
        add_cell(t, &cell, room, false);
    }
}

/* Of a step, the values that have room; of an evaluation all, on as many lines as they need. */
static void add_others(const console *c, text *t, const nrl_record *r, bool all, int room)
{
    for (size_t i = 0; i < r->n_values; i++) {
        const nrl_value *v = &r->values[i];
        text cell = {.n = 0};
        if (!v->name || (!all && is_column(v->name))) continue;
        bool count = v->unit && !strcmp(v->unit, "tokens");
        add_value(c, &cell, v->name, count ? text_count : text_general, v->value, 0);
        add_cell(t, &cell, room, all);
    }
}

static void add_eta(const console *c, text *t, const nrl_record *r)
{
    if (r->eta_seconds < 0 || !isfinite(r->eta_seconds)) return;
    add_label(c, t, "eta");
    text_duration(t, r->eta_seconds);
}

/* The columns of a line that the eta leaves. */
static void add_line(const console *c, text *line, const nrl_record *r)
{
    bool is_step = r->kind == NRL_RECORD_TRAIN;
    text eta = {.n = 0};
    if (is_step) add_eta(c, &eta, r);
    int room = line_columns(c) - text_columns(eta.s);
    add_step(line, r);
    if (is_step) add_columns(c, line, r, room);
    add_others(c, line, r, !is_step, room);
    text_add(line, "%s\n", eta.s);
}

/* ---- the bar ----
 * One line below all others. It is no wider than the terminal, for a line that wraps cannot be erased. */

enum { BAR_WIDTH = 30, LEAST_WIDTH = 8 };

/* The console whose bar is on the terminal; NULL = none. Shared by all consoles of the process, because
 * several runs may be open on one terminal. Calls of loggers never overlap. */
static const console *shown;

static void add_bar(const console *c, text *t, const nrl_record *r)
{
    double share = (double)r->step / (double)r->total_steps;
    int room = terminal_columns() - 3; /* Ctrl-C appears behind it, as two characters */
    text step = {.n = 0}, eta = {.n = 0}, percent = {.n = 0};
    text_add(&percent, "%3d%%", (int)(share * 100));
    text_add(&step, "  ");
    add_step(&step, r);
    add_eta(c, &eta, r);
    room -= text_columns(percent.s);
    bool has_step = text_columns(step.s) <= room;
    if (has_step) room -= text_columns(step.s);
    bool has_eta = has_step && text_columns(eta.s) <= room;
    if (has_eta) room -= text_columns(eta.s);
    int width = room - 3 < BAR_WIDTH ? room - 3 : BAR_WIDTH; /* brackets and a space */
    if (width >= LEAST_WIDTH) {
        text_add(t, "[");
        for (int i = 0; i < width; i++)
            text_add(t, i < (int)(share * width) ? "#" : "-");
        text_add(t, "] ");
    }
    text_add(t, "%s%s%s", percent.s, has_step ? step.s : "", has_eta ? eta.s : "");
}

static void erase_bar(void)
{
    if (shown) fputs("\r\033[K", stdout);
    shown = NULL;
}

/* Draws the bar again as it was last drawn. */
static void show_bar(const console *c)
{
    fputs(c->bar_text.s, stdout);
    shown = c;
}

/* ---- the table's functions ---- */

static nrl_status console_open(const void *options, const nrl_logger_run *run, void **self)
{
    console *c = calloc(1, sizeof *c);
    if (!c) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'console'");
    c->options = *(const console_options *)options;
    c->bar = run->terminal && c->options.progress;
    c->color = run->color;
    c->terminal = run->terminal;
    *self = c;
    return NRL_OK;
}

static bool wants_line(const console *c, const nrl_record *r)
{
    if (r->kind == NRL_RECORD_END) return false;
    return r->kind != NRL_RECORD_TRAIN || r->step % c->options.every == 0 || r->step == r->total_steps;
}

static bool wants_bar(const console *c, const nrl_record *r)
{
    return c->bar && r->total_steps > 0 && r->step > 0 && r->step < r->total_steps;
}

/* Prints n bytes of one line that begins in column `used`, broken at spaces where it would be longer than `room`
 * columns; the further lines are indented. A word that is longer, such as a path, stays whole. */
static void print_wrapped(FILE *to, const char *line, size_t n, int used, int room, int indent)
{
    for (size_t from = 0;;) {
        size_t cut = n, space = 0;
        int width = used;
        for (size_t i = from; i < n && cut == n; i++) {
            if (line[i] == ' ' && i > from && line[i - 1] != ' ') space = i;
            width += ((unsigned char)line[i] & 0xc0) != 0x80;
            if (width > room && space) cut = space;
        }
        escape_print(to, line + from, cut - from);
        from = cut + strspn(line + cut, " ");
        if (from >= n) return;
        fprintf(to, "\n%*s", indent, "");
        used = indent;
    }
}

/* At most that many bytes of a text, from its start or its end, with line ends as \n. */
static void add_part(text *t, const char *words, size_t most, bool is_end)
{
    size_t n = strlen(words), from = is_end && n > most ? n - most : 0, end = !is_end && n > most ? most : n;
    while (from && ((unsigned char)words[from] & 0xc0) == 0x80)
        from++;
    while (end < n && ((unsigned char)words[end] & 0xc0) == 0x80)
        end--;
    if (from) text_add(t, "...");
    while (from < end) {
        const char *line = memchr(words + from, '\n', end - from);
        size_t size = line ? (size_t)(line - words) - from : end - from;
        text_add(t, "%.*s%s", (int)size, words + from, line ? "\\n" : "");
        from += size + (line != NULL);
    }
    if (end < n) text_add(t, "...");
}

/* The first texts of an evaluation, each in one line of escaped text, which a terminal breaks. */
static void add_texts(const console *c, const nrl_record *r)
{
    for (size_t i = 0; i < r->n_samples && (int64_t)i < c->options.samples; i++) {
        const nrl_sample_text *s = &r->samples[i];
        text t = {.n = 0};
        text_add(&t, "sample     ");
        add_part(&t, s->prompt, 60, true);
        text_add(&t, " -> ");
        add_part(&t, s->text, 200, false);
        if (s->answer) text_add(&t, "  expected ");
        if (s->answer) add_part(&t, s->answer, 60, false);
        print_wrapped(stdout, t.s, t.n, 0, c->terminal ? line_columns(c) : INT_MAX, LABEL);
        fputc('\n', stdout);
    }
}

static nrl_status console_write(void *self, const nrl_record *r)
{
    console *c = self;
    text line = {.n = 0};
    erase_bar();
    if (r->kind == NRL_RECORD_SAMPLES)
        add_texts(c, r);
    else if (wants_line(c, r))
        add_line(c, &line, r);
    fputs(line.s, stdout);
    if (wants_bar(c, r)) {
        c->bar_text = (text){.n = 0};
        add_bar(c, &c->bar_text, r);
        show_bar(c);
    }
    if (fflush(stdout) == 0) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "standard output: %s", strerror(errno));
}

/* "trained    32 steps": the text begins in the column of the plan's texts. */
static bool has_label(const char *line)
{
    return strcspn(line, "\n") > LABEL && !strncmp(line + LABEL - 2, "  ", 2);
}

static void print_lines(FILE *to, const char *lines, int used, int indent)
{
    int room = columns_of(fileno(to), LONGEST_LINE) - 1;
    for (;;) {
        size_t n = strcspn(lines, "\n");
        print_wrapped(to, lines, n, used, room, indent);
        fputc('\n', to);
        if (!lines[n]) return;
        lines += n + 1;
        used = 0;
    }
}

/* Prints a line of its own and redraws the bar below it. Warnings go to stderr, which may be the same terminal. */
static void console_event(void *self, const nrl_run_event *e)
{
    const console *c = shown;
    FILE *to = e->kind == NRL_EVENT_WARNING ? stderr : stdout;
    char *plan = e->plan ? nrl_plan_text(e->plan) : NULL;
    const char *lines = plan ? plan : e->text;
    (void)self;
    if (!lines) return;
    erase_bar();
    fflush(stdout);
    flockfile(to); /* one piece, whatever its length */
    int prefix = to == stderr ? fprintf(to, "warning: ") : 0;
    print_lines(to, lines, prefix, plan || has_label(lines) ? LABEL : EVENT_INDENT);
    fflush(to);
    funlockfile(to);
    nrl_free(plan);
    if (!c) return;
    show_bar(c);
    fflush(stdout);
}

static void console_close(void *self)
{
    erase_bar();
    fflush(stdout);
    free(self);
}

static const nrl_logger console_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, console_options, console_rows, "console", "0.1",
               "one line per step on standard output, and the run's messages"),
    .plugin.priority = 200,
    .on_terminal = true,
    .open = console_open,
    .write = console_write,
    .close = console_close,
    .event = console_event,
};
NRL_EXPORT(console_table)
