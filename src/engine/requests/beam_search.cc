#include "engine/requests/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace penstock {

BeamSearch::BeamSearch(BeamOptions options) : options_(std::move(options)), live_(1) {}

// Returns a number of candidates such that `width` remain even if all end tokens are among them.
int BeamSearch::n_candidates() const {
  return std::max(2, 1 + static_cast<int>(options_.end_tokens.size())) * options_.width;
}

void BeamSearch::offer(int beam, std::span<const TokenLogprob> candidates) {
  Beam& from = live_[beam];
  PENSTOCK_CHECK(!from.offered);
  from.offered = true;
  ++n_offered_;
  for (const TokenLogprob& each : candidates) {
    if (!std::isfinite(each.logprob)) continue;
    if (length_ < options_.min_tokens && is_end(each.token)) continue;
    candidates_.push_back({beam, each.token, each.logprob, from.sum + double{each.logprob}});
  }
}

bool BeamSearch::is_end(TokenId token) const {
  return std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end();
}

double BeamSearch::score(double sum, int length) const {
  return sum / std::pow(static_cast<double>(length), options_.length_penalty);
}

void BeamSearch::end(const Candidate& candidate, bool by_token) {
  const Beam& from = live_[candidate.beam];
  EndedBeam hypothesis{from.tokens, from.logprobs, score(candidate.sum, length_ + 1), by_token};
  hypothesis.tokens.push_back(candidate.token);
  hypothesis.logprobs.push_back(candidate.logprob);
  const auto place =
      std::ranges::upper_bound(ended_, hypothesis.score, std::greater<>(), &EndedBeam::score);
  ended_.insert(place, std::move(hypothesis));
  if (static_cast<int>(ended_.size()) > options_.width) ended_.pop_back();
}

void BeamSearch::go_on(std::span<const Candidate> chosen) {
  std::vector<Beam> next;
  parents_.clear();
  tokens_.clear();
  for (const Candidate& candidate : chosen) {
    Beam& beam = next.emplace_back(live_[candidate.beam]);
    beam.tokens.push_back(candidate.token);
    beam.logprobs.push_back(candidate.logprob);
    beam.sum = candidate.sum;
    beam.offered = false;
    parents_.push_back(candidate.beam);
    tokens_.push_back(candidate.token);
  }
  live_ = std::move(next);
}

bool BeamSearch::advance() {
  PENSTOCK_CHECK(complete());
  const size_t width = options_.width;
  std::ranges::stable_sort(candidates_, [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
  });
  if (candidates_.size() > static_cast<size_t>(n_candidates())) candidates_.resize(n_candidates());
  const bool longest = length_ + 1 >= options_.max_tokens;
  std::vector<Candidate> chosen;
  for (size_t rank = 0; rank < candidates_.size(); ++rank) {
    const Candidate& candidate = candidates_[rank];
    const bool by_token = is_end(candidate.token);
    if (!by_token && !longest) {
      if (chosen.size() < width) chosen.push_back(candidate);
    } else if (rank < width) {  // a beam that ends with a lower rank is dropped
      end(candidate, by_token);
    }
  }
  candidates_.clear();
  n_offered_ = 0;
  ++length_;
  if (chosen.empty()) return false;
  go_on(chosen);
  if (ended_.size() < width) return true;
  return !options_.early_stopping && score(live_[0].sum, length_) > ended_.back().score;
}

}  // namespace penstock
