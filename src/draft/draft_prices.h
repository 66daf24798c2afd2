// Prices of draft tokens, and how many of them pay.
//
// Everything is counted in tokens: the price of something is the number of tokens that could be
// generated in the time that it takes. A draft token that is accepted with probability r is worth r
// tokens, so a draft of k tokens with the probabilities r1 >= r2 >= … gains r1 + … + rk -
// checking[k] - k * pass.
#pragma once
#include <array>
#include <span>

namespace penstock {

// `checking` points into memory of the caller that asks for drafts.
struct DraftPrices {
  // [k]: price of verifying k draft tokens in a step of the target; [0] is 0
  std::span<const float> checking;
  // price of a pass of a drafter that makes one token per pass
  float pass = 0;

  int max_nodes() const { return static_cast<int>(checking.size()) - 1; }
};

// Returns how many of the draft tokens that were made already to verify: the length of the prefix
// of `reach` that gains most, the shortest among equals; 0 when none gains. reach[i]: probability
// that token i and all tokens that it depends on are accepted.
int nodes_worth(std::span<const float> reach, const DraftPrices& prices);

// Returns the best length of a chain each of whose tokens is accepted with probability `chance`
// when all before it are; 0 when none gains.
int best_length(float chance, const DraftPrices& prices, int max_nodes);

// Whether another pass gains after n draft tokens, all of which are accepted with probability
// `reach`, when each further token is accepted with probability `chance`.
bool worth_another(int n, float reach, float chance, const DraftPrices& prices, int max_nodes);

// Calibration of a drafter: acceptance rates of draft tokens by the probability that the drafter
// gave them.
class Confidence {
 public:
  // Probability that a token with the drafter's probability p is accepted when all before it are.
  float right(float p) const { return rate_[static_cast<size_t>(bucket(p))]; }
  float mean() const { return mean_; }
  // Learns from a chain of tokens with the drafter's probabilities p, the first n_accepted of which
  // were accepted.
  void learn(std::span<const float> p, int n_accepted);
  // Learns from a chain of tokens without probabilities; changes mean() only.
  void learn_mean(int n_guesses, int n_accepted);

 private:
  static constexpr int kBuckets = 10;
  static int bucket(float p) {
    return p >= 1 ? kBuckets - 1 : p > 0 ? static_cast<int>(p * kBuckets) : 0;
  }

  std::array<float, kBuckets> rate_ = {0.05f, 0.15f, 0.25f, 0.35f, 0.45f,
                                       0.55f, 0.65f, 0.75f, 0.85f, 0.95f};
  std::array<int, kBuckets> seen_{};
  float mean_ = 0.65f;
  int n_seen_ = 0;
};

}  // namespace penstock
