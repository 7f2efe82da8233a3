/*
 * text.h - a line under construction, and number formats. Lines longer than the buffer are truncated.
 */
#ifndef CONSOLE_TEXT_H
#define CONSOLE_TEXT_H
#include <math.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char s[4000];
    size_t n;
} text;

void text_add(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_name(text *t, const char *name); /* control characters become '?' */

void text_fixed(text *t, double v);    /* 1.2345 */
void text_short(text *t, double v);    /* 0.872 */
void text_exponent(text *t, double v); /* 4.9e-06 */
void text_count(text *t, double v);    /* 12,345 */
void text_rate(text *t, double v);     /* 8,412 tok/s */
void text_percent(text *t, double v);  /* 0.412 -> 41.2% */
void text_memory(text *t, double v);   /* bytes -> 3.1 GiB */
void text_memory_of(text *t, double v, double total);
void text_general(text *t, double v);        /* counts with commas, else four digits */
void text_duration(text *t, double seconds); /* 12m40s */

#endif
