/*
 * launcher.cpp - launches of the cuda backend, run as PTX: finds the text of a kernel by its name,
 * registers the memory of the GPU with the executor, and ends the process on faults.
 *
 * PTX_FOLDER contains the output of nvcc for plugins/backends/cuda/ops. With NRL_TEST_PTX_LOG=FILE
 * the names of the kernels that ran are appended to that file.
 */
#include "emulator.h"
#include "fake_driver.h"
#include "ptx.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string>

namespace
{
struct kernel {
    ptx_program *program;
    size_t shared_allowed;
};

/* As on the smallest supported GPU; see tests/support/cuda/emulator_tensor.h. */
enum { MOST_SHARED = 99 << 10 };

[[noreturn]] void stop(const char *what, const char *text)
{
    fprintf(stderr, "ptx: %s: %s\n", what, text);
    abort();
}

std::map<std::string, std::string> &texts()
{
    static std::map<std::string, std::string> all;
    if (!all.empty()) return all;
    DIR *folder = opendir(PTX_FOLDER);
    if (!folder) stop("no folder", PTX_FOLDER);
    while (const struct dirent *entry = readdir(folder)) {
        std::string name = entry->d_name;
        if (name.size() < 4 || name.substr(name.size() - 4) != ".ptx") continue;
        std::ifstream file(PTX_FOLDER "/" + name);
        std::stringstream all_of_it;
        all_of_it << file.rdbuf();
        all[name] = all_of_it.str();
    }
    closedir(folder);
    return all;
}

const char *name_of(const void *function)
{
    Dl_info info;
    if (!dladdr(function, &info) || !info.dli_sname || info.dli_saddr != function)
        stop("a kernel without an exported name", info.dli_fname ? info.dli_fname : "?");
    return info.dli_sname;
}

void log_name(const char *name)
{
    const char *path = getenv("NRL_TEST_PTX_LOG");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file) return;
    fprintf(file, "%s\n", name);
    fclose(file);
}

kernel load(const char *name)
{
    ptx_report report;
    std::string head = ".entry " + std::string(name) + "(";
    for (const auto &text : texts()) {
        if (text.second.find(head) == std::string::npos) continue;
        log_name(name);
        ptx_program *program = ptx_load(text.second.c_str(), name, &report);
        if (!program) stop(text.first.c_str(), report.text);
        return {program, 0};
    }
    stop("no PTX of kernel", name);
}

kernel &kernel_of(const void *function)
{
    static std::map<const void *, kernel> all;
    auto at = all.find(function);
    if (at == all.end()) at = all.emplace(function, load(name_of(function))).first;
    return at->second;
}

void added(const void *begin, size_t bytes, bool on_device)
{
    ptx_memory_add(begin, bytes, on_device);
}

const fake_watcher watcher = {added, ptx_memory_remove, ptx_memory_wrote};

__attribute__((constructor)) void watch()
{
    fake_watch = &watcher;
}
} // namespace

void ptx_start(const void *function, dim3 blocks, dim3 threads, size_t shared_bytes, int n_args,
               const void *const *args, const size_t *arg_bytes)
{
    static uint32_t launches;
    if (emulator_launch_code) return;
    const kernel &k = kernel_of(function);
    launches = launches * 1664525u + 1013904223u;
    ptx_launch launch = {};
    launch.blocks = {blocks.x, blocks.y, blocks.z};
    launch.threads = {threads.x, threads.y, threads.z};
    launch.shared_bytes = shared_bytes;
    launch.shared_allowed = k.shared_allowed;
    launch.n_args = n_args;
    launch.args = args;
    launch.arg_bytes = arg_bytes;
    launch.backwards = launches >> 31;
    ptx_report report;
    if (ptx_run(k.program, &launch, &report)) stop("fault", report.text);
}

/* cudaFuncSetAttribute's code for a value that is too large is 1. */
int ptx_allow_shared(const void *function, int bytes)
{
    if (bytes > MOST_SHARED) return 1;
    kernel_of(function).shared_allowed = (size_t)bytes;
    return 0;
}
