/*
 * gloo_rank.cc - a rank of Debian's libgloo: gloo_rank RANK WORLD FOLDER LIST. Makes the calls of
 * LIST (ops.h), checks each, prints what is wrong. The n-th collective call has tag n, as torch and
 * nrl do.
 */
#include "ops.h"
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

namespace
{

struct State {
    std::shared_ptr<gloo::rendezvous::Context> context;
    int rank, world;
    uint32_t tag;
    int wrong;
};

template <typename T> using Reducer = void (*)(void *, const void *, const void *, size_t);

template <typename T> Reducer<T> reducer(const op &o)
{
    if (!strcmp(o.reduce, "max")) return &gloo::max<T>;
    if (!strcmp(o.reduce, "min")) return &gloo::min<T>;
    if (!strcmp(o.reduce, "product")) return &gloo::product<T>;
    return &gloo::sum<T>;
}

template <typename T> void sums(State &s, const op &o)
{
    std::vector<T> in(o.count + 1), out(o.count + 1);
    op_fill(&o, in.data(), 0, o.count, s.rank);
    if (op_is(&o, "reduce")) {
        gloo::ReduceOptions options(s.context);
        options.setInput(in.data(), o.count);
        options.setOutput(out.data(), o.count);
        options.setReduceFunction(reducer<T>(o));
        options.setRoot(o.peer);
        options.setTag(s.tag++);
        gloo::reduce(options);
        if (s.rank == o.peer) s.wrong += op_expect_sum(&o, s.rank, s.world, out.data(), 0, o.count);
        return;
    }
    gloo::AllreduceOptions options(s.context);
    options.setInput(in.data(), o.count);
    options.setOutput(out.data(), o.count);
    options.setReduceFunction(reducer<T>(o));
    options.setTag(s.tag++);
    gloo::allreduce(options);
    if (op_is(&o, "rough"))
        op_print_digest(&o, out.data());
    else
        s.wrong += op_expect_sum(&o, s.rank, s.world, out.data(), 0, o.count);
}

template <typename T> void gathers(State &s, const op &o)
{
    bool uneven = op_is(&o, "all_gatherv");
    std::vector<size_t> counts;
    for (int r = 0; r < s.world; r++)
        counts.push_back(uneven ? op_share(&o, r) : o.count);
    size_t total = 0;
    for (size_t n : counts)
        total += n;
    std::vector<T> in(counts[s.rank] + 1), out(total + 1);
    op_fill(&o, in.data(), 0, counts[s.rank], s.rank);
    if (uneven) {
        gloo::AllgathervOptions options(s.context);
        options.setInput(in.data(), counts[s.rank]);
        options.setOutput(out.data(), counts);
        options.setTag(s.tag++);
        gloo::allgatherv(options);
    } else if (op_is(&o, "gather")) {
        gloo::GatherOptions options(s.context);
        options.setInput(in.data(), o.count);
        if (s.rank == o.peer) options.setOutput(out.data(), total);
        options.setRoot(o.peer);
        options.setTag(s.tag++);
        gloo::gather(options);
        if (s.rank != o.peer) return;
    } else {
        gloo::AllgatherOptions options(s.context);
        options.setInput(in.data(), o.count);
        options.setOutput(out.data(), total);
        options.setTag(s.tag++);
        gloo::allgather(options);
    }
    long at = 0;
    for (int r = 0; r < s.world; at += counts[r++])
        s.wrong += op_expect(&o, s.rank, out.data(), at, counts[r], r, 0);
}

template <typename T> void from_root(State &s, const op &o)
{
    std::vector<T> in(o.count * s.world + 1), out(o.count + 1);
    bool scatters = op_is(&o, "scatter");
    if (scatters) {
        gloo::ScatterOptions options(s.context);
        std::vector<T *> parts;
        op_fill(&o, in.data(), 0, o.count * s.world, o.peer);
        for (int r = 0; r < s.world; r++)
            parts.push_back(in.data() + o.count * r);
        if (s.rank == o.peer) options.setInputs(parts, o.count);
        options.setOutput(out.data(), o.count);
        options.setRoot(o.peer);
        options.setTag(s.tag++);
        gloo::scatter(options);
    } else {
        gloo::BroadcastOptions options(s.context);
        if (s.rank == o.peer) op_fill(&o, out.data(), 0, o.count, s.rank);
        options.setOutput(out.data(), o.count);
        options.setRoot(o.peer);
        options.setTag(s.tag++);
        gloo::broadcast(options);
    }
    s.wrong +=
        op_expect(&o, s.rank, out.data(), 0, o.count, o.peer, scatters ? o.count * s.rank : 0);
}

template <typename T> void all_to_all(State &s, const op &o)
{
    bool even = op_is(&o, "all_to_all");
    std::vector<int64_t> to, from;
    long total = 0, at = 0;
    for (int r = 0; r < s.world; r++) {
        to.push_back(even ? o.count : op_share(&o, r));
        from.push_back(even ? o.count : op_share(&o, s.rank));
        total += to[r];
        at += from[r];
    }
    std::vector<T> in(total + 1), out(at + 1);
    for (int r = 0, place = 0; r < s.world; place += static_cast<int>(to[r++]))
        op_fill(&o, in.data(), place, to[r], s.rank + r);
    if (even) {
        gloo::AlltoallOptions options(s.context);
        options.setInput(in.data(), total);
        options.setOutput(out.data(), at);
        options.setTag(s.tag++);
        gloo::alltoall(options);
    } else {
        gloo::AlltoallvOptions options(s.context);
        options.setInput(in.data(), to);
        options.setOutput(out.data(), from);
        options.setTag(s.tag++);
        gloo::alltoallv(options);
    }
    at = 0;
    for (int r = 0; r < s.world; at += from[r++])
        s.wrong += op_expect(&o, s.rank, out.data(), at, from[r], r + s.rank, 0);
}

template <typename T> void message(State &s, const op &o)
{
    std::vector<T> in(o.count + 1), out(o.count + 1);
    int before = (s.rank + s.world - 1) % s.world;
    op_fill(&o, in.data(), 0, o.count, s.rank);
    auto send = s.context->createUnboundBuffer(in.data(), o.count * sizeof(T));
    auto receive = s.context->createUnboundBuffer(out.data(), o.count * sizeof(T));
    send->send((s.rank + 1) % s.world, o.peer);
    receive->recv(before, o.peer);
    send->waitSend();
    receive->waitRecv();
    s.wrong += op_expect(&o, s.rank, out.data(), 0, o.count, before, 0);
}

void barrier(State &s)
{
    gloo::BarrierOptions options(s.context);
    options.setTag(s.tag++);
    gloo::barrier(options);
}

template <typename T> void timed(State &s, const op &o)
{
    std::vector<T> data(o.count);
    std::vector<double> seconds(o.peer);
    for (double &taken : seconds) {
        barrier(s);
        double start = op_clock();
        gloo::AllreduceOptions options(s.context);
        options.setOutput(data.data(), o.count);
        options.setReduceFunction(reducer<T>(o));
        options.setTag(s.tag++);
        gloo::allreduce(options);
        taken = op_clock() - start;
    }
    op_print_time(&o, seconds.data());
}

template <typename T> void run(State &s, const op &o)
{
    if (op_is(&o, "all_reduce") || op_is(&o, "rough") || op_is(&o, "reduce"))
        sums<T>(s, o);
    else if (op_is(&o, "all_gather") || op_is(&o, "all_gatherv") || op_is(&o, "gather"))
        gathers<T>(s, o);
    else if (op_is(&o, "broadcast") || op_is(&o, "scatter"))
        from_root<T>(s, o);
    else if (op_is(&o, "all_to_all") || op_is(&o, "all_to_allv"))
        all_to_all<T>(s, o);
    else if (op_is(&o, "message"))
        message<T>(s, o);
    else if (op_is(&o, "time"))
        timed<T>(s, o);
    else
        throw std::runtime_error(o.name);
}

void run_op(State &s, const op &o)
{
    if (op_is(&o, "barrier")) barrier(s);
    if (!strcmp(o.dtype, "f32")) run<float>(s, o);
    if (!strcmp(o.dtype, "f64")) run<double>(s, o);
    if (!strcmp(o.dtype, "f16")) run<gloo::float16>(s, o);
    if (!strcmp(o.dtype, "i32")) run<int32_t>(s, o);
    if (!strcmp(o.dtype, "i64")) run<int64_t>(s, o);
    if (!strcmp(o.dtype, "u8")) run<uint8_t>(s, o);
}

int run_all(char **argv)
{
    State s = {nullptr, atoi(argv[1]), atoi(argv[2]), 0, 0};
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    gloo::rendezvous::FileStore store(argv[3]);
    s.context = std::make_shared<gloo::rendezvous::Context>(s.rank, s.world);
    s.context->connectFullMesh(store, device);
    FILE *f = fopen(argv[4], "r");
    op o;
    if (!f) return 2;
    while (op_read(f, &o))
        run_op(s, o);
    fclose(f);
    return s.wrong > 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    try {
        return run_all(argv);
    } catch (const std::exception &e) {
        fprintf(stderr, "rank %s (gloo): %s\n", argv[1], e.what());
        return 1;
    }
}
