/*
 * fake_nccl.h - a fake of NCCL and the CUDA driver in host memory: ranks are threads of one process
 * that find each other by the id. The last rank of an operation computes it (local_compute); events
 * complete when everything that was started before them on their stream has completed, and a message
 * meets its other half when the streams of both ranks have come to it. It refuses
 * what NCCL would refuse: calls outside a group, and calls on a communicator that is not ready or
 * was aborted.
 */
#ifndef TEST_FAKE_NCCL_H
#define TEST_FAKE_NCCL_H
#include "api.h"

enum { FAKE_SYSTEM_ERROR = 2, FAKE_INVALID = 4, FAKE_REMOTE_ERROR = 6 };

/* What goes wrong, and what was counted; under no lock: set it while no rank runs. */
typedef struct {
    int version, n_devices;
    int init_code;      /* of joining */
    int init_rank_gone; /* this rank's joining is not counted: the others wait; -1 = none */
    int id_code;
    int child_late_ms;              /* split communicators are filled in so long after their parent is done */
    int stay;                       /* operations never end */
    int connects;                   /* as NCCL, the first exchange of two ranks and destroying wait for the others */
    int async_code;                 /* what communicators report from then on */
    int call_code;                  /* of all_reduce */
    int only_device;                /* NCCL takes memory of the driver's alone, as it does in truth */
    int buffer_code, register_code; /* of memory that NCCL allocates, and of registering it */
    int n_buffers, n_registered;    /* at present */
    int n_abort_together;           /* an abort returns only when that many have begun */
    int n_in_abort;
    int n_aborts, n_destroys, n_copies_in, n_fences, n_records, n_wrong;
    int live_streams, live_events, live_memory, live_contexts;
} fake_state;

extern fake_state fake;
void fake_reset(void);
extern const nccl_api fake_api;
extern const nccl_driver fake_driver;

#endif
