/*
 * ends.c - a file that harms the process when it is opened, before any call; ENDS selects the way.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { CRASH, LEAVE, ABORT, HANG };

__attribute__((constructor)) static void begin(void)
{
    switch (ENDS) {
    case CRASH:
        raise(SIGSEGV);
        break;
    case LEAVE:
        exit(0);
    case ABORT:
        abort();
    default:
        for (;;)
            sleep(1000);
    }
}
