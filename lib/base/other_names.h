/*
 * other_names.h - what options of other trainers are called here: looks words up in share/nrl/other-names.txt, a text
 * (cli/data/other-names.txt in the sources).
 */
#ifndef BASE_OTHER_NAMES_H
#define BASE_OTHER_NAMES_H
#include "base/arena.h"

/* "it is optimizer.lr here", or another text that follows a semicolon, in `a`. *key, if not NULL: "optimizer.lr", or
 * NULL if the text names no single key. NULL if the word is not known, or if there is no such file. exe_dir: PREFIX/bin
 * of the program; NULL = unknown. [any] */
const char *other_names_find(arena *a, const char *exe_dir, const char *word, const char **key);

#endif
