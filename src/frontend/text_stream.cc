#include "frontend/text_stream.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

// Whether `byte` may follow `pending`, a proper prefix of a well-formed code point. Excludes
// overlong forms, surrogates and code points above U+10FFFF.
bool may_follow(std::string_view pending, unsigned char byte) {
  unsigned char low = 0x80, high = 0xbf;
  if (pending.size() == 1) {
    switch (static_cast<unsigned char>(pending[0])) {
      case 0xe0: low = 0xa0; break;
      case 0xed: high = 0x9f; break;
      case 0xf0: low = 0x90; break;
      case 0xf4: high = 0x8f; break;
      default: break;
    }
  }
  return byte >= low && byte <= high;
}

}  // namespace

void Utf8Decoder::put(unsigned char byte, std::string& text) {
  if (!pending_.empty()) {
    if (may_follow(pending_, byte)) {
      pending_ += static_cast<char>(byte);
      if (pending_.size() == sequence_length(static_cast<unsigned char>(pending_[0]))) {
        text += pending_;
        pending_.clear();
      }
      return;
    }
    text += kReplacement;
    pending_.clear();
  }
  const size_t length = sequence_length(byte);
  if (length == 0) {
    text += kReplacement;
  } else if (length == 1) {
    text += static_cast<char>(byte);
  } else {
    pending_ += static_cast<char>(byte);
  }
}

void Utf8Decoder::push(std::string_view bytes, std::string& text) {
  for (const char byte : bytes) put(static_cast<unsigned char>(byte), text);
}

void Utf8Decoder::finish(std::string& text) {
  if (!pending_.empty()) text += kReplacement;
  pending_.clear();
}

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  nodes_.emplace_back();
  for (size_t i = 0; i < strings_.size(); ++i) add(i);
  std::vector<uint32_t> order = {kStart};  // breadth-first
  order.reserve(nodes_.size());
  for (size_t at = 0; at < order.size(); ++at) {
    const uint32_t parent = order[at];
    for (uint32_t i = nodes_[parent].child; i != 0; i = nodes_[i].sibling) {
      Node& node = nodes_[i];
      if (parent != kStart) node.fail = step(nodes_[parent].fail, node.byte);
      if (node.match < 0) node.match = nodes_[node.fail].match;
      node.held = node.child != 0 ? node.depth : nodes_[node.fail].held;
      order.push_back(i);
    }
  }
}

void StopStrings::add(size_t index) {
  uint32_t state = kStart;
  for (const char c : strings_[index]) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(state, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      Node node;
      node.depth = nodes_[state].depth + 1;
      node.byte = byte;
      node.sibling = std::exchange(nodes_[state].child, next);
      nodes_.push_back(node);
    }
    state = next;
  }
  if (state != kStart && nodes_[state].match < 0) nodes_[state].match = static_cast<int32_t>(index);
}

uint32_t StopStrings::child(uint32_t state, unsigned char byte) const {
  uint32_t i = nodes_[state].child;
  while (i != 0 && nodes_[i].byte != byte) i = nodes_[i].sibling;
  return i;
}

uint32_t StopStrings::step(uint32_t state, unsigned char byte) const {
  while (true) {
    if (const uint32_t next = child(state, byte); next != 0) return next;
    if (state == kStart) return kStart;
    state = nodes_[state].fail;
  }
}

std::string TextStream::push(std::string_view piece, bool may_stop) {
  if (stopped()) return {};
  std::string text;
  decoder_.push(piece, text);
  return advance(text, may_stop);
}

std::string TextStream::finish() {
  if (stopped()) return {};
  std::string text;
  decoder_.finish(text);
  std::string out = advance(text, true);
  if (!stopped()) out += std::exchange(held_, {});
  state_ = 0;
  return out;
}

std::string TextStream::advance(std::string_view text, bool may_stop) {
  if (stops_->empty()) return std::string(text);
  const size_t before = held_.size();
  held_ += text;
  for (size_t i = before; i < held_.size(); ++i) {
    state_ = stops_->step(state_, static_cast<unsigned char>(held_[i]));
    const int32_t match = stops_->match(state_);
    if (match < 0 || !may_stop) continue;
    stop_ = static_cast<size_t>(match);
    held_.resize(include_stop_ ? i + 1 : i + 1 - stops_->length(match));
    return std::exchange(held_, {});
  }
  std::string out = held_.substr(0, held_.size() - stops_->held(state_));
  held_.erase(0, out.size());
  return out;
}

}  // namespace penstock
