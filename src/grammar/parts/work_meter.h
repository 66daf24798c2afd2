// What it may cost to follow one text: operations, counted and not timed, so that they are the same on every machine.
//
// One operation is a byte that an item takes, a rule that is called or ends, a caller that goes on, a text that is compared, or eight
// nodes of a vocabulary's trie beside an automaton.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock::grammar {

// Belongs to one thread at a time. Once the work has run out nothing more is done.
class WorkMeter {
 public:
  // A text begins with kMost; every token that is appended adds kPerToken, up to kMost again.
  static constexpr uint64_t kMost = 2'000'000, kPerToken = 100'000;
  static constexpr size_t kMostMemory = 64 << 20;  // bytes, of one text's state
  enum class Failure : uint8_t { kNone, kWork, kMemory };

  // Whether so much more may be done; takes it.
  bool spend(uint64_t n) {
    spent_ += n;
    if (n <= left_) {
      left_ -= n;
      return true;
    }
    left_ = 0;
    fail(Failure::kWork);
    return false;
  }
  void fail(Failure failure) {
    if (failure_ == Failure::kNone) failure_ = failure;
    left_ = 0;
  }
  void add_token() { left_ = failed() ? 0 : std::min(left_ + kPerToken, kMost); }

  bool failed() const { return failure_ != Failure::kNone; }
  Failure failure() const { return failure_; }
  uint64_t spent() const { return spent_; }

  // Work that can be left undone: a part of what is left is its own, and running out of that is no failure.
  class Optional {
   public:
    explicit Optional(WorkMeter& meter)
        : meter_(meter), left_(meter.left_), spent_(meter.spent_), failed_(meter.failed()) {
      meter.left_ /= kPart;
    }
    Optional(const Optional&) = delete;
    Optional& operator=(const Optional&) = delete;
    ~Optional() {
      if (failed_) return;
      meter_.left_ = left_ - std::min(meter_.spent_ - spent_, left_ / kPart);
      if (meter_.failure_ == Failure::kWork) meter_.failure_ = Failure::kNone;
    }

   private:
    static constexpr uint64_t kPart = 8;
    WorkMeter& meter_;
    const uint64_t left_, spent_;
    const bool failed_;
  };

 private:
  uint64_t left_ = kMost, spent_ = 0;
  Failure failure_ = Failure::kNone;
};

}  // namespace penstock::grammar
