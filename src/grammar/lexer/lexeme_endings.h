// Lengths in bytes of the shortest completions of lexemes.
#pragma once
#include <mutex>
#include <string_view>
#include <vector>

#include "grammar/lexer/lexeme.h"
#include "grammar/parts/work_meter.h"

namespace penstock::grammar {

// "no ending"; sums of a few of them do not overflow
inline constexpr uint64_t kNoEnding = UINT64_MAX / 4;

inline uint64_t sum_of_bytes(uint64_t a, uint64_t b) {
  return a + b < kNoEnding ? a + b : kNoEnding;
}

inline bool lower(uint64_t& value, uint64_t to) {
  if (to >= value) return false;
  value = to;
  return true;
}

// The shortest completions of one lexeme. Thread-safe.
class LexemeEndings {
 public:
  explicit LexemeEndings(const Lexeme& lexeme);
  // Returns the bytes of the shortest completion from `state` with at least min_chars more
  // characters; kNoEnding when there is none or the table would exceed kMostEntries.
  uint64_t of(uint32_t state, uint64_t min_chars) const;
  const Lexeme& lexeme() const { return lexeme_; }

 private:
  static constexpr uint64_t kMostChars = 4096, kMostEntries = 1 << 20;
  std::vector<uint64_t> further(const std::vector<uint64_t>& behind) const;

  const Lexeme& lexeme_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<uint64_t>> by_chars_;  // [characters][state]; grows on demand
};

// The shortest completion of a lexeme to a text that is not taken yet; kNoEnding when the work runs
// out.
class FreshEnding {
 public:
  // reserved: automaton whose texts are taken too, or null. taken (of of()): the remainder of each
  // taken text from the current position.
  FreshEnding(const LexemeEndings& endings, const ByteDfa* reserved, WorkMeter& work)
      : endings_(endings), reserved_(reserved), work_(work) {}
  uint64_t of(uint32_t state, uint64_t min_chars, uint32_t reserved_state,
              std::vector<std::string_view> taken);

 private:
  struct Place {
    uint32_t state, reserved;
    uint64_t min_chars;
    std::vector<std::string_view> taken;
  };
  void look(const Place& at, uint64_t depth);
  void look(const Place& at, const ByteEdge& edge, uint8_t byte, uint64_t depth);

  const LexemeEndings& endings_;
  const ByteDfa* reserved_;
  WorkMeter& work_;
  uint64_t best_ = kNoEnding;
  std::vector<Place> next_;
};

}  // namespace penstock::grammar
