// How few bytes bring a text to its end, from wherever it stands: what is left to write when tokens run out.
//
// A least number of texts, keys and values is summed up over what is open; it is never too small, but where a lexeme's
// characters are bounded from above and of several bytes. It falls by one behind some byte, from anywhere. Nobody knows it
// where several keys or items have to come that must all differ, nor of a grammar that takes too many operations to look through.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/lexer/lexeme_endings.h"
#include "grammar/matcher/stepper.h"

namespace penstock::grammar {

// Of one program, which outlives it. Any thread may ask.
class ShortestEndings {
 public:
  explicit ShortestEndings(const Program& program);

  // Of the whole text that stands at the items; a special token counts as one byte. kNoEnding: nobody knows a way, or the stack's
  // work has run out.
  uint64_t of(std::span<const Item> items, bool complete, const Stack& stack) const;

 private:
  using Costs = std::vector<uint64_t>;  // of states

  bool known() const;
  void relax(WorkMeter& work);
  bool relax_code(WorkMeter& work);
  bool relax_goals(WorkMeter& work);
  bool relax_objects(WorkMeter& work);
  bool relax_arrays(WorkMeter& work);

  const LexemeEndings& endings(const Lexeme& lexeme) const { return *lexemes_.at(&lexeme); }
  uint64_t of_leaf(uint32_t leaf, uint32_t state, uint64_t count) const;
  uint64_t of_leaf(uint32_t leaf) const;
  // Of a key of the other ones, which is not in the list of used texts. so_far: of its text, which led to `state`.
  uint64_t fresh_key(const ObjectGraph& graph, uint32_t state, std::string_view so_far, uint32_t used,
                     const Stack* stack, WorkMeter& work) const;
  uint64_t fresh_item(const UniqueLeaf& unique, uint32_t state, uint64_t count, std::string_view so_far,
                      uint32_t used, const Stack& stack) const;
  // How much longer the next other key is because of those that are used.
  uint64_t detour(const ObjectGraph& graph, const Frame& frame, const Stack& stack) const;
  uint64_t member(const ObjectGraph& graph, uint64_t key_bytes, uint32_t list, const Costs& behind) const;
  uint64_t object_state(const ObjectGraph& graph, uint32_t state, const Costs& here,
                        const Costs* behind) const;
  uint64_t array_state(const ArrayGraph& graph, uint32_t state, const Costs* behind) const;
  // From the states of an object or array, with at least so many members or items more, each behind a comma.
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
  std::vector<Costs> objects_, arrays_;  // by graph: of its states
  Costs keys_;                           // by graph: of the shortest other key
  bool known_ = false;
};

}  // namespace penstock::grammar
