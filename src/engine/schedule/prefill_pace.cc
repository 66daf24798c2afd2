#include "engine/schedule/prefill_pace.h"

#include <algorithm>

namespace penstock {
namespace {

// Time limit of a mixed step, as a multiple of a decode step with all places filled. Few prompt
// tokens are inefficient in kernels that work on tiles: at a factor of 2 a token may cost 50 % more
// than in a step of prompts only, at 3 only 10 %.
constexpr double kStretch = 2.8;
// Reduction of the limit while places are free and prompts are few: latency of prefill matters less
// then, and a mixed step would stand out between many steps without prompts.
constexpr double kCalm = 0.7;
constexpr int kLeast = 16;
constexpr int kUnknown = 64;    // tokens, before any prompt was measured
constexpr int kMostMixed = 64;  // mixed steps until decoding alone is measured again
constexpr double kMemory = 0.85;

}  // namespace

double PrefillPace::decode_seconds(int rows) const {
  constexpr double kPerRow = 0.05;  // cost of a row relative to the step, if one size is known
  return level_.value() * shapes_.level() * shapes_.shape(std::max(rows, 1), kPerRow);
}

double PrefillPace::token_seconds() const { return rows_ > 0 ? seconds_ / rows_ : alone_; }

bool PrefillPace::calm(int n_decoding, int n_prompts) const {
  return n_decoding + n_prompts < n_places_ && n_prompts <= std::max(2, n_decoding / 2);
}

int PrefillPace::limit(int n_decoding, int n_prompts) {
  if (n_decoding == 0) return limit_ = max_tokens_;
  if (level_.empty() || n_mixed_ >= kMostMixed || n_decoding >= 2 * largest_) return limit_ = 0;
  const double per_token = token_seconds();
  if (per_token <= 0) return limit_ = std::min(kUnknown, max_tokens_);
  const int n_full = std::max(n_decoding, std::min(n_places_, n_decoding + n_prompts));
  const double tokens =
      (kStretch * decode_seconds(n_full) - decode_seconds(n_decoding)) / per_token;
  const double share = calm(n_decoding, n_prompts) ? kCalm : 1;
  return limit_ = static_cast<int>(
             share * std::clamp<double>(tokens, std::min(kLeast, max_tokens_), max_tokens_));
}

void PrefillPace::note(int n_decoding, int n_prompt, double seconds) {
  // Steps of fewer prompt tokens measure the fixed cost of a step instead of the tokens'.
  constexpr int kWhole = 64;
  if (n_prompt == 0) {
    n_mixed_ = 0;
    if (++n_alone_ == 1) return;  // first steps are slower than later ones
    largest_ = std::max(largest_, n_decoding);
    shapes_.add(n_decoding, seconds);
    level_.add(seconds / (shapes_.level() * shapes_.shape(n_decoding, 0)));
    return;
  }
  if (n_decoding == 0) {
    if (n_prompt < kWhole) return;
    const double each = seconds / n_prompt;
    alone_ = alone_ <= 0 ? each : kMemory * alone_ + (1 - kMemory) * each;
    return;
  }
  ++n_mixed_;
  if (level_.empty() || 2 * n_prompt < limit_) return;
  double added = std::max(0.0, seconds - decode_seconds(n_decoding));
  // limits disturbed measurements
  if (rows_ > 0) added = std::min(added, 2 * n_prompt * token_seconds());
  seconds_ = kMemory * seconds_ + std::max(added, 1e-9 * n_prompt);
  rows_ = kMemory * rows_ + n_prompt;
}

}  // namespace penstock
