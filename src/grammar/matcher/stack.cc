#include "grammar/matcher/stack.h"

#include "base/text_hash.h"

namespace penstock::grammar {

Stack::Mark Stack::mark() const {
  return {n_nodes(), static_cast<uint32_t>(callers_.size()), static_cast<uint32_t>(frames_.size()),
          static_cast<uint32_t>(used_.size()), position()};
}

void Stack::cut(const Mark& mark) {
  nodes_.resize(mark.nodes);
  callers_.resize(mark.callers);
  frames_.resize(mark.frames);
  used_.resize(mark.used);
  text_.resize(mark.text);
}

size_t Stack::memory() const {
  return nodes_.size() * sizeof(Node) + callers_.size() * sizeof(Caller) +
         frames_.size() * sizeof(Frame) + used_.size() * sizeof(Used) + text_.size();
}

void Stack::reserve(size_t n, size_t n_bytes) {
  nodes_.reserve(n);
  callers_.reserve(n);
  frames_.reserve(n);
  used_.reserve(n);
  text_.reserve(n_bytes);
}

uint32_t Stack::add_node(uint32_t key, uint32_t position) {
  nodes_.push_back({.key = key, .position = position, .step = this->position()});
  return n_nodes() - 1;
}

void Stack::add_caller(uint32_t node, const Item& resume) {
  callers_.push_back({resume, nodes_[node].callers});
  nodes_[node].callers = static_cast<uint32_t>(callers_.size() - 1);
}

uint32_t Stack::add_frame(const Frame& frame) {
  frames_.push_back(frame);
  return static_cast<uint32_t>(frames_.size() - 1);
}

uint32_t Stack::add_used(uint32_t list, uint32_t begin, uint32_t size) {
  const uint64_t before = list == kNone ? 0 : used_[list].hash;
  used_.push_back(
      {begin, size, list, n_used(list) + 1, before + text_hash(text(begin, begin + size))});
  return static_cast<uint32_t>(used_.size() - 1);
}

bool Stack::is_used(uint32_t list, std::string_view sought) const {
  for (; list != kNone && work_.spend(1); list = used_[list].next) {
    if (text(used_[list].begin, used_[list].begin + used_[list].size) == sought) return true;
  }
  return false;
}

uint32_t Stack::n_used_with(uint32_t list, std::string_view prefix) const {
  uint32_t n = 0;
  for (; list != kNone && work_.spend(1); list = used_[list].next) {
    n += text(used_[list].begin, used_[list].begin + used_[list].size).starts_with(prefix);
  }
  return n;
}

}  // namespace penstock::grammar
