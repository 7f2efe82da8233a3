/*
 * signum_cpp.cpp - an optimizer in C++ (NRL_KIND_OPTIMIZER): the sign of a running mean of gradients (Bernstein et al.
 * 2018), with weight decay apart from the gradient. It reports how many of its elements move up.
 *   m = beta m + (1 - beta) g;  w -= lr (wd w + sign(m))
 */
#include <cmath>
#include <nrl/nrl.hpp>

namespace
{
class signum
{
  public:
    static constexpr const char *name = "signum_cpp", *version = "0.1", *summary = "sign of momentum, written in C++";
    struct options {
        double beta, weight_decay;
    };
    static constexpr nrl_option rows[] = {
        NRL_OPT_F64(options, beta, "0.9", 0, 1, "how much of the running mean stays each step"),
        NRL_OPT_F64(options, weight_decay, "0", 0, 1, "decay per unit of learning rate")};
    static constexpr const char *const states[] = {"momentum"};
    static constexpr nrl_metric metrics[] = {{"signum_rises", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE}, {}};

    explicit signum(const options &o) : o_(o) {}

    /* On host memory; a device would need operations instead of this loop. */
    void update(nrl_ctx *ctx, nrl_slice &s, const nrl_step_params &step)
    {
        if (!nrl_ctx_host_memory(ctx)) throw nrl::error(NRL_ERR_PLUGIN, "signum_cpp works on a CPU only");
        float *w = static_cast<float *>(nrl_tensor_mat(s.master).data);
        float *m = static_cast<float *>(nrl_tensor_mat(s.states[0]).data);
        const float *g = static_cast<const float *>(nrl_tensor_mat(s.grad).data);
        const double decay = s.decay ? step.lr * o_.weight_decay : 0;
        int64_t rises = 0;
        for (int64_t i = 0; i < s.n; i++) {
            const double mean = o_.beta * m[i] + (1 - o_.beta) * g[i] * step.grad_scale;
            m[i] = static_cast<float>(mean);
            const double sign = mean > 0 ? 1 : mean < 0 ? -1 : 0;
            w[i] = static_cast<float>(w[i] - decay * w[i] - step.lr * sign);
            rises += sign < 0;
        }
        if (s.work) nrl::check(nrl_master_round(ctx, s.master, s.work));
        nrl_metric_report_f64(metrics, static_cast<double>(rises),
                              static_cast<double>(s.n)); /* outside a run: no one hears */
    }

  private:
    options o_;
};
} // namespace

NRL_EXPORT_CLASS(optimizer, signum)
