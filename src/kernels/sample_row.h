// The description of one draw from one row of logits as plain data, without the logits. Devices
// (Ops::sample) and the host (sampling/sampler.h) draw the same token, bit for bit, from the same
// logits.
#pragma once
#include <cstdint>

#include "penstock/types.h"

namespace penstock {

// A change of one logit. Edits are applied phase by phase; edits of one phase change different
// tokens, or set the same value.
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

// The steps of a draw, in order. REQUIRES: pointers are valid until the draw is made.
struct SampleRow {
  // row of the logits; several draws may use one row
  int32_t row = 0;
  // Results wanted of the unchanged row, as natural logarithms of probabilities.
  bool report = false;          // SampleResult::logprob and rank
  bool likeliest = false;       // SampleResult::likeliest
  int32_t n_top = 0;            // most likely tokens, at most kMostTop
  TokenLogprob* top = nullptr;  // [n_top] in order
  // 1. Tokens outside the mask become impossible. [ceil(vocab_size / 32)], bit per token; null: all
  //    are inside.
  const uint32_t* mask = nullptr;
  // 2. Edits, in their order.
  const LogitEdit* edits = nullptr;
  int32_t n_edits = 0;
  // 3. Temperature; 0 chooses the most likely token (the lowest id of equals) and ends here.
  float temperature = 0;
  // 4. Filters, each applied to the result of the previous one: tokens at least min_p as likely as
  // the most likely one; the top_k most likely (0: all); the fewest most likely whose probabilities
  // sum to top_p.
  float min_p = 0;
  int32_t top_k = 0;
  float top_p = 1;
  // 5. The token at which the cumulative distribution reaches u in [0, 1).
  double u = 0;

  static constexpr int kMostTop = 64;
};

struct SampleResult {
  TokenId token = kNoToken;  // kNoToken: no token is possible
  float logprob = 0;
  int32_t rank = 0;
  float likeliest = 0;  // probability of the most likely token
  // Tokens in `top`: fewer than wanted if fewer are possible.
  int32_t n_top = 0;
  // False: the draw is left to the host (a device may consider the most likely tokens only).
  bool drawn = false;
};

}  // namespace penstock
