/*
 * emulator.cpp - runs blocks one after another, with threads as fibers. swapcontext enters a fiber
 * once; after that, _setjmp and _longjmp switch stacks without a system call.
 */
#include "emulator.h"
#include "fake_driver.h"
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

namespace
{
enum { MAX_THREADS = 1024, WARP = 32, STACK = 128 << 10, SHARED = 256 << 10 };
enum state { READY, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    jmp_buf at;
    ucontext_t start;
    bool entered;
    state now;
    emulated_index index;
};

struct machine {
    fiber fibers[MAX_THREADS];
    uint64_t places[MAX_THREADS];
    alignas(128) unsigned char shared[SHARED];
    char *stacks;
    jmp_buf scheduler;
    int n, current;
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
    fprintf(stderr, "emulator: %s (block %u of %u, thread %d of %d)\n", text, m->block.x, m->blocks.x, m->current,
            m->n);
    abort();
}

void to_scheduler(state s)
{
    fiber *f = &m->fibers[m->current];
    f->now = s;
    if (!_setjmp(f->at)) _longjmp(m->scheduler, 1);
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
    fiber *f = &m->fibers[i];
    m->current = i;
    if (_setjmp(m->scheduler)) return;
    if (f->entered) _longjmp(f->at, 1);
    f->entered = true;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = m->stacks + (size_t)i * STACK;
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = nullptr;
    makecontext(&f->start, fiber_main, 0);
    setcontext(&f->start);
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
        n += m->fibers[i].now == s;
    return n;
}

void release(int begin, int end, state s)
{
    for (int i = begin; i < end; i++)
        if (m->fibers[i].now == s) m->fibers[i].now = READY;
}

/* Waits until all threads of a warp, or of the block, that have not ended have arrived. */
void run_block()
{
    for (int i = 0; i < m->n; i++)
        m->fibers[i].now = READY;
    int warps = (m->n + WARP - 1) / WARP;
    for (;;) {
        for (int k = 0; k < warps; k++) {
            int w = in_order(0, warps, k) * WARP, end = w + WARP < m->n ? w + WARP : m->n;
            for (;;) {
                for (int i = w; i < end; i++) {
                    int t = in_order(w, end, i);
                    if (m->fibers[t].now == READY) resume(t);
                }
                int waiting = count(w, end, AT_WARP);
                if (!waiting) break;
                if (waiting + count(w, end, DONE) < end - w)
                    fail("some threads of a warp meet, others are at a barrier of the block");
                release(w, end, AT_WARP);
            }
        }
        int waiting = count(0, m->n, AT_BLOCK);
        if (!waiting) return;
        if (waiting < m->n) fail("some threads are at a barrier that others never reach");
        release(0, m->n, AT_BLOCK);
    }
}

void start()
{
    if (m) return;
    m = static_cast<machine *>(mmap(nullptr, sizeof *m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    m->stacks = static_cast<char *>(mmap(nullptr, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
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
    m->n = (int)(threads.x * threads.y * threads.z);
    m->threads = threads;
    m->blocks = blocks;
    m->body = body;
    m->kernel = kernel;
    m->launches = m->launches * 1664525u + 1013904223u;
    m->backwards = m->launches >> 31;
    if (m->n < 1 || m->n > MAX_THREADS) fail("a block has 1 to 1024 threads");
    if (shared_bytes > SHARED) fail("more shared memory than a GPU has");
    if (blocks.y > 65535 || blocks.z > 65535 || blocks.x * blocks.y * blocks.z == 0) fail("a grid that no GPU takes");
    for (int i = 0; i < m->n; i++)
        m->fibers[i].index = {(unsigned)i % threads.x, (unsigned)i / threads.x % threads.y,
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

const emulated_index &emulator_thread(void)
{
    return m->fibers[m->current].index;
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

uint64_t *emulator_places(void)
{
    return m->places + m->current / WARP * WARP;
}

int emulator_lane(void)
{
    return m->current % WARP;
}

int emulator_warp_size(void)
{
    int first = m->current / WARP * WARP;
    return m->n - first < WARP ? m->n - first : WARP;
}

void emulator_need_lane(int lane)
{
    if (m->fibers[m->current / WARP * WARP + lane].now == DONE) fail("a shuffle reads a lane whose thread has ended");
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
