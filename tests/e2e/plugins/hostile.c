/*
 * hostile.c - a library that leaves the file `executed` in the working directory as soon as it is opened: what a
 * stranger's plugin can do before anybody asks it for anything.
 */
#include <stdio.h>

__attribute__((constructor)) static void execute(void)
{
    FILE *f = fopen("executed", "w");
    if (f) fclose(f);
}
