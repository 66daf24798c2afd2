// The shortest ways through lexemes, in bytes.
#pragma once
#include <mutex>
#include <string_view>
#include <vector>

#include "grammar/lexer/lexeme.h"
#include "grammar/parts/work_meter.h"

namespace penstock::grammar {

inline constexpr uint64_t kNoEnding = UINT64_MAX / 4;  // sums of a few stay above it

inline uint64_t sum_of_bytes(uint64_t a, uint64_t b) { return a + b < kNoEnding ? a + b : kNoEnding; }

inline bool lower(uint64_t& value, uint64_t to) {
  if (to >= value) return false;
  value = to;
  return true;
}

// The shortest ways through one lexeme. Any thread may ask.
class LexemeEndings {
 public:
  explicit LexemeEndings(const Lexeme& lexeme);
  // From a state, with at least so many characters more. kNoEnding also where that takes a table of more than kMostEntries.
  uint64_t of(uint32_t state, uint64_t min_chars) const;
  const Lexeme& lexeme() const { return lexeme_; }

 private:
  static constexpr uint64_t kMostChars = 4096, kMostEntries = 1 << 20;
  std::vector<uint64_t> further(const std::vector<uint64_t>& behind) const;

  const Lexeme& lexeme_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<uint64_t>> by_chars_;  // [characters][state]; grows
};

// The shortest way through a lexeme to a text that is none of those taken. kNoEnding where the work runs out.
class FreshEnding {
 public:
  // taken: what is left of each taken text from here on. reserved: whose texts are taken too, or null.
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
