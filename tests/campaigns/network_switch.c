/*
 * network_switch.c N - a network of N machines on one machine: creates N network namespaces, each
 * with an interface `net0`, and forwards IPv4 packets between them, with faults on request. A
 * namespace represents a machine; 10.213.7.(R+1) is the address of machine R, whose namespace is
 * /proc/PID/fd/(100+R) of this program. Nothing else on the machine changes, and everything
 * disappears when this program ends.
 *
 * Prints "ready" when the interfaces exist. Commands are lines on standard input:
 *   cut R, join R   no packet from or to machine R; all of them again
 *   loss PERCENT    of the packets, by a generator with a fixed seed
 *   delay MS        of each packet, one way
 *   mtu BYTES       larger packets are dropped without notice; 0 = no limit
 * Ends at the end of its input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MACHINES = 16, MAX_PACKET = 2048, QUEUE = 8192, DESTINATION_AT = 16, HEADER = 20, SPACE_AT = 100 };

typedef struct {
    int64_t due_ms;
    int to;
    size_t size;
    unsigned char bytes[MAX_PACKET];
} packet;

static int n_machines, interface[MAX_MACHINES];
static bool is_sharded[MAX_MACHINES];
static int loss, delay_ms, largest;
static uint64_t state = 0x9E3779B97F4A7C15u;
static packet queue[QUEUE]; /* in the order of their coming; a shorter delay does not overtake */
static size_t first, n_queued;

static void die(const char *what, const char *which)
{
    fprintf(stderr, "network_switch: %s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* An interface belongs to the namespace in which it is made; its descriptor does not. */
static int open_interface(int machine)
{
    struct ifreq want = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    if (unshare(CLONE_NEWNET)) die("cannot make", "a network namespace");
    int space = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (space < 0 || dup2(space, SPACE_AT + machine) < 0) die("cannot open", "/proc/self/ns/net");
    close(space);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) die("cannot open", "/dev/net/tun");
    snprintf(want.ifr_name, sizeof want.ifr_name, "net0");
    if (ioctl(fd, TUNSETIFF, &want)) die("cannot make", "net0");
    return fd;
}

static bool is_lost(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's */
    return (int)((state >> 33) % 100) < loss;
}

static void take(int from)
{
    packet *p = &queue[(first + n_queued) % QUEUE];
    ssize_t n = read(interface[from], p->bytes, sizeof p->bytes);
    if (n < HEADER || p->bytes[0] >> 4 != 4) return; /* IPv6 announces itself, and nobody listens */
    p->to = p->bytes[DESTINATION_AT + 3] - 1;
    p->size = (size_t)n;
    p->due_ms = now_ms() + delay_ms;
    if (p->to < 0 || p->to >= n_machines || is_sharded[from] || is_sharded[p->to] || is_lost() ||
        (largest && n > largest) || n_queued == QUEUE)
        return;
    n_queued++;
}

/* A full or absent interface loses packets, as others do. */
static void deliver(void)
{
    for (int64_t now = now_ms(); n_queued && queue[first].due_ms <= now; n_queued--, first = (first + 1) % QUEUE) {
        const packet *p = &queue[first];
        if (!is_sharded[p->to] && write(interface[p->to], p->bytes, p->size) < 0) continue;
    }
}

static void obey(const char *line)
{
    int value;
    if (sscanf(line, "cut %d", &value) == 1 && value < n_machines)
        is_sharded[value] = true;
    else if (sscanf(line, "join %d", &value) == 1 && value < n_machines)
        is_sharded[value] = false;
    else if (sscanf(line, "loss %d", &value) == 1)
        loss = value;
    else if (sscanf(line, "delay %d", &value) == 1)
        delay_ms = value;
    else if (sscanf(line, "mtu %d", &value) == 1)
        largest = value;
    else
        fprintf(stderr, "network_switch: what is '%s'?\n", line);
}

/* Lines may come in pieces; false at the end of the input. */
static bool read_commands(void)
{
    static char text[256];
    static size_t have;
    ssize_t n = read(STDIN_FILENO, text + have, sizeof text - 1 - have);
    if (n <= 0) return n < 0 && errno == EINTR;
    have += (size_t)n;
    text[have] = 0;
    for (char *end; (end = strchr(text, '\n'));) {
        *end = 0;
        obey(text);
        have -= (size_t)(end + 1 - text);
        memmove(text, end + 1, have + 1);
    }
    if (have == sizeof text - 1) have = 0;
    return true;
}

int main(int n, char **argument)
{
    struct pollfd ready[MAX_MACHINES + 1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    n_machines = n == 2 ? atoi(argument[1]) : 0;
    if (n_machines < 1 || n_machines > MAX_MACHINES) {
        fprintf(stderr, "usage: network_switch N\n");
        return 2;
    }
    for (int i = 0; i < n_machines; i++) {
        interface[i] = open_interface(i);
        ready[i] = (struct pollfd){interface[i], POLLIN, 0};
    }
    ready[n_machines] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    puts("ready");
    for (;;) {
        int64_t left = n_queued ? queue[first].due_ms - now_ms() : 1000;
        if (poll(ready, (nfds_t)n_machines + 1, left > 0 ? (int)left : 0) < 0 && errno != EINTR) die("cannot", "wait");
        for (int i = 0; i < n_machines; i++)
            if (ready[i].revents & POLLIN) take(i);
        deliver();
        if ((ready[n_machines].revents & (POLLIN | POLLHUP)) && !read_commands()) return 0;
    }
}
