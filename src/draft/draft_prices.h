// What guesses cost, and how many of them pay.
//
// Everything is counted in tokens: the price of something is the number of tokens that are generated
// elsewhere in the time that it takes. A guess that is kept with probability r is worth r tokens, so a draft
// of k guesses with the chances r1 >= r2 >= … gains r1 + … + rk - checking[k] - k * pass.
#pragma once
#include <array>
#include <span>

namespace penstock {

// Owned by whoever asks for drafts; checking points into its memory.
struct DraftPrices {
  std::span<const float> checking;  // [k]: a step of the target that checks k guesses more; [0] is 0
  float pass = 0;                   // one more pass of a drafter that guesses one token per pass

  int max_nodes() const { return static_cast<int>(checking.size()) - 1; }
};

// How many of guesses that are made already are to be checked: the length of the first part of `reach` that
// gains most, 0 where none gains. reach[i]: chance that guess i is kept, with all that it depends on. The
// shortest of equals.
int nodes_worth(std::span<const float> reach, const DraftPrices& prices);

// The best length of a chain each of whose guesses is kept with `chance` when all before it are; 0 where none
// gains.
int best_length(float chance, const DraftPrices& prices, int max_nodes);

// After n guesses, all of which are kept with probability `reach`: whether another pass gains, when each
// further guess is kept with `chance`.
bool worth_another(int n, float reach, float chance, const DraftPrices& prices, int max_nodes);

// How often guesses were right, by the probability that the drafter itself gave them.
class Confidence {
 public:
  // The chance that a guess with the drafter's probability p is right when all before it are.
  float right(float p) const { return rate_[static_cast<size_t>(bucket(p))]; }
  float mean() const { return mean_; }
  // A chain of guesses with the probabilities p, the first n_accepted of which were right.
  void learn(std::span<const float> p, int n_accepted);
  // The same for guesses whose probability says nothing.
  void learn_mean(int n_guesses, int n_accepted);

 private:
  static constexpr int kBuckets = 10;
  static int bucket(float p) { return p >= 1 ? kBuckets - 1 : p > 0 ? static_cast<int>(p * kBuckets) : 0; }

  std::array<float, kBuckets> rate_ = {0.05f, 0.15f, 0.25f, 0.35f, 0.45f, 0.55f, 0.65f, 0.75f, 0.85f, 0.95f};
  std::array<int, kBuckets> seen_{};
  float mean_ = 0.65f;
  int n_seen_ = 0;
};

}  // namespace penstock
