#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <utility>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/matcher/mask_builder.h"
#include "grammar/matcher/shortest_ending.h"

namespace penstock::grammar {
namespace {

constexpr int kNoByte = -1;

bool is_space(int byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

// Predicts the white space after the text's last mark: what followed that mark earlier in the text;
// otherwise a space after commas and colons and nothing elsewhere, as most writers of JSON do.
// other: the byte that may come instead of white space, or kNoByte.
int usual_byte(std::string_view text, const std::bitset<256>& spaces, int other) {
  constexpr size_t kWindow = 1024;
  constexpr int kTries = 4;
  text = text.substr(text.size() - std::min(text.size(), kWindow));
  const size_t mark = text.find_last_not_of(" \n\t\r");
  if (mark == std::string_view::npos) return other;
  const std::string_view end = text.substr(mark);
  size_t at = mark;
  for (int i = 0; i < kTries && at > 0; ++i) {
    at = text.rfind(end, at - 1);
    if (at == std::string_view::npos) break;
    const auto next = static_cast<uint8_t>(text[at + end.size()]);
    if (spaces[next] || next == other) return next;
  }
  const bool spaced = end == "," || end == ":";
  return spaced && spaces[' '] ? ' ' : other;
}

}  // namespace

struct Matcher::Impl {
  struct Taken {  // state before a token
    Config config;
    Stack::Mark mark;
    bool ended;
  };

  Impl(std::shared_ptr<const Grammar> of, bool begins)
      : grammar(std::move(of)),
        text_begin(begins),
        stepper(grammar->program(), stack, items),
        hasher(grammar->program(), stack),
        builder(grammar->masks(), stack, items, stepper, hasher) {}
  Impl(const Impl& other) : Impl(other.grammar, other.text_begin) {
    ended = other.ended;
    stack = other.stack;
    items = other.items;
    now = other.now;
    taken = other.taken;
    most_taken = other.most_taken;
  }
  Impl& operator=(const Impl&) = delete;

  void undo(const Taken& before) {
    now = before.config;
    ended = before.ended;
    stack.cut(before.mark);
    hasher.cut(before.mark.nodes);
    items.resize(now.end);
  }

  // Appends the step's last configuration and keeps the previous state for rollback.
  bool commit(const Taken& before, Config next) {
    if (next.dead()) {
      undo(before);
      return false;
    }
    const auto at = items.begin() + before.config.end;
    items.erase(std::move(items.begin() + next.begin, items.begin() + next.end, at), items.end());
    now = {before.config.end, static_cast<uint32_t>(items.size()), next.complete};
    taken.push_back(before);
    if (taken.size() > most_taken) {
      most_taken = taken.size();
      stack.work().add_token();
    }
    return true;
  }

  bool take_bytes(std::string_view bytes) {
    const Taken before{now, stack.mark(), ended};
    Config next = now;
    for (const char c : bytes) {
      next = stepper.step(next, static_cast<uint8_t>(c));
      if (next.dead()) break;
    }
    return commit(before, next);
  }

  bool first() const { return text_begin && taken.empty(); }
  int only_byte(const Config& config, bool spaced);

