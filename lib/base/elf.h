/*
 * elf.h - checks the headers of a shared object before it is opened.
 */
#ifndef BASE_ELF_H
#define BASE_ELF_H
#include <nrl/status.h>

/* Checks that `path` is a regular file with a complete ELF shared object for this machine: dlopen maps what the headers
 * name, and a page beyond the end of a truncated file ends the process with SIGBUS. Runs none of its code.
 * NRL_ERR_PLUGIN. [any] */
nrl_status elf_check(const char *path);

#endif
