// Which tokens may come next: a walk of the vocabulary's trie beside the grammar.
#pragma once
#include "grammar/matcher/lexeme_masks.h"
#include "grammar/matcher/mask_cache.h"
#include "grammar/matcher/state_hasher.h"
#include "grammar/matcher/stepper.h"
#include "grammar/vocabulary.h"

namespace penstock::grammar {

// Everything that masks need beside the state of a text. Shared by the matchers of a grammar.
struct MaskSource {
  const Program& program;
  const Vocabulary& vocabulary;
  MaskCache& cache;
  std::span<const std::shared_ptr<LexemeMasks>> leaf_masks;  // of Program::leaves
  std::span<const std::shared_ptr<LexemeMasks>>
      other_key_masks;  // of Program::objects; null where there are none
};

// Works on a matcher's stack and items beyond their ends and leaves them as they were.
class MaskBuilder {
 public:
  MaskBuilder(const MaskSource& source, Stack& stack, std::vector<Item>& items, Stepper& stepper,
              StateHasher& hasher)
      : source_(source), stack_(stack), items_(items), stepper_(stepper), hasher_(hasher) {}

  // Sets exactly the bits of the tokens that may come next. first: nothing precedes them (see Vocabulary::bytes).
  void fill(const Config& config, bool first, std::span<uint32_t> bits);

 private:
  class Restore;
  void cut(const Stack::Mark& mark, size_t n_items);
  void build(const Config& config, bool first, std::span<uint32_t> bits);
  void below(uint32_t root, const Config& config, std::span<uint32_t> bits);
  bool scan_below(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void scan(uint32_t root, const Item& item, const Leaf& leaf, LexemeMasks& masks, std::span<uint32_t> bits);
  void add_counted(const ScanMask& mask, uint64_t most, std::span<uint32_t> bits);
  void add_quote_exits(const ScanMask& mask, const CountWindow& left, uint32_t tag, const Config& behind,
                       const Item& item, std::span<uint32_t> bits);
  bool allows(const Item& item, std::string_view bytes);
  void other_key(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void unique_string(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void exclude_used(uint32_t root, uint32_t list, const Item& item, std::span<uint32_t> bits);
  void exclude_reserved(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void exclude(uint32_t root, std::string_view rest, const Item& item, std::span<uint32_t> bits);
  std::shared_ptr<const MaskCache::Suffixes> suffixes(const Config& behind);
  template <class Visit>
  void walk(const TokenTrie& trie, uint32_t root, const Config& config, bool delegates, Visit&& visit,
            std::span<uint32_t> bits);
  std::vector<uint32_t> take_scratch(size_t n);
  void give_scratch(std::vector<uint32_t> words) { spare_.push_back(std::move(words)); }

  MaskSource source_;
  Stack& stack_;
  std::vector<Item>& items_;
  Stepper& stepper_;
  StateHasher& hasher_;
  uint32_t base_ = 0;          // bytes of the text where the tokens begin
  uint32_t unsure_until_ = 0;  // while suffixes are tried: the end of what depends on texts before
  std::vector<uint32_t> scratch_;
  std::vector<std::vector<uint32_t>> spare_;  // masks to be used again
};

}  // namespace penstock::grammar
