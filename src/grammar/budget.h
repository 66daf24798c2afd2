// How much a compilation may build. Counted, not timed: the same input gives the same answer on every machine.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>

#include "grammar/refusal.h"

namespace penstock::grammar {

struct CompileLimits {
  size_t max_text_bytes = 4 << 20;  // of a schema, regex, grammar or structural tag
  size_t max_depth = 256;           // of nested arrays, objects, groups
  size_t max_schemas = 100'000;     // subschemas and combinations of them
  size_t max_expr_nodes = 400'000;  // of regular expressions and their derivatives
  size_t max_states = 200'000;      // of all automata together
  size_t max_edges = 2'000'000;     // likewise
  size_t max_alternatives = 256;    // a combination of subschemas may fall into
  // Set by another thread when nobody wants the grammar any longer: there is room for nothing more then. Outlives the
  // compilation; null: somebody always does.
  const std::atomic<bool>* cancelled = nullptr;
};

// Belongs to one compilation.
class Budget {
 public:
  explicit Budget(const CompileLimits& limits) : limits_(limits) {}
  const CompileLimits& limits() const { return limits_; }
  // Whether there is room for so many more; takes it.
  bool take_states(size_t n) { return (states_ += n) <= limits_.max_states && wanted(); }
  bool take_edges(size_t n) { return (edges_ += n) <= limits_.max_edges && wanted(); }
  bool take_schemas(size_t n) { return (schemas_ += n) <= limits_.max_schemas && wanted(); }

 private:
  bool wanted() const {
    return limits_.cancelled == nullptr || !limits_.cancelled->load(std::memory_order_relaxed);
  }

  CompileLimits limits_;
  size_t states_ = 0, edges_ = 0, schemas_ = 0;
};

inline tl::unexpected<Refusal> too_large(std::string message) {
  return refuse(RefusalKind::kTooLarge, "", std::move(message));
}

}  // namespace penstock::grammar