  std::shared_ptr<const Grammar> grammar;
  bool text_begin;
  bool ended = false;
  Stack stack;
  // configurations after each token, in order; the last one is `now`
  std::vector<Item> items;
  Config now;
  std::vector<Taken> taken;
  // maximum so far: repeated tokens add no work budget
  size_t most_taken = 0;
  Stepper stepper;
  StateHasher hasher;
  MaskBuilder builder;
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, bool text_begin)
    : impl_(std::make_unique<Impl>(std::move(grammar), text_begin)) {
  impl_->stack.reserve(256, 2048);
  impl_->items.reserve(1024);
  impl_->now = impl_->stepper.start();
}
Matcher::Matcher(const Matcher& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

bool Matcher::append(TokenId token) {
  Impl& m = *impl_;
  if (m.ended) return false;
  const Vocabulary& vocabulary = m.grammar->vocabulary();
  const auto ends = vocabulary.ends();
  if (m.now.complete && std::find(ends.begin(), ends.end(), token) != ends.end()) {
    m.taken.push_back({m.now, m.stack.mark(), false});
    m.ended = true;
    return true;
  }
  const std::string_view bytes = vocabulary.bytes(token, m.first());
  if (!vocabulary.bytes(token).empty()) return m.take_bytes(bytes);
  const Impl::Taken before{m.now, m.stack.mark(), false};
  return m.commit(before, m.stepper.step_token(m.now, token));
}

bool Matcher::append_bytes(std::string_view bytes) {
  return !impl_->ended && impl_->take_bytes(bytes);
}

void Matcher::rollback(int n) {
  PENSTOCK_CHECK(n >= 0 && static_cast<size_t>(n) <= impl_->taken.size());
  for (; n > 0; --n) {
    impl_->undo(impl_->taken.back());
    impl_->taken.pop_back();
  }
}

void Matcher::reserve(size_t n_tokens) {
  constexpr size_t kMost = 2048, kItems = 4, kBytes = 8;  // tokens; entries per token
  const size_t n = std::min(n_tokens, kMost) + 1;
  impl_->taken.reserve(n);
  impl_->items.reserve(std::max<size_t>(1024, kItems * n));
  impl_->stack.reserve(kItems * n, kBytes * n);
  impl_->hasher.reserve(kItems * n);
}

const Grammar& Matcher::grammar() const { return *impl_->grammar; }

int Matcher::n_appended() const { return static_cast<int>(impl_->taken.size()); }

std::string Matcher::failure() const {
  switch (impl_->stack.work().failure()) {
    case WorkMeter::Failure::kNone: break;
    case WorkMeter::Failure::kWork:
      return fmt::format(
          "the grammar takes too much work to follow: from this text on more than {} operations, "
          "and {} for each token on average; less ambiguous rules or fewer texts that must differ "
          "take less",
          WorkMeter::kMost, WorkMeter::kPerToken);
    case WorkMeter::Failure::kMemory:
      return fmt::format(
          "the grammar takes too much memory to follow: more than {} MiB for this text; less "
          "ambiguous rules take less",
          WorkMeter::kMostMemory >> 20);
  }
  return "";
}

uint64_t Matcher::work() const { return impl_->stack.work().spent(); }

void Matcher::fill_mask(std::span<uint32_t> bits) {
  Impl& m = *impl_;
  if (!m.ended) return m.builder.fill(m.now, m.first(), bits);
  std::fill(bits.begin(), bits.end(), 0);
  for (const TokenId end : m.grammar->vocabulary().ends()) set_bit(bits, end);
}

bool Matcher::may_end() const { return impl_->ended || impl_->now.complete; }
bool Matcher::must_end() const {
  return impl_->ended || (impl_->now.complete && impl_->now.begin == impl_->now.end);
}
uint64_t Matcher::shortest_ending() const {
  const Impl& m = *impl_;
  if (m.ended) return 0;
  const std::span now = std::span(m.items).subspan(m.now.begin, m.now.end - m.now.begin);
  return m.grammar->endings().of(now, m.now.complete, m.stack);
}
bool Matcher::ended() const { return impl_->ended; }

// Returns the next byte if only one is possible. With `spaced`, white space beside at most one
// other byte is resolved by the spacing of the text. kNoByte: there is a choice.
int Matcher::Impl::only_byte(const Config& config, bool spaced) {
  std::bitset<256> first, spaces;
  for (uint32_t i = config.begin; i < config.end; ++i)
    add_first_bytes(grammar->program(), stack, items[i], first);
  int other = kNoByte, n_possible = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!first[byte]) continue;
    const Stack::Mark mark = stack.mark();
    const size_t n_items = items.size();
    const bool possible = !stepper.step(config, static_cast<uint8_t>(byte)).dead();
    stack.cut(mark);
    items.resize(n_items);
    if (stack.work().failed()) return kNoByte;
    if (!possible) continue;
    if (++n_possible > 1 && !spaced) return kNoByte;
    if (is_space(byte)) {
      spaces.set(static_cast<size_t>(byte));
    } else if (std::exchange(other, byte) != kNoByte) {
      return kNoByte;
    }
  }
  if (n_possible != 1)
    return n_possible == 0 ? kNoByte : usual_byte(stack.text(0, stack.position()), spaces, other);
  return other != kNoByte ? other : static_cast<int>(spaces._Find_first());
}

void Matcher::forced_bytes(std::string& forced, size_t max_bytes, bool spaced) {
  Impl& m = *impl_;
  if (m.ended) return;
  const Impl::Taken before{m.now, m.stack.mark(), false};
  const WorkMeter::Optional optional(m.stack.work());
  Config config = m.now;
  while (forced.size() < max_bytes && !config.complete) {
    const int byte = m.only_byte(config, spaced);
    if (byte == kNoByte) break;
    config = m.stepper.step(config, static_cast<uint8_t>(byte));
    if (config.dead()) break;
    forced += static_cast<char>(byte);
  }
  m.undo(before);
}

}  // namespace penstock::grammar
