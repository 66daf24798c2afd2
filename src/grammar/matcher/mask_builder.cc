#include "grammar/matcher/mask_builder.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

// Below a node with fewer nodes the trie is walked without looking for masks made before.
constexpr uint32_t kSmallSubtree = 64;

}  // namespace

// Cuts the stack and the items back to what they were.
class MaskBuilder::Restore {
 public:
  explicit Restore(MaskBuilder& builder)
      : builder_(builder), mark_(builder.stack_.mark()), n_items_(builder.items_.size()) {}
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { builder_.cut(mark_, n_items_); }

 private:
  MaskBuilder& builder_;
  Stack::Mark mark_;
  size_t n_items_;
};

void MaskBuilder::cut(const Stack::Mark& mark, size_t n_items) {
  stack_.cut(mark);
  hasher_.cut(mark.nodes);
  items_.resize(n_items);
}

void MaskBuilder::fill(const Config& config, bool first, std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  StateHash key =
      hasher_.of(std::span(items_).subspan(config.begin, config.end - config.begin), config.complete);
  key.add(first);
  if (const auto found = source_.cache.find(key)) {
    found->add_to(bits);
    return;
  }
  build(config, first, bits);
  source_.cache.insert(key, TokenSet(bits));
}

void MaskBuilder::build(const Config& config, bool first, std::span<uint32_t> bits) {
  base_ = stack_.position();
  if (config.complete) {
    for (const TokenId end : source_.vocabulary.ends()) set_bit(bits, end);
  }
  for (uint32_t i = config.begin; i < config.end; ++i) {
    if (items_[i].kind() == Point::kToken)
      set_bit(bits, static_cast<int32_t>(source_.program.code[items_[i].index()].a));
  }
  const TokenTrie& trie = source_.vocabulary.trie(first);
  if (&trie == &source_.vocabulary.trie()) {
    below(0, config, bits);
  } else {
    const Restore restore(*this);
    set_bits(bits, trie.values(0));
    walk(trie, 0, config, false, [&](uint32_t node) { set_bits(bits, trie.values(node)); }, bits);
  }
}

// Sets the bits of the tokens below a node, to which the config's text leads.
void MaskBuilder::below(uint32_t root, const Config& config, std::span<uint32_t> bits) {
  const Restore restore(*this);
  const auto first = static_cast<uint32_t>(items_.size());
  for (uint32_t i = config.begin; i < config.end; ++i) {
    const Item item = items_[i];
    if (!scan_below(root, item, bits)) items_.push_back(item);
  }
  const Config rest{first, static_cast<uint32_t>(items_.size())};
  if (rest.dead()) return;
  const TokenTrie& trie = source_.vocabulary.trie();
  walk(trie, root, rest, true, [&](uint32_t node) { set_bits(bits, trie.values(node)); }, bits);
}

// Takes the items for which masks made before are of use. Whether this is one.
bool MaskBuilder::scan_below(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const Program& program = source_.program;
  switch (item.kind()) {
    case Point::kScan: {
      const uint32_t leaf = program.code[item.index()].a;
      scan(root, item, program.leaves[leaf], *source_.leaf_masks[leaf], bits);
      return true;
    }
    case Point::kLeaf:
      scan(root, item, program.leaves[item.index()], *source_.leaf_masks[item.index()], bits);
      return true;
    case Point::kOtherKey: other_key(root, item, bits); return true;
    case Point::kUniqueLeaf:
      if (!program.unique_leaves[item.index()].quoted) return false;
      unique_string(root, item, bits);
      return true;
    default: return false;
  }
}

void MaskBuilder::scan(uint32_t root, const Item& item, const Leaf& leaf, LexemeMasks& masks,
                       std::span<uint32_t> bits) {
  const CountWindow left = leaf.window.after(item.count);
  const auto mask = masks.get(item.state, left, root);
  if (leaf.lexeme->any_content && !mask->counted.empty() && mask->counted.front().count > left.max) {
    add_counted(*mask, left.max, bits);
  } else {
    mask->inside.add_to(bits);
  }
  if (mask->exits.empty() && mask->quote_exits.empty()) return;
  const Restore restore(*this);
  const Config behind = stepper_.ended(item, 1);
  const CountWindow exit_window = leaf.lexeme->any_content ? left : CountWindow{};
  if (!mask->quote_exits.empty()) add_quote_exits(*mask, exit_window, kNone, behind, item, bits);
  if (mask->exits.empty()) return;
  std::bitset<256> first;
  for (uint32_t i = behind.begin; i < behind.end; ++i)
    add_first_bytes(source_.program, stack_, items_[i], first);
  const TokenTrie& trie = source_.vocabulary.trie();
  for (const ScanMask::Exit& exit : mask->exits) {
    const uint32_t end = trie.node(exit.node).end;
    bool any = false;
    for (uint32_t child = exit.node + 1; child < end && !any; child = trie.node(child).end)
      any = first[trie.node(child).byte];
    if (any) below(exit.node, behind, bits);
  }
}

