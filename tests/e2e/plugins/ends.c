/*
 * ends.c - a file that harms the process when it is opened, before any call; ENDS selects the way.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { CRASH, LEAVE, ABORT, HANG };

__attribute__((constructor)) static void begin(void)
{
    if (ENDS == CRASH) raise(SIGSEGV);
    if (ENDS == LEAVE) exit(0);
    if (ENDS == ABORT) abort();
    while (ENDS == HANG)
        sleep(1000);
}
