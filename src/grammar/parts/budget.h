// Limits on the work of a compilation. They are counted, not timed, so that results are the same on
// every machine.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>

#include "grammar/parts/refusal.h"

namespace penstock::grammar {

struct CompileLimits {
  // bytes of a schema, regex, grammar or structural tag
  size_t max_text_bytes = 4 << 20;
  size_t max_depth = 256;        // nesting of arrays, objects, groups
  size_t max_schemas = 100'000;  // subschemas and combinations of them
  // nodes of regular expressions and their derivatives
  size_t max_expr_nodes = 400'000;
  size_t max_states = 200'000;   // states of all automata together
  size_t max_edges = 2'000'000;  // edges of all automata together
  // alternatives that a combination of subschemas expands to
  size_t max_alternatives = 256;
  // values of a JSON document, nested ones included
  size_t max_values = 300'000;
  // Steps of work: parts of formulas, members, items, words and states that are visited.
  uint64_t max_steps = 100'000'000;
  // Another thread sets it to cancel the compilation, which then fails as if a limit were reached;
  // null: never cancelled. REQUIRES: it outlives the compilation.
  const std::atomic<bool>* cancelled = nullptr;
};

// The budget of one compilation. After the first refusal it stays exhausted. Not thread-safe.
class Budget {
 public:
  explicit Budget(const CompileLimits& limits) : limits_(limits) {}
  const CompileLimits& limits() const { return limits_; }
  // Take n states, edges or schemas; return whether they fit into the limits.
  bool take_states(size_t n) { return keep((states_ += n) <= limits_.max_states) && spend(n); }
  bool take_edges(size_t n) { return keep((edges_ += n) <= limits_.max_edges) && spend(n); }
  bool take_schemas(size_t n) { return keep((schemas_ += n) <= limits_.max_schemas) && spend(n); }
  // Takes n steps; returns whether they fit into the limits.
  bool spend(uint64_t n) {
    return !exhausted_ && keep((steps_ += n) <= limits_.max_steps && wanted());
  }
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
