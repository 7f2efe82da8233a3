/*
 * nrl.hpp - plugins in C++17: a table from a class, owners of what C gives away, and errors as exceptions.
 *
 * The functions are those of the C headers; this header only adds types. No exception leaves a plugin: each member of a
 * table runs inside nrl::guard, which turns an exception into a status and its text. A class of a plugin has
 *
 *     static constexpr const char *name, *version, *summary;
 *     struct options { ... };                                  (may be empty)
 *     static constexpr nrl_option rows[] = {NRL_OPT_F64(options, gamma, "2", 0, 10, "...")};   (may be missing)
 *
 * and the members that nrl::algorithm, nrl::optimizer and nrl::logger list below. NRL_EXPORT_CLASS(algorithm, focal)
 * exports it. A kind without a function here is written as in C: every header compiles as C++17.
 */
#ifndef NRL_HPP
#define NRL_HPP
#include <exception>
#include <memory>
#include <new>
#include <nrl/nrl.h>
#include <string>

namespace nrl
{

/* ---- errors ---- */

/* A status whose text is in the record of this thread (nrl_error_text), or is set by what(). */
class error : public std::exception
{
  public:
    explicit error(nrl_status status) : status_(status), text_(nrl_error_text()) {}
    error(nrl_status status, const std::string &text) : status_(status), text_(text)
    {
        nrl_fail(status, "%s", what());
    }
    nrl_status status() const noexcept
    {
        return status_;
    }
    const char *what() const noexcept override
    {
        return text_.c_str();
    }

  private:
    nrl_status status_;
    std::string text_;
};

/* Throws what is not NRL_OK. */
inline void check(nrl_status st)
{
    if (st != NRL_OK) throw error(st);
}

/* Runs f(), which returns nothing, and returns its exception as a status. */
template <class F> nrl_status guard(F &&f) noexcept
{
    try {
        f();
        return NRL_OK;
    } catch (const error &e) {
        return nrl_fail(e.status(), "%s", e.what());
    } catch (const std::bad_alloc &) {
        return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    } catch (const std::exception &e) {
        return nrl_fail(NRL_ERR_PLUGIN, "%s", e.what());
    } catch (...) {
        return nrl_fail(NRL_ERR_PLUGIN, "an unknown exception");
    }
}

/* ---- owners ---- */

/* Tensors that are created while it lives are freed with it. */
class scope
{
  public:
    explicit scope(nrl_ctx *ctx) : ctx_(ctx)
    {
        nrl_scope_begin(ctx);
    }
    ~scope()
    {
        nrl_scope_end(ctx_);
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    nrl_ctx *ctx_;
};

struct deleter {
    void operator()(char *text) const
    {
        nrl_free(text);
    }
    void operator()(nrl_arena *a) const
    {
        nrl_arena_destroy(a);
    }
    void operator()(nrl_config *c) const
    {
        nrl_config_destroy(c);
    }
    void operator()(nrl_run *r) const
    {
        nrl_run_close(r);
    }
};
using text = std::unique_ptr<char, deleter>; /* allocated by nrl */
using arena = std::unique_ptr<nrl_arena, deleter>;
using config = std::unique_ptr<nrl_config, deleter>;
using run = std::unique_ptr<nrl_run, deleter>;

inline arena make_arena()
{
    return arena(nrl_arena_create());
}

/* ---- tensors: operations that throw ---- */

inline nrl_tensor *column(nrl_ctx *ctx, const nrl_batch *batch, const char *name)
{
    nrl_tensor *y;
    check(nrl_batch_column(ctx, batch, name, &y));
    return y;
}

inline nrl_tensor *unary(nrl_ctx *ctx, nrl_unary op, nrl_tensor *x, double alpha = 0, double beta = 0)
{
    nrl_tensor *y;
    check(nrl_op_unary(ctx, op, x, alpha, beta, &y));
    return y;
}

inline nrl_tensor *binary(nrl_ctx *ctx, nrl_binary op, nrl_tensor *a, nrl_tensor *b)
{
    nrl_tensor *y;
    check(nrl_op_binary(ctx, op, a, b, &y));
    return y;
}

inline nrl_tensor *sum(nrl_ctx *ctx, nrl_tensor *x)
{
    nrl_tensor *y;
    check(nrl_op_sum(ctx, x, &y));
    return y;
}

inline nrl_tensor *detach(nrl_ctx *ctx, nrl_tensor *x)
{
    nrl_tensor *y;
    check(nrl_op_detach(ctx, x, &y));
    return y;
}

/* ---- tables ---- */

namespace detail
{
template <class T, class = void> struct rows_of {
    static constexpr const nrl_option *rows = nullptr;
    static constexpr uint32_t n = 0;
};
template <class T> struct rows_of<T, std::void_t<decltype(T::rows)>> {
    static constexpr const nrl_option *rows = T::rows;
    static constexpr uint32_t n = sizeof(T::rows) / sizeof(nrl_option);
};

template <class T, class = void> struct metrics_of {
    static constexpr const nrl_metric *metrics = nullptr;
};
template <class T> struct metrics_of<T, std::void_t<decltype(T::metrics)>> {
    static constexpr const nrl_metric *metrics = T::metrics;
};

template <class T> constexpr nrl_plugin header(uint32_t kind, uint32_t size)
{
    nrl_plugin p{};
    p.abi = NRL_ABI;
    p.build = NRL_BUILD;
    p.kind = kind;
    p.size = size;
    p.n_options = rows_of<T>::n;
    p.option_size = sizeof(nrl_option);
    p.options_size = sizeof(typename T::options);
    p.name = T::name;
    p.version = T::version;
    p.summary = T::summary;
    p.options = rows_of<T>::rows;
    return p;
}

template <class T> nrl_status create(const void *options, void **self)
{
    return guard([&] { *self = new T(*static_cast<const typename T::options *>(options)); });
}

template <class T> void destroy(void *self)
{
    delete static_cast<T *>(self);
}

template <class T> nrl_status logger_open(const void *options, const nrl_logger_run *run, void **self)
{
    return guard([&] { *self = new T(*static_cast<const typename T::options *>(options), *run); });
}

template <class T> nrl_status logger_write(void *self, const nrl_record *record)
{
    return guard([&] { static_cast<T *>(self)->write(*record); });
}

template <class T> void algorithm_weight(void *self, const nrl_batch *batch, double *weight)
{
    static_cast<T *>(self)->weight(batch, weight);
}

template <class T> nrl_status algorithm_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    return guard([&] { static_cast<T *>(self)->loss(ctx, batch, sums); });
}

template <class T>
nrl_status optimizer_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    return guard([&] {
        for (int64_t i = 0; i < n; i++)
            static_cast<T *>(self)->update(ctx, *nrl_slice_at(slices, i, step), *step);
    });
}
} // namespace detail

