/*
 * ends.c - a file that harms the process that opens it, before anybody calls it: ENDS says how.
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
