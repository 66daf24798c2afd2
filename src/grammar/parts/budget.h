// How much a compilation may build. Counted, not timed: the same input gives the same answer on every machine.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>

#include "grammar/parts/refusal.h"

namespace penstock::grammar {

struct CompileLimits {
  size_t max_text_bytes = 4 << 20;  // of a schema, regex, grammar or structural tag
  size_t max_depth = 256;           // of nested arrays, objects, groups
  size_t max_schemas = 100'000;     // subschemas and combinations of them
  size_t max_expr_nodes = 400'000;  // of regular expressions and their derivatives
  size_t max_states = 200'000;      // of all automata together
  size_t max_edges = 2'000'000;     // likewise
  size_t max_alternatives = 256;    // a combination of subschemas may fall into
  size_t max_values = 300'000;      // of a JSON document: objects, arrays and what stands in them
  uint64_t max_steps =
      100'000'000;  // of work: parts of formulas, members, items, words and states that are looked at
  // Set by another thread when nobody wants the grammar any longer: there is room for nothing more then. Outlives the
  // compilation; null: somebody always does.
  const std::atomic<bool>* cancelled = nullptr;
};

// Belongs to one compilation. What does not fit leaves it exhausted for good.
class Budget {
 public:
  explicit Budget(const CompileLimits& limits) : limits_(limits) {}
  const CompileLimits& limits() const { return limits_; }
  // Whether there is room for so many more; takes it.
  bool take_states(size_t n) { return keep((states_ += n) <= limits_.max_states) && spend(n); }
  bool take_edges(size_t n) { return keep((edges_ += n) <= limits_.max_edges) && spend(n); }
  bool take_schemas(size_t n) { return keep((schemas_ += n) <= limits_.max_schemas) && spend(n); }
  // Whether so many steps more may be taken; takes them.
  bool spend(uint64_t n) { return !exhausted_ && keep((steps_ += n) <= limits_.max_steps && wanted()); }
  bool exhausted() const { return exhausted_; }
  uint64_t steps() const { return steps_; }

 private:
  bool wanted() const {
    return limits_.cancelled == nullptr || !limits_.cancelled->load(std::memory_order_relaxed);
  }
  bool keep(bool fits) { return !(exhausted_ |= !fits); }

  CompileLimits limits_;
  size_t states_ = 0, edges_ = 0, schemas_ = 0;
  uint64_t steps_ = 0;
  bool exhausted_ = false;
};

inline constexpr const char* kTooMuchWork =
    "takes too much work to compile: make it smaller, or say less about one value";

inline tl::unexpected<Refusal> too_large(std::string message) {
  return refuse(RefusalKind::kTooLarge, "", std::move(message));
}

}  // namespace penstock::grammar
