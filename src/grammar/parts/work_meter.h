// Bounds the work of following one text. Operations are counted, not timed, so that results are the
// same on every machine.
//
// One operation is a byte that an item consumes, a rule that is called or ends, a caller that
// resumes, a text that is compared, or eight nodes of a vocabulary's trie that are visited with an
// automaton.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock::grammar {

// Not thread-safe. Once the work has run out, spend() always fails.
class WorkMeter {
 public:
  // A text starts with kMost operations; every appended token adds kPerToken, up to kMost in total.
  static constexpr uint64_t kMost = 2'000'000, kPerToken = 100'000;
  static constexpr size_t kMostMemory = 64 << 20;  // bytes of one text's state
  enum class Failure : uint8_t { kNone, kWork, kMemory };

  // Takes n operations; returns whether they were left.
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

  // A scope of optional work: it may use 1 / kPart of the operations left, and running out of them
  // is no failure.
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