// Of a lexeme of any content, the tokens inside with at most so many characters.
void MaskBuilder::add_counted(const ScanMask& mask, uint64_t most, std::span<uint32_t> bits) {
  const auto& all = mask.counted;
  const auto fits =
      std::partition_point(all.begin(), all.end(), [&](const auto& t) { return t.count > most; });
  if (!mask.inside.dense() || all.end() - fits < fits - all.begin()) {
    for (auto it = fits; it != all.end(); ++it) set_bit(bits, it->token);
    return;
  }
  scratch_.assign(mask.inside.words().begin(), mask.inside.words().end());
  for (auto it = all.begin(); it != fits; ++it) clear_bit(scratch_, it->token);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= scratch_[i];
}

// The tokens that end the item's lexeme at a quotation mark and go on as `behind` allows. tag kNone: whatever the tag.
void MaskBuilder::add_quote_exits(const ScanMask& mask, const CountWindow& left, uint32_t tag,
                                  const Config& behind, const Item& item, std::span<uint32_t> bits) {
  const auto allowed = suffixes(behind);
  const auto& exits = mask.quote_exits;
  const auto for_each = [&](const std::vector<int32_t>& list, auto&& take) {
    for (const int32_t suffix : list) {
      auto it = std::partition_point(exits.begin(), exits.end(),
                                     [&](const auto& e) { return e.suffix < static_cast<uint32_t>(suffix); });
      for (; it != exits.end() && it->suffix == static_cast<uint32_t>(suffix); ++it) {
        if ((tag == kNone || it->tag == tag) && it->count >= left.min && it->count <= left.max)
          take(it->token);
      }
    }
  };
  for_each(allowed->sure, [&](int32_t token) { set_bit(bits, token); });
  for_each(allowed->unsure, [&](int32_t token) {
    if (allows(item, source_.vocabulary.bytes(token).substr(stack_.position() - base_))) set_bit(bits, token);
  });
}

// Whether the item can take all the bytes.
bool MaskBuilder::allows(const Item& item, std::string_view bytes) {
  const Restore restore(*this);
  items_.push_back(item);
  Config config{static_cast<uint32_t>(items_.size() - 1), static_cast<uint32_t>(items_.size())};
  for (const char c : bytes) {
    config = stepper_.step(config, static_cast<uint8_t>(c));
    if (config.dead()) return false;
  }
  return true;
}

std::shared_ptr<const MaskCache::Suffixes> MaskBuilder::suffixes(const Config& behind) {
  const StateHash key =
      hasher_.of(std::span(items_).subspan(behind.begin, behind.end - behind.begin), behind.complete);
  if (auto found = source_.cache.find_suffixes(key)) return found;
  const Restore restore(*this);
  const TokenTrie& trie = source_.vocabulary.quote_suffixes();
  MaskCache::Suffixes result;
  if (!behind.dead()) result.sure.assign(trie.values(0).begin(), trie.values(0).end());
  stepper_.looked_at_used();
  walk(trie, 0, behind, false,
       [&](uint32_t node) {
         if (stepper_.looked_at_used()) unsure_until_ = std::max(unsure_until_, trie.node(node).end);
         auto& list = node < unsure_until_ ? result.unsure : result.sure;
         list.insert(list.end(), trie.values(node).begin(), trie.values(node).end());
       },
       {});
  unsure_until_ = 0;
  return source_.cache.insert_suffixes(key, std::move(result));
}

void MaskBuilder::other_key(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const ObjectGraph& graph = source_.program.objects[item.index()];
  const auto mask = source_.other_key_masks[item.index()]->get(item.state, {}, root);
  std::vector<uint32_t> own = take_scratch(bits.size());
  mask->inside.add_to(own);
  std::vector<uint32_t> tags;
  for (const ScanMask::QuoteExit& exit : mask->quote_exits) {
    if (std::find(tags.begin(), tags.end(), exit.tag) == tags.end()) tags.push_back(exit.tag);
  }
  for (const uint32_t tag : tags) {
    const Restore restore(*this);
    const Config behind = stepper_.ended(item, tag);
    if (!behind.dead()) add_quote_exits(*mask, {}, tag, behind, item, own);
  }
  exclude_used(root, stack_.frame(item.data).used, item, own);
  if (graph.reserved_keys != nullptr) exclude_reserved(root, item, own);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= own[i];
  give_scratch(std::move(own));
}

