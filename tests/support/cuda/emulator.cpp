/*
 * emulator.cpp - runs blocks one after another, with threads as fibers. On x86-64 a few instructions switch stacks;
 * elsewhere, and where a sanitizer follows the stack, swapcontext enters a fiber once, and _setjmp and _longjmp switch
 * after that, without a system call.
 */
#include "emulator.h"
#include "fake_driver.h"
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define OWN_SWITCH 1
/* Leaves where it was called in *from, and goes on at `to`. */
extern "C" void emulator_switch(void **from, void *to);
asm(R"(
    .text
    .hidden emulator_switch
    .globl emulator_switch
    .type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size emulator_switch, . - emulator_switch
)");
#else
#define OWN_SWITCH 0
#endif

emulator_block_state emulator_now;

namespace
{
/* Stacks begin in different sets of the caches: a power of 2 between them would put all of them into the same. */
enum { WARP = 32, STACK = (128 << 10) + 17 * 64, SHARED = 256 << 10 };
enum state : unsigned char { READY, AT_WARP, AT_BLOCK, DONE };

/* Where a fiber, or the scheduler, goes on. */
#if OWN_SWITCH
typedef void *place;
#else
struct place {
    jmp_buf at;
};
#endif

struct machine {
    state now[EMULATED_THREADS];
    bool entered[EMULATED_THREADS];
    place at[EMULATED_THREADS], scheduler;
    alignas(128) unsigned char shared[SHARED];
    char *stacks;
    uint32_t launches; /* random state: its top bit selects the order of the launch */
    bool backwards;
    emulated_index block;
    dim3 threads, blocks;
    emulated_body body;
    void *kernel;
};

machine *m;

void fail(const char *text)
{
    fprintf(stderr, "emulator: %s (block %u of %u, thread %d of %d)\n", text, m->block.x, m->blocks.x,
            emulator_now.current, emulator_now.n);
    abort();
}

void fiber_main();

/* go_on(from, to): goes on at *to, until something goes on at *from. enter(i): starts fiber i, likewise. */
#if OWN_SWITCH
void go_on(place *from, place *to)
{
    emulator_switch(from, *to);
}

void enter(int i)
{
    enum { REGISTERS = 6 };
    void **top = reinterpret_cast<void **>(m->stacks + (size_t)(i + 1) * STACK);
    *--top = nullptr; /* fiber_main does not return */
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int k = 0; k < REGISTERS; k++)
        *--top = nullptr;
    m->at[i] = top;
    go_on(&m->scheduler, &m->at[i]);
}
#else
void go_on(place *from, place *to)
{
    if (!_setjmp(from->at)) _longjmp(to->at, 1);
}

void enter(int i)
{
    static ucontext_t start;
    if (_setjmp(m->scheduler.at)) return;
    getcontext(&start);
    start.uc_stack.ss_sp = m->stacks + (size_t)i * STACK;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    setcontext(&start);
}
#endif

void to_scheduler(state s)
{
    const int i = emulator_now.current;
    m->now[i] = s;
    go_on(&m->at[i], &m->scheduler);
}

void fiber_main()
{
    for (;;) {
        m->body(m->kernel);
        to_scheduler(DONE);
    }
}

/* Runs thread i until it ends or waits. */
void resume(int i)
{
    emulator_now.current = i;
    if (m->entered[i]) {
        go_on(&m->scheduler, &m->at[i]);
    } else {
        m->entered[i] = true;
        enter(i);
    }
}

/* Entry i of [begin, end), in the current order. */
int in_order(int begin, int end, int i)
{
    return m->backwards ? end - 1 - (i - begin) : i;
}

int count(int begin, int end, state s)
{
    int n = 0;
    for (int i = begin; i < end; i++)
        n += m->now[i] == s;
    return n;
}

void release(int begin, int end, state s)
{
    for (int i = begin; i < end; i++)
        if (m->now[i] == s) m->now[i] = READY;
}

