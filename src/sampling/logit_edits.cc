#include "sampling/logit_edits.h"

#include <algorithm>

namespace penstock {
namespace {

void apply_mask(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t word = 0; word * 32 < logits.size(); ++word) {
    const uint32_t bits = mask[word];
    if (bits == 0xffffffffu) continue;
    const size_t end = std::min(word * 32 + 32, logits.size());
    for (size_t id = word * 32; id < end; ++id) {
      if ((bits >> (id % 32) & 1u) == 0) logits[id] = kImpossible;
    }
  }
}

}  // namespace

void LogitEdits::clear() {
  list_.clear();
  mask_ = {};
  phase_ = 0;
}

void LogitEdits::allow(std::span<const uint32_t> mask) {
  if (mask_.empty()) {
    mask_ = mask;
    return;
  }
  if (mask_.data() != own_mask_.data()) own_mask_.assign(mask_.begin(), mask_.end());
  for (size_t i = 0; i < own_mask_.size(); ++i) own_mask_[i] &= mask[i];
  mask_ = own_mask_;
}

void LogitEdits::allow_only(TokenId token, int vocab_size) {
  list_.clear();
  phase_ = 0;
  own_mask_.assign((vocab_size + 31) / 32, 0);
  own_mask_[token / 32] = 1u << (token % 32);
  mask_ = own_mask_;
  set(token, 0);
}

std::span<uint32_t> LogitEdits::new_mask(int n_words) {
  new_mask_.assign(n_words, 0);
  return new_mask_;
}

void apply_edits(const SampleRow& row, std::span<float> logits) {
  if (row.mask != nullptr) apply_mask({row.mask, (logits.size() + 31) / 32}, logits);
  for (const LogitEdit& edit : std::span(row.edits, static_cast<size_t>(row.n_edits))) {
    float& logit = logits[edit.token];
    switch (edit.kind) {
      case LogitEdit::Kind::kSet: logit = edit.value; break;
      case LogitEdit::Kind::kAdd: logit += edit.value; break;
      case LogitEdit::Kind::kPenalize:
        logit = logit > 0 ? logit / edit.value : logit * edit.value;
        break;
    }
  }
}

}  // namespace penstock
