/*
 * main.c - the program; everything else is in libnrl, so that plugins share one copy of the core.
 */
#include <errno.h>
#include <fcntl.h>
#include <nrl/plugin.h>
#include <stdio.h>

NRL_API int nrl_main(int argc, char **argv);

/* A number below 3 that the caller left closed would go to the next file that is opened, and messages would be
 * written into it. A descriptor that neither reads nor writes holds the place: to everyone it is still closed. */
static int reserve_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/", O_PATH) != fd) return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (reserve_standard_descriptors()) {
        perror("error: standard input, output and error");
        return 1;
    }
    return nrl_main(argc, argv);
}
