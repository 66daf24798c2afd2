#include "frontend/sequence_text.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the well-formed UTF-8 character at the front of s; 0: it may become one with more bytes; -1: it
// never will.
int character_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= s.size()) return 0;
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return -1;
  }
  return length;
}

}  // namespace

SequenceText::SequenceText(const Tokenizer& tokenizer, const SamplingParams& params, bool has_context)
    : tokenizer_(tokenizer), params_(params), first_(!has_context) {}

void SequenceText::add(TokenId token) {
  if (stopped_by_) return;
  ++n_tokens_;
  if (params_.skip_special_tokens && tokenizer_.is_special(token)) return;
  append_bytes(tokenizer_.token_bytes(token, first_));
  first_ = false;
}

void SequenceText::append_bytes(std::string_view bytes) {
  partial_ += bytes;
  size_t used = 0;
  while (used < partial_.size()) {
    const int length = character_length(std::string_view(partial_).substr(used));
    if (length == 0) break;
    if (length < 0) {
      held_ += kReplacement;
      ++used;
    } else {
      held_.append(partial_, used, static_cast<size_t>(length));
      used += static_cast<size_t>(length);
    }
  }
  partial_.erase(0, used);
  find_stop();
}

void SequenceText::find_stop() {
  size_t first = std::string::npos;
  if (n_tokens_ >= params_.min_tokens) {
    for (const std::string& stop : params_.stop) {
      const size_t at = held_.find(stop);
      if (at >= first) continue;
      first = at;
      stopped_by_ = stop;
    }
  }
  if (stopped_by_) {
    held_.resize(first + (params_.include_stop_str_in_output ? stopped_by_->size() : 0));
    text_ += held_;
    held_.clear();
    partial_.clear();
    return;
  }
  // Keep the longest end that begins a stop string.
  size_t kept = 0;
  for (const std::string& stop : params_.stop) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > kept; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) kept = n;
    }
  }
  text_.append(held_, 0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
}

void SequenceText::finish() {
  if (stopped_by_) return;
  if (!partial_.empty()) held_ += kReplacement;
  partial_.clear();
  text_ += held_;
  held_.clear();
}

std::string_view SequenceText::take() {
  const std::string_view piece = std::string_view(text_).substr(taken_);
  taken_ = text_.size();
  return piece;
}

}  // namespace penstock
