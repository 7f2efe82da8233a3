/*
 * units.h - numbers of bytes as people read them: "12.5 KiB", "0.4 MiB", "15.0 GiB", "1.3 TiB".
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H
#include <stdio.h>

enum { SIZE_TEXT = 32 };

/* Writes to `text` and returns it. */
static inline const char *size_text(double bytes, char text[SIZE_TEXT])
{
    const double gib = bytes / (1 << 30);
    if (bytes < 0.1 * (1 << 20))
        snprintf(text, SIZE_TEXT, bytes < 1024 ? "%.0f bytes" : "%.1f KiB", bytes < 1024 ? bytes : bytes / 1024);
    else if (gib < 1)
        snprintf(text, SIZE_TEXT, "%.1f MiB", gib * 1024);
    else if (gib < 1024)
        snprintf(text, SIZE_TEXT, "%.1f GiB", gib);
    else
        snprintf(text, SIZE_TEXT, "%.4g TiB", gib / 1024);
    return text;
}

#endif
