// Which tokens may come next: a walk of the vocabulary's trie beside the grammar.
//
// Every node of the trie is come to once, with all that may stand there: what the walk takes along byte by byte, and what follows the
// ends of lexemes that were taken out further above, for which masks are at hand.
#pragma once
#include <bitset>
#include <memory>
#include <vector>

#include "grammar/matcher/mask_cache.h"
#include "grammar/matcher/state_hasher.h"
#include "grammar/matcher/stepper.h"
#include "grammar/vocabulary/lexeme_masks.h"
#include "grammar/vocabulary/vocabulary.h"

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

  // Sets exactly the bits of the tokens that may come next; none where the stack's work runs out. first: nothing precedes them (see
  // Vocabulary::bytes).
  void fill(const Config& config, bool first, std::span<uint32_t> bits);

 private:
  class Restore;
  // A node of the trie where a lexeme ends that was taken out above, and what stands there then.
  struct Exit {
    uint32_t node;
    Config behind;
  };
  // Of the lexemes taken out at one node, in order.
  struct Exits {
    uint32_t end;  // of the subtree
    std::vector<Exit> list;
    size_t at = 0;
  };
  struct Level {
    uint32_t end;
    uint32_t dead_end;  // up to there nothing follows from the config: only exits lead on
    Config config;
    Stack::Mark mark;
    size_t n_items;
    std::bitset<256> first;
  };
  // An item at a node of the trie.
  struct Place {
    Item item;
    uint32_t node;
  };
  struct Scan {
    Item item;
    std::shared_ptr<const ScanMask> mask;
  };
  class ExitMaker;

  void cut(const Stack::Mark& mark, size_t n_items);
  void build(const Config& config, bool first, std::span<uint32_t> bits);
  template <class Visit>
  void walk(const TokenTrie& trie, const Config& config, bool delegates, Visit&& visit,
            std::span<uint32_t> bits);
  void enter(const TokenTrie& trie, uint32_t node, const Config& config, std::vector<Level>& levels);
  Config arrive(const Level& from, bool steps, uint8_t byte, uint32_t node, std::span<const Exits> exits);
  Config take_out(uint32_t node, const Config& config, std::span<uint32_t> bits, std::vector<Exits>& exits);
  bool take_out_key(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void scan(uint32_t root, const Item& item, uint32_t leaf, std::vector<Scan>& scans,
            std::span<uint32_t> bits);
  void add_counted(const ScanMask& mask, uint64_t most, std::span<uint32_t> bits);
  void add_quote_exits(const Place& place, const ScanMask& mask, const CountWindow& left, uint32_t tag,
                       const Config& behind, std::span<uint32_t> bits);
  bool allows(const Place& place, std::string_view bytes);
  void other_key(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void unique_string(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void exclude_used(uint32_t root, uint32_t list, const Item& item, std::span<uint32_t> bits);
  void exclude_reserved(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void exclude(uint32_t root, std::string_view rest, const Item& item, std::span<uint32_t> bits);
  std::shared_ptr<const MaskCache::Suffixes> suffixes(const Config& behind);
  std::bitset<256> first_bytes(const Config& config) const;
  std::vector<uint32_t> take_scratch(size_t n);
  void give_scratch(std::vector<uint32_t> words) { spare_.push_back(std::move(words)); }

  MaskSource source_;
  Stack& stack_;
  std::vector<Item>& items_;
  Stepper& stepper_;
  StateHasher& hasher_;
  uint32_t unsure_until_ = 0;  // while suffixes are tried: the end of what depends on texts before
  std::vector<uint32_t> scratch_;
  std::vector<std::vector<uint32_t>> spare_;  // masks to be used again
};

}  // namespace penstock::grammar
