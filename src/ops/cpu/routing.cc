#include "ops/cpu/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace penstock {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The logits' largest and the sum of exp(logit - largest).
struct Softmax {
  float highest, sum = 0.0f;
  Softmax(const float* logits, int n) : highest(*std::max_element(logits, logits + n)) {
    for (int e = 0; e < n; ++e) sum += std::exp(logits[e] - highest);
  }
  float operator()(float logit) const { return std::exp(logit - highest) / sum; }
};

class Router {
 public:
  Router(const float* logits, int n_experts, const ExpertRouting& routing,
         const float* selection_bias)
      : logits_(logits),
        n_(n_experts),
        group_size_(n_experts / routing.n_groups),
        routing_(routing),
        bias_(selection_bias),
        softmax_(logits, n_experts),
        merits_(memory_of_merits(n_experts)) {
    for (int e = 0; e < n_; ++e)
      merits_[e] = bias_ == nullptr && routing.n_groups == 1 ? logits_[e] : biased(e);
    if (routing.n_groups > 1) choose_groups();
  }

  void choose(ExpertChoice* out) const {
    float sum = routing_.sum_eps;
    for (int k = 0; k < routing_.n_active; ++k) {
      int best = -1;
      for (int e = 0; e < n_; ++e) {
        if ((best < 0 || merits_[e] > merits_[best]) && !is_among({out, out + k}, e)) best = e;
      }
      const bool mixes = routing_.score == RouterScore::kSparseMixer;
      out[k] = {best, mixes ? share_of_near(best, {out, out + k}) : score(best)};
      sum += out[k].weight;
    }
    scale_weights(sum, out);
  }

  void weigh(const float* chosen, ExpertChoice* out) const {
    float sum = routing_.sum_eps;
    for (int k = 0; k < routing_.n_active; ++k) {
      const auto expert = static_cast<int>(chosen[k]);
      out[k] = {expert, score(expert)};
      sum += out[k].weight;
    }
    scale_weights(sum, out);
  }

 private:
  void scale_weights(float sum, ExpertChoice* out) const {
    const float factor =
        routing_.scale / (routing_.normalize ? std::max(sum, routing_.sum_min) : 1.0f);
    for (int k = 0; k < routing_.n_active; ++k)
      out[k].weight *= factor, out[k].expert /= routing_.per_matrix;
  }
  static bool is_among(std::span<const ExpertChoice> taken, int e) {
    return std::ranges::find(taken, e, &ExpertChoice::expert) != taken.end();
  }
  float share_of_near(int best, std::span<const ExpertChoice> taken) const {
    float sum = 0.0f;
    for (int e = 0; e < n_; ++e) {
      const float below = logits_[best] - logits_[e],
                  unit = std::max(std::abs(logits_[e]), logits_[best]);
      if (!is_among(taken, e) && !(below / unit > 2 * routing_.jitter)) sum += std::exp(-below);
    }
    return 1.0f / sum;
  }
  float score(int e) const {
    switch (const float x = logits_[e]; routing_.score) {
      case RouterScore::kSigmoid: return 1.0f / (1.0f + std::exp(-x));
      case RouterScore::kSqrtSoftplus:
        return std::sqrt(std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
      default: return softmax_(x);
    }
  }
  float biased(int e) const {
    return (routing_.by_logit ? logits_[e] : score(e)) + (bias_ == nullptr ? 0.0f : bias_[e]);
  }

  // The sum of a group's best scores.
  float group_score(int group) const {
    float best = kNever, second = kNever;
    for (int e = group * group_size_; e < (group + 1) * group_size_; ++e) {
      const float s = merits_[e];
      second = std::max(second, std::min(best, s));
      best = std::max(best, s);
    }
    return best + (routing_.group_top > 1 && group_size_ > 1 ? second : 0.0f);
  }

  void choose_groups() {
    float scores[kMaxExpertGroups];
    for (int g = 0; g < routing_.n_groups; ++g) scores[g] = group_score(g);
    for (int g = 0; g < routing_.n_groups; ++g) {
      int better = 0;
      for (int other = 0; other < routing_.n_groups; ++other)
        better += scores[other] > scores[g] || (scores[other] == scores[g] && other < g) ? 1 : 0;
      if (better >= routing_.n_active_groups)
        std::fill_n(merits_ + g * group_size_, group_size_,
                    routing_.left_out_as_zero ? 0.0f : kNever);
    }
  }

  // Returns memory of this thread, so that a step allocates nothing.
  static float* memory_of_merits(int n_experts) {
    thread_local std::vector<float> memory;
    memory.resize(std::max(memory.size(), static_cast<size_t>(n_experts)));
    return memory.data();
  }

  const float* logits_;
  int n_, group_size_;
  const ExpertRouting& routing_;
  const float* bias_;
  Softmax softmax_;
  // Values by which experts are chosen: scores with the bias, or, without bias and groups, the
  // logits themselves, since different logits may round to one score.
  float* merits_;  // [n_experts]
};

}  // namespace

void choose_experts(const float* logits, int n_experts, const ExpertRouting& routing,
                    const float* selection_bias, ExpertChoice* out) {
  Router(logits, n_experts, routing, selection_bias).choose(out);
}

void weigh_experts(const float* logits, int n_experts, const ExpertRouting& routing,
                   const float* chosen, ExpertChoice* out) {
  Router(logits, n_experts, routing, nullptr).weigh(chosen, out);
}

}  // namespace penstock
