/*
 * fault.h - how the code below ptx.h reports faults.
 */
#ifndef SUPPORT_PTX_FAULT_H
#define SUPPORT_PTX_FAULT_H
#include "ptx.h"
#include <string>

namespace ptx
{
struct fault {
    ptx_kind kind;
    std::string text;
};

[[noreturn]] void fail(ptx_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
} // namespace ptx

#endif