void MaskBuilder::unique_string(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const uint32_t leaf_index = source_.program.unique_leaves[item.index()].leaf;
  const Leaf& leaf = source_.program.leaves[leaf_index];
  std::vector<uint32_t> own = take_scratch(bits.size());
  const CountWindow left = leaf.window.after(item.count);
  const auto mask = source_.leaf_masks[leaf_index]->get(item.state, left, root);
  if (leaf.lexeme->any_content && !mask->counted.empty() && mask->counted.front().count > left.max) {
    add_counted(*mask, left.max, own);
  } else {
    mask->inside.add_to(own);
  }
  if (!mask->quote_exits.empty()) {
    const Restore restore(*this);
    const Config behind = stepper_.ended(item, 1);
    add_quote_exits(*mask, leaf.lexeme->any_content ? left : CountWindow{}, kNone, behind, item, own);
  }
  exclude_used(root, stack_.frame(item.data).used, item, own);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= own[i];
  give_scratch(std::move(own));
}

std::vector<uint32_t> MaskBuilder::take_scratch(size_t n) {
  std::vector<uint32_t> words;
  if (!spare_.empty()) {
    words = std::move(spare_.back());
    spare_.pop_back();
  }
  words.assign(n, 0);
  return words;
}

// Clears what the texts of the list forbid below the node.
void MaskBuilder::exclude_used(uint32_t root, uint32_t list, const Item& item, std::span<uint32_t> bits) {
  const std::string_view so_far = stack_.text(item.start, stack_.position());
  for (; list != kNone; list = stack_.used(list).next) {
    const Stack::Used& used = stack_.used(list);
    const std::string_view text = stack_.text(used.begin, used.begin + used.size);
    if (text.starts_with(so_far)) exclude(root, text.substr(so_far.size()), item, bits);
  }
}

// Likewise for the keys that slots have or that are forbidden, side by side with the trie.
void MaskBuilder::exclude_reserved(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const ByteDfa& reserved = source_.program.objects[item.index()].reserved_keys->dfa;
  const TokenTrie& trie = source_.vocabulary.trie();
  struct Visit {
    uint32_t state, node;
    std::string rest;
  };
  std::vector<Visit> open{
      {reserved.run(reserved.start(), stack_.text(item.start, stack_.position())), root, ""}};
  while (!open.empty()) {
    const Visit at = std::move(open.back());
    open.pop_back();
    if (at.state == ByteDfa::kDead) continue;
    // Where no token goes on with a key, one may end within it, and lead to nothing else.
    bool ends = reserved.tag(at.state) != 0;
    for (const ByteEdge& e : reserved.edges(at.state)) {
      const uint32_t child = trie.child(at.node, e.first);
      if (child == trie.size()) {
        ends = true;
        continue;
      }
      open.push_back({e.target, child, at.rest + static_cast<char>(e.first)});
    }
    if (ends) exclude(root, at.rest, item, bits);
  }
}

// The item must not become so_far + rest: clears the tokens that end there, or where nothing else is left.
void MaskBuilder::exclude(uint32_t root, std::string_view rest, const Item& item, std::span<uint32_t> bits) {
  const TokenTrie& trie = source_.vocabulary.trie();
  const Restore restore(*this);
  items_.push_back(item);
  Config config{static_cast<uint32_t>(items_.size() - 1), static_cast<uint32_t>(items_.size())};
  uint32_t node = root;
  for (const char c : rest) {
    node = trie.child(node, static_cast<uint8_t>(c));
    if (node == trie.size()) return;
    config = stepper_.step(config, static_cast<uint8_t>(c));
    if (!config.dead()) continue;
    for (const int32_t token : trie.values_below(node)) clear_bit(bits, token);
    return;
  }
}

template <class Visit>
void MaskBuilder::walk(const TokenTrie& trie, uint32_t root, const Config& config, bool delegates,
                       Visit&& visit, std::span<uint32_t> bits) {
  struct Level {
    uint32_t end;
    Config config;
    Stack::Mark mark;
    size_t n_items;
    std::bitset<256> first;
  };
  std::vector<Level> levels;
  const auto enter = [&](uint32_t node, const Config& there) {
    Level& level = levels.emplace_back(Level{trie.node(node).end, there, stack_.mark(), items_.size(), {}});
    for (uint32_t i = there.begin; i < there.end; ++i)
      add_first_bytes(source_.program, stack_, items_[i], level.first);
  };
  enter(root, config);
  for (uint32_t i = root + 1; i < trie.node(root).end;) {
    while (i >= levels.back().end) levels.pop_back();
    const TokenTrie::Node& node = trie.node(i);
    const Level& at = levels.back();
    if (!at.first[node.byte]) {
      i = node.end;
      continue;
    }
    cut(at.mark, at.n_items);
    const Config next = stepper_.step(at.config, node.byte);
    if (next.dead()) {
      i = node.end;
      continue;
    }
    visit(i);
    if (delegates && node.end - i > kSmallSubtree) {
      below(i, next, bits);
      i = node.end;
      continue;
    }
    if (node.end > i + 1) enter(i, next);
    ++i;
  }
}

}  // namespace penstock::grammar
