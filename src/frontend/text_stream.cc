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

// Whether `byte` may follow `pending`, the start of a well-formed sequence (no overlong forms, no surrogates,
// nothing above U+10FFFF).
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

TextStream::TextStream(TextStreamOptions options) : options_(std::move(options)) { build(); }

std::optional<uint32_t> TextStream::child(uint32_t state, unsigned char byte) const {
  const auto it = edges_.find(uint64_t{state} * 256 + byte);
  return it == edges_.end() ? std::nullopt : std::optional(it->second);
}

uint32_t TextStream::step(uint32_t state, unsigned char byte) const {
  while (true) {
    if (const auto next = child(state, byte)) return *next;
    if (state == 0) return 0;
    state = nodes_[state].fail;
  }
}

void TextStream::build() {
  nodes_.emplace_back();
  std::vector<std::pair<uint32_t, unsigned char>> parents = {
      {0, 0}};  // of each node, with the byte that leads to it
  for (size_t i = 0; i < options_.stop.size(); ++i) {
    uint32_t state = 0;
    for (const char c : options_.stop[i]) {
      const auto byte = static_cast<unsigned char>(c);
      auto next = child(state, byte);
      if (!next) {
        next = static_cast<uint32_t>(nodes_.size());
        edges_[uint64_t{state} * 256 + byte] = *next;
        nodes_[state].has_children = true;
        nodes_.push_back({nodes_[state].depth + 1});
        parents.emplace_back(state, byte);
      }
      state = *next;
    }
    if (state != 0 && nodes_[state].match < 0) nodes_[state].match = static_cast<int32_t>(i);
  }
  std::vector<uint32_t> order(nodes_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return nodes_[a].depth < nodes_[b].depth; });
  for (const uint32_t i : order) {
    Node& node = nodes_[i];
    if (node.depth > 1) node.fail = step(nodes_[parents[i].first].fail, parents[i].second);
    if (node.match < 0 && node.depth > 0) node.match = nodes_[node.fail].match;
    node.held = node.has_children ? node.depth : nodes_[node.fail].held;
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
  if (nodes_.size() == 1) return std::string(text);
  const size_t before = held_.size();
  held_ += text;
  for (size_t i = before; i < held_.size(); ++i) {
    state_ = step(state_, static_cast<unsigned char>(held_[i]));
    const int32_t match = nodes_[state_].match;
    if (match < 0 || !may_stop) continue;
    stop_ = static_cast<size_t>(match);
    held_.resize(options_.include_stop ? i + 1 : i + 1 - options_.stop[*stop_].size());
    return std::exchange(held_, {});
  }
  std::string out = held_.substr(0, held_.size() - nodes_[state_].held);
  held_.erase(0, out.size());
  return out;
}

}  // namespace penstock
