/*
 * in_cpp.cpp - a logger in C++17, as it is written in C.
 */
#include <nrl/nrl.h>

namespace
{
struct options {
    int64_t every;
};

const nrl_option rows[] = {
    NRL_OPT_INT(options, every, "1", 1, 1e6, "steps between lines"),
};

nrl_status open(const void *, const nrl_logger_run *, void **self)
{
    *self = nullptr;
    return NRL_OK;
}

nrl_status write(void *, const nrl_record *)
{
    return NRL_OK;
}

void close(void *) {}

nrl_logger make()
{
    nrl_logger t{};
    t.plugin.abi = NRL_ABI;
    t.plugin.build = NRL_BUILD;
    t.plugin.kind = NRL_KIND_LOGGER;
    t.plugin.size = sizeof t;
    t.plugin.n_options = 1;
    t.plugin.option_size = sizeof(nrl_option);
    t.plugin.options_size = sizeof(options);
    t.plugin.name = "in_cpp";
    t.plugin.version = "0.1";
    t.plugin.summary = "a logger in C++";
    t.plugin.options = rows;
    t.open = open;
    t.write = write;
    t.close = close;
    return t;
}

const nrl_logger table = make();
} // namespace

NRL_EXPORT(table)
