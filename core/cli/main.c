/*
 * main.c - the program; everything else is in libnrl, so that plugins share one copy of the core.
 */
#include <nrl/plugin.h>

NRL_API int nrl_main(int argc, char **argv);

int main(int argc, char **argv)
{
    return nrl_main(argc, argv);
}
