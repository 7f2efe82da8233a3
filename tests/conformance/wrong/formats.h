/*
 * formats.h - formats that break one rule each, with the rule that must detect it. All are the
 * example format npy with one member replaced.
 */
#ifndef WRONG_FORMATS_H
#define WRONG_FORMATS_H
#include <nrl/nrl.h>
#undef NRL_EXPORT /* plugin.c exports a row instead */
#define NRL_EXPORT(t)                                                                                                  \
    __attribute__((unused)) static const void *npy_table(void)                                                         \
    {                                                                                                                  \
        return &(t);                                                                                                   \
    }
#include "../../../examples/npy/npy.c"

static nrl_status adding_write(void *writer, int64_t i, int64_t n, const float *values)
{
    float more[64];
    for (int64_t k = 0; k < n; k++)
        more[k] = values[k] + 1;
    return npy_write(writer, i, n, more);
}

static nrl_status from_start_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    (void)begin;
    return npy_read(reader, i, 0, n, out);
}

static int64_t forgetful_n(const void *reader)
{
    return npy_n_tensors(reader) - 1;
}

static void flat_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    npy_tensor(reader, i, tensor);
    for (int k = 1; k < tensor->n_dims; k++)
        tensor->dims[0] *= tensor->dims[k];
    tensor->n_dims = 1;
}

static int32_t greedy_probe(const char *path, const nrl_format_host *host)
{
    (void)path, (void)host;
    return NRL_PROBE_YES;
}

static int32_t blind_probe(const char *path, const nrl_format_host *host)
{
    (void)path, (void)host;
    return NRL_PROBE_NO;
}

static bool greedy_owns(const char *name)
{
    (void)name;
    return true;
}

static bool shy_owns(const char *name)
{
    return !strcmp(name, "config.json");
}

static nrl_status mute_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    nrl_status st = npy_open(path, flags, host, reader);
    if (st != NRL_OK) nrl_fail(st, "%s", "");
    return st;
}

static nrl_status leaking_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    NRL_TRY(npy_open(path, flags, host, reader));
    return open("/dev/null", O_RDONLY) < 0 ? NRL_ERR_IO : NRL_OK;
}

static nrl_status trusting_load(void *reader)
{
    npy_load(reader);
    return NRL_OK;
}

static void vague_info(const void *reader, nrl_format_info *info)
{
    npy_info(reader, info);
    info->config = NULL;
}

#pragma GCC diagnostic ignored "-Woverride-init"
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, #nm, "0", rule),                                                 \
            .holds = NRL_HOLDS_MODEL, .probe = npy_probe, .open = npy_open, .close = npy_close, .info = npy_info,      \
            .load = npy_load, .n_tensors = npy_n_tensors, .tensor = npy_tensor, .read = npy_read, .begin = npy_begin,  \
            .write = npy_write, .finish = npy_finish, .abandon = npy_abandon, .owns = npy_owns, __VA_ARGS__            \
    }
static const nrl_format wrong[] = {
    WRONG(right, "nothing is wrong with it", .travelling = NULL),
    WRONG(adding, "what was written reads back", .write = adding_write),
    WRONG(from_start, "any range reads as a part of the whole", .read = from_start_read),
    WRONG(forgetful, "every tensor is listed", .n_tensors = forgetful_n),
    WRONG(flat, "shapes are kept", .tensor = flat_tensor),
    WRONG(greedy, "a probe leaves other directories alone", .probe = greedy_probe),
    WRONG(blind, "a probe knows what the format writes", .probe = blind_probe),
    WRONG(grasping, "a format owns no file of others", .owns = greedy_owns),
    WRONG(shy, "a format owns every file that it writes", .owns = shy_owns),
    WRONG(mute, "a missing path gives an error text", .open = mute_open),
    WRONG(leaking, "nothing stays open", .open = leaking_open),
    WRONG(trusting, "a truncated file is refused", .load = trusting_load),
    WRONG(vague, "the description is kept", .info = vague_info),
    WRONG(endless, "a writer has all its members", .finish = NULL),
    WRONG(nothing, "a format holds a model or an adapter", .holds = NRL_HOLDS_NOTHING),
    WRONG(lacks_probe, "probe is NULL", .probe = NULL),
};
#undef WRONG

#endif
