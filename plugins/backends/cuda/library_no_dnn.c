/*
 * library_no_dnn.c - used if cuDNN's headers were not found when the backend was built.
 */
#include "dnn_library.h"

static nrl_status open_nothing(void **library)
{
    *library = NULL;
    return nrl_fail(NRL_ERR_PLUGIN, "nrl was built without cuDNN's headers");
}

static const dnn_library nothing = {.open = open_nothing};

const dnn_library *dnn_library_table(void)
{
    return &nothing;
}
