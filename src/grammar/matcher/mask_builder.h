// Computes the mask of the tokens that may come next by walking the vocabulary's trie in parallel
// with the grammar.
//
// Each node of the trie is visited once, with all items that are possible there: those that the
// walk advances byte by byte, and those that follow the ends of lexemes which were handled by
// precomputed masks at a node further up ("taken out").
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

// The inputs of masks besides the state of a text. Shared by the matchers of a grammar.
struct MaskSource {
  const Program& program;
  const Vocabulary& vocabulary;
  MaskCache& cache;
  std::span<const std::shared_ptr<LexemeMasks>> leaf_masks;  // masks of Program::leaves, by index
  // Masks of the other keys of Program::objects, by index; null for objects that have no other
  // keys.
  std::span<const std::shared_ptr<LexemeMasks>> other_key_masks;
};

// Appends temporarily to a matcher's stack and items and restores them.
class MaskBuilder {
 public:
  MaskBuilder(const MaskSource& source, Stack& stack, std::vector<Item>& items, Stepper& stepper,
              StateHasher& hasher)
      : source_(source), stack_(stack), items_(items), stepper_(stepper), hasher_(hasher) {}

  // Sets exactly the bits of the tokens that may come next; none if the stack's work runs out.
  // first: the tokens begin the text (see Vocabulary::bytes).
  void fill(const Config& config, bool first, std::span<uint32_t> bits);

 private:
  class Restore;
  // A node of the trie at which a lexeme that was taken out further up ends, and the configuration
  // behind it.
  struct Exit {
    uint32_t node;
    Config behind;
  };
  // The exits of the lexemes that were taken out at one node, in order of their nodes.
  struct Exits {
    uint32_t end;  // end of the subtree
    std::vector<Exit> list;
    size_t at = 0;
  };
  struct Level {
    uint32_t end;
    // up to this node the config is dead: only exits continue
    uint32_t dead_end;
    Config config;
    Stack::Mark mark;
    size_t n_items;
    std::bitset<256> first;
    // The state of white space of all items; kNone: their own states hold. White space moves items
    // that all wait in it together, so that runs of it cost the same for any number of items.
    uint32_t space = kNone;
  };
  // What is at a child node: the items, and their state of white space as in Level.
  struct Arrival {
    Config config;
    uint32_t space = kNone;
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
  void enter(const TokenTrie& trie, uint32_t node, const Arrival& arrival,
             std::vector<Level>& levels);
  Arrival arrive(Level& from, bool steps, uint8_t byte, uint32_t node,
                 std::span<const Exits> exits);
  uint32_t common_space(const Config& config) const;
  Config with_space(const Config& config, uint32_t space);
  Config take_out(uint32_t node, const Config& config, std::span<uint32_t> bits,
                  std::vector<Exits>& exits);
  bool take_out_key(uint32_t root, const Item& item, std::span<uint32_t> bits);
  void scan(uint32_t root, const Item& item, uint32_t leaf, std::vector<Scan>& scans,
            std::span<uint32_t> bits);
  void add_counted(const ScanMask& mask, uint64_t most, std::span<uint32_t> bits);
  void add_quote_exits(const Place& place, const ScanMask& mask, const CountWindow& left,
                       uint32_t tag, const Config& behind, std::span<uint32_t> bits);
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
  // while suffixes are tried: end of the part that depends on earlier texts
  uint32_t unsure_until_ = 0;
  std::vector<uint32_t> scratch_;
  std::vector<std::vector<uint32_t>> spare_;  // masks for reuse
};

}  // namespace penstock::grammar
