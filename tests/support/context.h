/*
 * context.h - one device and one context for all tests of a file, which $NRL_PLUGIN_PATH serves as in backend.h.
 */
#ifndef SUPPORT_CONTEXT_H
#define SUPPORT_CONTEXT_H
#include "support/backend.h"

static device the_device;
static nrl_ctx *the_ctx;

/* For cmocka's groups. A test without its backend is skipped. */
static int open_context(void **state)
{
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    return ctx_create(&the_device, &the_ctx) ? -1 : 0;
}

static int close_context(void **state)
{
    (void)state;
    ctx_destroy(the_ctx);
    device_close(&the_device);
    return 0;
}

#endif
