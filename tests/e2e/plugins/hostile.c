/*
 * hostile.c - a library that creates the file `executed` in the working directory as soon as it is
 * opened, as a hostile plugin could.
 */
#include <stdio.h>

__attribute__((constructor)) static void execute(void)
{
    FILE *f = fopen("executed", "w");
    if (f) fclose(f);
}
