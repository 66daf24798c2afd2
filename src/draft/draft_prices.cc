#include "draft/draft_prices.h"

#include <algorithm>

namespace penstock {
namespace {

// Moves an average towards a new value: quickly at first, when what it began with is a guess,
// slowly later.
void blend(float& average, int& n_seen, float value) {
  constexpr int kPriorWeight = 6, kMostSeen = 50;
  n_seen = std::min(n_seen + 1, kMostSeen);
  average += (value - average) / static_cast<float>(n_seen + kPriorWeight);
}

}  // namespace

int nodes_worth(std::span<const float> reach, const DraftPrices& prices) {
  const int most = std::min(static_cast<int>(reach.size()), prices.max_nodes());
  int best = 0;
  float kept = 0, gain = 0;
  for (int n = 1; n <= most; ++n) {
    kept += reach[static_cast<size_t>(n) - 1];
    const float here = kept - prices.checking[static_cast<size_t>(n)];
    if (here > gain) best = n, gain = here;
  }
  return best;
}

int best_length(float chance, const DraftPrices& prices, int max_nodes) {
  int best = 0;
  float kept = 0, reach = 1, gain = 0;
  for (int n = 1; n <= std::min(max_nodes, prices.max_nodes()); ++n) {
    kept += reach *= chance;
    const float here =
        kept - prices.checking[static_cast<size_t>(n)] - prices.pass * static_cast<float>(n);
    if (here > gain) best = n, gain = here;
  }
  return best;
}

bool worth_another(int n, float reach, float chance, const DraftPrices& prices, int max_nodes) {
  const int most = std::min(max_nodes, prices.max_nodes());
  if (n >= most) return false;
  const float paid = prices.checking[static_cast<size_t>(n)];
  float kept = 0;
  for (int more = 1; n + more <= most; ++more) {
    kept += reach *= chance;
    const float price = prices.checking[static_cast<size_t>(n + more)] - paid +
                        prices.pass * static_cast<float>(more);
    if (kept > price) return true;
  }
  return false;
}

void Confidence::learn(std::span<const float> p, int n_accepted) {
  const int tested = std::min(n_accepted + 1, static_cast<int>(p.size()));
  for (int i = 0; i < tested; ++i) {
    const auto place = static_cast<size_t>(bucket(p[static_cast<size_t>(i)]));
    blend(rate_[place], seen_[place], i < n_accepted ? 1.0f : 0.0f);
  }
  learn_mean(static_cast<int>(p.size()), n_accepted);
}

void Confidence::learn_mean(int n_guesses, int n_accepted) {
  for (int i = 0; i < std::min(n_accepted + 1, n_guesses); ++i)
    blend(mean_, n_seen_, i < n_accepted ? 1.0f : 0.0f);
}

}  // namespace penstock
