// What a sequence's history does to its next logits: collected by the sampler's steps, applied to the row by the host or
// by a device.
#pragma once
#include <limits>
#include <span>
#include <vector>

#include "kernels/sample_row.h"

namespace penstock {

inline constexpr float kImpossible =
    -std::numeric_limits<float>::infinity();  // the logit of what may not be drawn

// Keeps its memory between uses.
class LogitEdits {
 public:
  void reserve(int n) { list_.reserve(n); }
  void clear();

  // Only tokens inside the mask stay possible, of several masks those inside all. The mask is kept by reference unless
  // there are several.
  void allow(std::span<const uint32_t> mask);
  // Nothing but the token is possible, whatever was said before.
  void allow_only(TokenId token, int vocab_size);
  // Memory for a mask of n_words, all bits 0, to be filled in and allowed; one at a time.
  std::span<uint32_t> new_mask(int n_words);

  // The edits from here on come after those before.
  void next_phase() { phase_ += list_.empty() || list_.back().phase != phase_ ? 0 : 1; }
  void set(TokenId token, float value) { list_.push_back({token, LogitEdit::Kind::kSet, phase_, value}); }
  void add(TokenId token, float value) { list_.push_back({token, LogitEdit::Kind::kAdd, phase_, value}); }
  void penalize(TokenId token, float by) { list_.push_back({token, LogitEdit::Kind::kPenalize, phase_, by}); }

  std::span<const uint32_t> mask() const { return mask_; }  // empty: all tokens
  std::span<const LogitEdit> list() const { return list_; }

 private:
  std::vector<LogitEdit> list_;
  std::span<const uint32_t> mask_;
  std::vector<uint32_t> new_mask_, own_mask_;
  uint16_t phase_ = 0;
};

// Steps 1 and 2 of a draw.
void apply_edits(const SampleRow& row, std::span<float> logits);

}  // namespace penstock
