// One draw from one row of logits as plain data: all that is to be known of a sequence but its logits. A device draws
// from this (Ops::sample), and so does the host (sampling/sampler.h): from the same logits the same token, bit for bit.
#pragma once
#include <cstdint>

#include "penstock/types.h"

namespace penstock {

// Changes one logit. Edits are made phase by phase; those of one phase are for different tokens, or set the same value.
struct LogitEdit {
  enum class Kind : uint16_t {
    kSet,       // = value
    kAdd,       // + value
    kPenalize,  // / value if it is above 0, else * value
  };
  TokenId token = 0;
  Kind kind = Kind::kSet;
  uint16_t phase = 0;  // ascending
  float value = 0;
};

// The steps in their order. Pointers stay valid until the draw is made.
struct SampleRow {
  int32_t row = 0;  // of the logits; several draws may be made from one
  // What the row as it comes is asked for, by the natural logarithm of its probabilities.
  bool report = false;          // SampleResult::logprob and rank
  bool likeliest = false;       // SampleResult::likeliest
  int32_t n_top = 0;            // most likely tokens, at most kMostTop
  TokenLogprob* top = nullptr;  // [n_top] in order
  // 1. Tokens outside the mask become impossible. [ceil(vocab_size / 32)], bit per token; null: all are inside.
  const uint32_t* mask = nullptr;
  // 2. Edits, in their order.
  const LogitEdit* edits = nullptr;
  int32_t n_edits = 0;
  // 3. Temperature; 0 takes the likeliest token (of equals the lowest id) and ends here.
  float temperature = 0;
  // 4. Filters, each on what the one before left: tokens at least min_p as likely as the likeliest; the top_k most likely
  // (0: all); the fewest most likely that together have top_p.
  float min_p = 0;
  int32_t top_k = 0;
  float top_p = 1;
  // 5. Where the cumulative distribution reaches u in [0, 1).
  double u = 0;

  static constexpr int kMostTop = 64;
};

struct SampleResult {
  TokenId token = kNoToken;  // kNoToken: no token is possible
  float logprob = 0;
  int32_t rank = 0;
  float likeliest = 0;  // probability of the most likely token
  int32_t n_top =
      0;  // tokens in `top`: fewer than asked for where the vocabulary has fewer that are possible
  bool drawn = false;  // false: left to the host (a device may look at the most likely tokens only)
};

}  // namespace penstock
