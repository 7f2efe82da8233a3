/*
 * store_wire.h - requests of torch.distributed's TCPStore as of torch 2.15. A request is one byte and
 * its arguments; integers are little-endian, a text is a u64 length and bytes; nothing is framed.
 * Clients put "/" before every key but "init/", which counts those who came.
 */
#ifndef MESH_STORE_WIRE_H
#define MESH_STORE_WIRE_H
#include <stdint.h>

enum {
    STORE_VALIDATE = 0,
    STORE_SET,
    STORE_COMPARE_SET,
    STORE_GET,
    STORE_ADD,
    STORE_CHECK,
    STORE_WAIT,
    STORE_GETNUMKEYS,
    STORE_DELETE_KEY,
    STORE_APPEND,
    STORE_MULTI_GET,
    STORE_MULTI_SET,
    STORE_CANCEL_WAIT,
    STORE_PING,
    STORE_QUEUE_PUSH,
    STORE_QUEUE_POP,
    STORE_QUEUE_LEN,
    STORE_LIST_KEYS,
    STORE_BARRIER,
    STORE_REQUESTS
};

#define STORE_MAGIC 0x3C85F7CEu /* VALIDATE's argument */
#define STORE_INIT_KEY "init/"

enum {
    STORE_CHECK_READY = 0,
    STORE_CHECK_NOT_READY = 1,
    STORE_WAIT_STOPPED = 0,
    STORE_WAIT_CANCELED = 1
};

#endif