/* T(const options &); static constexpr const char *const needs[] ending in nullptr; static constexpr uint32_t n_terms;
 * static constexpr bool tokenwise; void weight(const nrl_batch *, double *) noexcept;
 * void loss(nrl_ctx *, const nrl_batch *, nrl_tensor **sums). A `metrics` array belongs to nrl_metric_add. */
template <class T> constexpr nrl_algorithm algorithm()
{
    nrl_algorithm t{};
    t.plugin = detail::header<T>(NRL_KIND_ALGORITHM, sizeof t);
    t.needs = T::needs;
    t.metrics = detail::metrics_of<T>::metrics;
    t.n_terms = T::n_terms;
    t.tokenwise = T::tokenwise;
    t.create = detail::create<T>;
    t.destroy = detail::destroy<T>;
    t.weight = detail::algorithm_weight<T>;
    t.loss = detail::algorithm_loss<T>;
    return t;
}

/* T(const options &); static constexpr const char *const states[], names of f32 tensors with one entry an element;
 * void update(nrl_ctx *, nrl_slice &, const nrl_step_params &). Slices are divided anywhere. */
template <class T> constexpr nrl_optimizer optimizer()
{
    nrl_optimizer t{};
    t.plugin = detail::header<T>(NRL_KIND_OPTIMIZER, sizeof t);
    t.plugin.metrics = detail::metrics_of<T>::metrics;
    t.granularity = NRL_OPTIMIZER_ELEMENT;
    t.n_states = sizeof(T::states) / sizeof(*T::states);
    t.state_names = T::states;
    t.create = detail::create<T>;
    t.destroy = detail::destroy<T>;
    t.update = detail::optimizer_update<T>;
    return t;
}

/* T(const options &, const nrl_logger_run &); void write(const nrl_record &). The destructor closes it. */
template <class T> constexpr nrl_logger logger()
{
    nrl_logger t{};
    t.plugin = detail::header<T>(NRL_KIND_LOGGER, sizeof t);
    t.plugin.metrics = detail::metrics_of<T>::metrics;
    t.open = detail::logger_open<T>;
    t.write = detail::logger_write<T>;
    t.close = detail::destroy<T>;
    return t;
}

} // namespace nrl

#define NRL_EXPORT_CLASS(kind, T)                                                                                      \
    static const auto nrl_class_table = nrl::kind<T>();                                                                \
    NRL_EXPORT(nrl_class_table)

#endif
