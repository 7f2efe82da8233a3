/*
 * escape.h - text of others (rows, keys, templates, file names, what other ranks say) on its way to a terminal, which
 * would obey the control characters in it: they are shown as \x1b. Used by everything that prints such text for people;
 * what is written for programs stays as it is.
 */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H
#include "base/buffer.h"
#include <stdio.h>

/* Line ends and tabs stay; other control characters (C0, DEL, C1), those that change the direction of text, and bytes
 * that are not UTF-8 become \xNN, byte by byte. Nothing is allocated. [any] */
void escape_print(FILE *f, const char *text, size_t size);
void escape_add(buffer *b, const char *text, size_t size); /* appends the same */

#endif
