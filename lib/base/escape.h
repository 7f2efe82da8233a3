/*
 * escape.h - printing untrusted text (rows, keys, templates, file names, messages of other ranks) to a terminal.
 * The terminal would obey control characters in the text, so they are printed as \x1b. Everything that prints such text
 * for people uses this file; output for programs is not escaped.
 */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H
#include "base/buffer.h"
#include <stdio.h>

/* Keeps line ends and tabs. Replaces each byte of other control characters (C0, DEL, C1), of characters that change the
 * direction of text, and of invalid UTF-8 by \xNN. Allocates nothing. [any] */
void escape_print(FILE *f, const char *text, size_t size);
void escape_add(buffer *b, const char *text, size_t size); /* the same, appended to b */

#endif
