/*
 * focal_cpp.cpp - an algorithm in C++ (NRL_KIND_ALGORITHM): the focal loss -(1 - p)^gamma log p (Lin et al. 2017),
 * which trains less on tokens that the model predicts already.
 */
#include <nrl/nrl.hpp>

namespace
{
class focal
{
  public:
    static constexpr const char *name = "focal_cpp", *version = "0.1", *summary = "focal loss, written in C++";
    struct options {
        double gamma;
    };
    static constexpr nrl_option rows[] = {
        NRL_OPT_F64(options, gamma, "2", 0, 10, "how much less a token of high probability counts; 0: cross entropy")};
    static constexpr const char *const needs[] = {"logps", nullptr};
    static constexpr uint32_t n_terms = 1;
    static constexpr bool tokenwise = true;

    explicit focal(const options &o) : gamma_(o.gamma) {}

    void weight(const nrl_batch *batch, double *weight) noexcept
    {
        weight[0] = nrl_batch_count(batch, "answer_tokens");
    }

    /* sums[0] = -sum_i w_i (1 - p_i)^gamma log p_i. The power is exp(gamma log(1 - p)), with 1 - p at least 1e-6. */
    void loss(nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
    {
        nrl_tensor *logps = nrl::column(ctx, batch, "logps"); /* [P] f32 */
        nrl_tensor *p = nrl::unary(ctx, NRL_UNARY_EXP, logps);
        nrl_tensor *rest = nrl::unary(ctx, NRL_UNARY_AFFINE, p, -1, 1 + 1e-6);
        nrl_tensor *log_rest = nrl::unary(ctx, NRL_UNARY_LOG, rest);
        nrl_tensor *power = nrl::unary(ctx, NRL_UNARY_EXP, nrl::unary(ctx, NRL_UNARY_AFFINE, log_rest, gamma_, 0));
        nrl_tensor *each = nrl::binary(ctx, NRL_BINARY_MUL, power, logps);
        each = nrl::binary(ctx, NRL_BINARY_MUL, each, nrl::column(ctx, batch, "weights"));
        sums[0] = nrl::unary(ctx, NRL_UNARY_NEG, nrl::sum(ctx, each));
    }

  private:
    double gamma_;
};
} // namespace

NRL_EXPORT_CLASS(algorithm, focal)
