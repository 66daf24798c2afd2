// The minimum number of bytes that complete a text from its current state, used to finish within a
// token limit.
//
// The minimum is the sum over all open parts. It is never too small, except where the number of a
// lexeme's characters is bounded from above and characters have several bytes. In every state there
// is a byte after which it is smaller by one. It is unknown where several keys or items must follow
// that all differ, where white space must stand between tokens of JSON or has runs that may not end
// early, and for grammars whose analysis takes too many operations.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/lexer/lexeme_endings.h"
#include "grammar/matcher/stepper.h"

namespace penstock::grammar {

// The shortest endings of one program. Thread-safe. REQUIRES: the program outlives this object.
class ShortestEndings {
 public:
  explicit ShortestEndings(const Program& program);

  // Returns the bytes that complete the text whose state is `items`; a special token counts as one
  // byte. kNoEnding: unknown, or the stack's work has run out.
  uint64_t of(std::span<const Item> items, bool complete, const Stack& stack) const;

 private:
  using Costs = std::vector<uint64_t>;  // cost of each state

  bool known() const;
  void relax(WorkMeter& work);
  bool relax_code(WorkMeter& work);
  bool relax_goals(WorkMeter& work);
  bool relax_objects(WorkMeter& work);
  bool relax_arrays(WorkMeter& work);

  const LexemeEndings& endings(const Lexeme& lexeme) const { return *lexemes_.at(&lexeme); }
  uint64_t of_leaf(uint32_t leaf, uint32_t state, uint64_t count) const;
  uint64_t of_leaf(uint32_t leaf) const;
  // Returns the cost of another key that is not in the list `used`. so_far: the part of the key
  // that led to `state`.
  uint64_t fresh_key(const ObjectGraph& graph, uint32_t state, std::string_view so_far,
                     uint32_t used, const Stack* stack, WorkMeter& work) const;
  uint64_t fresh_item(const UniqueLeaf& unique, uint32_t state, uint64_t count,
                      std::string_view so_far, uint32_t used, const Stack& stack) const;
  // Returns how many bytes longer the next other key is because shorter keys are used.
  uint64_t detour(const ObjectGraph& graph, const Frame& frame, const Stack& stack) const;
  uint64_t member(const ObjectGraph& graph, uint64_t key_bytes, uint32_t list,
                  const Costs& behind) const;
  uint64_t object_state(const ObjectGraph& graph, uint32_t state, const Costs& here,
                        const Costs* behind) const;
  uint64_t array_state(const ArrayGraph& graph, uint32_t state, const Costs* behind) const;
  // Return the costs of the states of an object or array with at least n more members or items,
  // each after a comma.
  Costs objects_after(uint32_t graph, uint64_t n, WorkMeter& work) const;
  Costs arrays_after(uint32_t graph, uint64_t n, WorkMeter& work) const;

  uint64_t rest(const Item& item, const Stack& stack) const;
  uint64_t rest_of_object(const Item& item, const Stack& stack) const;
  uint64_t rest_of_key(const Item& item, const Stack& stack) const;
  uint64_t rest_of_unique_item(const Item& item, const Stack& stack) const;
  uint64_t rest_of_array(const Item& item, const Stack& stack) const;

  const Program& program_;
  std::unordered_map<const Lexeme*, std::unique_ptr<LexemeEndings>> lexemes_;
  Costs code_, symbols_, goals_;
  std::vector<Costs> objects_, arrays_;  // by graph: costs of its states
  Costs keys_;                           // by graph: cost of the shortest other key
  bool known_ = false;
};

}  // namespace penstock::grammar
