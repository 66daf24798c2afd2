// Edits that a sequence's history makes to its next logits (masks, biases, penalties): collected by
// the sampler's steps, applied to the row of logits on the host or on a device.
#pragma once
#include <limits>
#include <span>
#include <vector>

#include "kernels/sample_row.h"

namespace penstock {

// Logit of a token that may not be drawn.
inline constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Keeps its memory between uses.
class LogitEdits {
 public:
  void reserve(int n) { list_.reserve(n); }
  void clear();

  // Makes all tokens outside the mask impossible; several masks are intersected. A single mask is
  // kept by reference.
  void allow(std::span<const uint32_t> mask);
  // Makes all tokens but this one impossible; earlier masks and edits are dropped.
  void allow_only(TokenId token, int vocab_size);
  // Returns memory for a mask of n_words, all bits 0, to be filled in and passed to allow(); valid
  // until the next call.
  std::span<uint32_t> new_mask(int n_words);

  // Begins a new phase: edits added from now on are applied after those added before.
  void next_phase() { phase_ += list_.empty() || list_.back().phase != phase_ ? 0 : 1; }
  void set(TokenId token, float value) {
    list_.push_back({token, LogitEdit::Kind::kSet, phase_, value});
  }
  void add(TokenId token, float value) {
    list_.push_back({token, LogitEdit::Kind::kAdd, phase_, value});
  }
  void penalize(TokenId token, float by) {
    list_.push_back({token, LogitEdit::Kind::kPenalize, phase_, by});
  }

  std::span<const uint32_t> mask() const { return mask_; }  // empty: all tokens
  std::span<const LogitEdit> list() const { return list_; }

 private:
  std::vector<LogitEdit> list_;
  std::span<const uint32_t> mask_;
  std::vector<uint32_t> new_mask_, own_mask_;
  uint16_t phase_ = 0;
};

// Applies the mask and the edits of `row` to the logits: steps 1 and 2 of SampleRow.
void apply_edits(const SampleRow& row, std::span<float> logits);

}  // namespace penstock
