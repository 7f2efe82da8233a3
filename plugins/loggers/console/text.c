/*
 * text.c - number formats for the console.
 */
#include "text.h"
#include <stdarg.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

void text_add(text *t, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, a);
    va_end(a);
    if (n > 0) t->n += (size_t)n;
    if (t->n >= sizeof t->s) t->n = sizeof t->s - 1;
}

void text_name(text *t, const char *name)
{
    for (; *name; name++)
        text_add(t, "%c", (unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

static bool text_odd(text *t, double v)
{
    if (isfinite(v)) return false;
    text_add(t, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    return true;
}

void text_fixed(text *t, double v)
{
    if (!text_odd(t, v)) text_add(t, fabs(v) < 1e6 ? "%.4f" : "%.4e", v);
}

void text_short(text *t, double v)
{
    if (!text_odd(t, v)) text_add(t, "%.3g", v);
}

void text_exponent(text *t, double v)
{
    if (!text_odd(t, v)) text_add(t, v == 0 ? "0" : "%.1e", v);
}

void text_count(text *t, double v)
{
    char digits[32];
    if (text_odd(t, v)) return;
    if (fabs(v) >= 1e15) {
        text_add(t, "%.3g", v);
        return;
    }
    int n = snprintf(digits, sizeof digits, "%.0f", fabs(v));
    if (v < 0) text_add(t, "-");
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) text_add(t, ",");
        text_add(t, "%c", digits[i]);
    }
}

void text_rate(text *t, double v)
{
    text_count(t, v);
    text_add(t, " tok/s");
}

void text_percent(text *t, double v)
{
    if (!text_odd(t, v)) text_add(t, fabs(v) < 1e4 ? "%.1f%%" : "%.3g%%", 100 * v);
}

void text_memory(text *t, double v)
{
    if (text_odd(t, v)) return;
    if (fabs(v) < 0.95 * GIB)
        text_add(t, "%.0f MiB", v / (1024 * 1024));
    else
        text_add(t, fabs(v) < 1e18 ? "%.1f GiB" : "%.3g GiB", v / GIB);
}

void text_memory_of(text *t, double v, double total)
{
    if (isfinite(v) && isfinite(total) && fabs(v) < 1e18 && total < 0.95 * GIB)
        text_add(t, "%.0f/%.0f MiB", v / (1 << 20), total / (1 << 20));
    else if (isfinite(v) && isfinite(total) && fabs(v) < 1e18 && total < 1e18)
        text_add(t, fabs(v) < 0.05 * GIB ? "%.0f MiB/%.1f GiB" : "%.1f/%.1f GiB",
                 fabs(v) < 0.05 * GIB ? v / (1 << 20) : v / GIB, total / GIB);
    else
        text_memory(t, v);
}

void text_general(text *t, double v)
{
    if (text_odd(t, v)) return;
    if (v == floor(v) && fabs(v) < 1e15 && fabs(v) >= 1000)
        text_count(t, v);
    else
        text_add(t, fabs(v) >= 1e-3 && fabs(v) < 1e6 ? "%.4f" : "%.4g", v);
}

void text_duration(text *t, double seconds)
{
    if (seconds > 1e9) {
        text_add(t, "years");
        return;
    }
    long long s = (long long)(seconds + 0.5);
    if (s >= 86400)
        text_add(t, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        text_add(t, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        text_add(t, "%lldm%02llds", s / 60, s % 60);
    else
        text_add(t, "%llds", s);
}