/* Waits until all threads of a warp, or of the block, that have not ended have arrived. */
void run_block()
{
    const int n = emulator_now.n, warps = (n + WARP - 1) / WARP;
    for (int i = 0; i < n; i++)
        m->now[i] = READY;
    for (;;) {
        for (int k = 0; k < warps; k++) {
            int w = in_order(0, warps, k) * WARP, end = w + WARP < n ? w + WARP : n;
            for (;;) {
                for (int i = w; i < end; i++) {
                    int t = in_order(w, end, i);
                    if (m->now[t] == READY) resume(t);
                }
                int waiting = count(w, end, AT_WARP);
                if (!waiting) break;
                if (waiting + count(w, end, DONE) < end - w)
                    fail("some threads of a warp meet, others are at a barrier of the block");
                release(w, end, AT_WARP);
            }
        }
        int waiting = count(0, n, AT_BLOCK);
        if (!waiting) return;
        if (waiting < n) fail("some threads are at a barrier that others never reach");
        release(0, n, AT_BLOCK);
    }
}

void start()
{
    if (m) return;
    m = static_cast<machine *>(mmap(nullptr, sizeof *m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    m->stacks = static_cast<char *>(mmap(nullptr, (size_t)EMULATED_THREADS * STACK, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}
} // namespace

int emulator_launch_code;
long emulator_launches;

void emulator_launch(dim3 blocks, dim3 threads, size_t shared_bytes, emulated_body body, void *kernel)
{
    if (emulator_launch_code) return;
    emulator_launches++;
    if (fake.no_work) return;
    start();
    emulator_now.n = (int)(threads.x * threads.y * threads.z);
    m->threads = threads;
    m->blocks = blocks;
    m->body = body;
    m->kernel = kernel;
    m->launches = m->launches * 1664525u + 1013904223u;
    m->backwards = m->launches >> 31;
    if (emulator_now.n < 1 || emulator_now.n > EMULATED_THREADS) fail("a block has 1 to 1024 threads");
    if (shared_bytes > SHARED) fail("more shared memory than a GPU has");
    if (blocks.y > 65535 || blocks.z > 65535 || blocks.x * blocks.y * blocks.z == 0) fail("a grid that no GPU takes");
    for (int i = 0; i < emulator_now.n; i++)
        emulator_now.index[i] = {(unsigned)i % threads.x, (unsigned)i / threads.x % threads.y,
                                 (unsigned)i / threads.x / threads.y};
    for (unsigned z = 0; z < blocks.z; z++)
        for (unsigned y = 0; y < blocks.y; y++)
            for (unsigned x = 0; x < blocks.x; x++) {
                m->block = {m->backwards ? blocks.x - 1 - x : x, m->backwards ? blocks.y - 1 - y : y, z};
                memset(m->shared, 0xFF, shared_bytes); /* NaN, so that code that relies on zeros fails */
                run_block();
            }
}

void *emulator_shared(void)
{
    return m->shared;
}

const emulated_index &emulator_block(void)
{
    return m->block;
}

const dim3 &emulator_threads(void)
{
    return m->threads;
}

const dim3 &emulator_blocks(void)
{
    return m->blocks;
}

void emulator_meet_block(void)
{
    to_scheduler(AT_BLOCK);
}

void emulator_meet_warp(void)
{
    to_scheduler(AT_WARP);
}

void emulator_need_lane(int lane)
{
    if (m->now[emulator_now.current / WARP * WARP + lane] == DONE)
        fail("a shuffle reads a lane whose thread has ended");
}

unsigned emulator_ballot(bool yes)
{
    uint64_t *places = emulator_places();
    unsigned mask = 0;
    places[emulator_lane()] = yes;
    emulator_meet_warp();
    for (int i = 0; i < emulator_warp_size(); i++)
        mask |= places[i] ? 1u << i : 0;
    emulator_meet_warp();
    return mask;
}
