#include "grammar/matcher/mask_builder.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace penstock::grammar {
namespace {

// Subtrees with fewer nodes are walked without precomputed masks.
constexpr uint32_t kSmallSubtree = 64;

}  // namespace

// Truncates the stack and the items in the destructor.
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

// Builds the configurations at the exits of several lexemes, each of which may end there. Results
// are shared between nodes at which the same lexemes end. For lexemes that may follow themselves,
// the part that continues inside the lexeme is omitted.
class MaskBuilder::ExitMaker {
 public:
  ExitMaker(MaskBuilder& builder, std::span<const Scan> scans)
      : builder_(builder), scans_(scans), at_(scans.size(), 0) {}

  std::vector<Exit> run() {
    std::vector<Exit> exits;
    const TokenTrie& trie = builder_.source_.vocabulary.trie();
    while (const uint32_t node = next()) {
      if (!builder_.stack_.work().spend(1)) break;
      const Behind& behind = of_key();
      const uint32_t end = trie.node(node).end;
      for (uint32_t child = node + 1; child < end; child = trie.node(child).end) {
        if (!behind.first[trie.node(child).byte]) continue;
        exits.push_back({node, behind.config});
        break;
      }
    }
    return exits;
  }

 private:
  struct Behind {
    Config config;
    std::bitset<256> first;
    bool recurs = false;  // continues with one of the lexemes
  };
  // the scans that end (high halves) and their states (low halves)
  using Key = std::vector<uint64_t>;

  // Returns the next node at which a lexeme ends and sets key_; 0: none.
  uint32_t next() {
    uint32_t node = kNone;
    for (size_t i = 0; i < scans_.size(); ++i) {
      const auto& list = scans_[i].mask->exits;
      if (at_[i] < list.size()) node = std::min(node, list[at_[i]].node);
    }
    key_.clear();
    for (uint32_t i = 0; i < scans_.size() && node != kNone; ++i) {
      const auto& list = scans_[i].mask->exits;
      if (at_[i] == list.size() || list[at_[i]].node != node) continue;
      key_.push_back(uint64_t{i} << 32 | list[at_[i]++].state);
    }
    builder_.stack_.work().spend(scans_.size() / 8);
    return node == kNone ? 0 : node;
  }

  const Behind& of_key() {
    if (key_ == last_key_) return *last_;
    last_key_ = key_;
    Key of_any_state = key_;
    for (uint64_t& each : of_any_state) each |= 0xFFFFFFFF;
    auto [it, is_new] = known_.try_emplace(std::move(of_any_state));
    if (is_new) it->second = make(false);
    if (it->second.recurs) {
      std::tie(it, is_new) = known_.try_emplace(key_);
      if (is_new) it->second = make(true);
    }
    return *(last_ = &it->second);
  }

  Behind make(bool without_inside) {
    std::vector<Item> ending, inside;
    for (const uint64_t each : key_) {
      ending.push_back(scans_[each >> 32].item);
      if (!without_inside || !has_one_count(ending.back())) continue;
      inside.push_back(ending.back());
      inside.back().state = static_cast<uint32_t>(each);
    }
    std::vector<Item>& items = builder_.items_;
    Behind behind{builder_.stepper_.ended(ending, inside), {}};
    auto& [begin, end, complete] = behind.config;
    const auto is_inside = [&](const Item& item) {
      return std::find(inside.begin(), inside.end(), item) != inside.end();
    };
    items.erase(std::remove_if(items.begin() + begin, items.end(), is_inside), items.end());
    end = static_cast<uint32_t>(items.size());
    behind.first = builder_.first_bytes(behind.config);
    behind.recurs = std::any_of(items.begin() + begin, items.end(), [&](const Item& item) {
      return std::any_of(ending.begin(), ending.end(),
                         [&](const Item& e) { return e.point == item.point; });
    });
    return behind;
  }

  // Whether the item's count of characters does not matter.
  bool has_one_count(const Item& item) const {
    const Program& program = builder_.source_.program;
    const uint32_t leaf = item.kind() == Point::kScan ? program.code[item.index()].a : item.index();
    return program.leaves[leaf].window.trivial();
  }

  MaskBuilder& builder_;
  std::span<const Scan> scans_;
  std::vector<size_t> at_;  // next exit of each scan
  Key key_, last_key_;
  const Behind* last_ = nullptr;
  std::map<Key, Behind> known_;
};

void MaskBuilder::cut(const Stack::Mark& mark, size_t n_items) {
  stack_.cut(mark);
  hasher_.cut(mark.nodes);
  items_.resize(n_items);
}

void MaskBuilder::fill(const Config& config, bool first, std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  if (stack_.work().failed()) return;
  StateHash key = hasher_.of(std::span(items_).subspan(config.begin, config.end - config.begin),
                             config.complete);
  key.add(first);
  if (const auto found = source_.cache.find(key)) {
    found->add_to(bits);
    return;
  }
  build(config, first, bits);
  if (stack_.work().failed()) return std::fill(bits.begin(), bits.end(), 0);
  source_.cache.insert(key, TokenSet(bits));
}

void MaskBuilder::build(const Config& config, bool first, std::span<uint32_t> bits) {
  if (config.complete) {
    for (const TokenId end : source_.vocabulary.ends()) set_bit(bits, end);
  }
  for (uint32_t i = config.begin; i < config.end; ++i) {
    if (items_[i].kind() == Point::kToken)
      set_bit(bits, static_cast<int32_t>(source_.program.code[items_[i].index()].a));
  }
  const TokenTrie& trie = source_.vocabulary.trie(first);
  const Restore restore(*this);
  const bool usual = &trie == &source_.vocabulary.trie();
  if (!usual) set_bits(bits, trie.values(0));
  walk(trie, config, usual, [&](uint32_t node) { set_bits(bits, trie.values(node)); }, bits);
}

// Takes out the lexemes for which precomputed masks are useful and returns the remaining
// configuration. Appends their exits below the node.
Config MaskBuilder::take_out(uint32_t node, const Config& config, std::span<uint32_t> bits,
                             std::vector<Exits>& exits) {
  std::vector<Item> rest;
  std::vector<Scan> scans;
  for (uint32_t i = config.begin; i < config.end; ++i) {
    const Item item = items_[i];
    if (item.kind() == Point::kScan) {
      scan(node, item, source_.program.code[item.index()].a, scans, bits);
    } else if (item.kind() == Point::kLeaf) {
      scan(node, item, item.index(), scans, bits);
    } else if (!take_out_key(node, item, bits)) {
      rest.push_back(item);
    }
  }
  if (!scans.empty()) {
    Exits found{source_.vocabulary.trie().node(node).end, ExitMaker(*this, scans).run()};
    if (!found.list.empty()) exits.push_back(std::move(found));
  }
  const auto first = static_cast<uint32_t>(items_.size());
  items_.insert(items_.end(), rest.begin(), rest.end());
  return {first, static_cast<uint32_t>(items_.size())};
}

// As take_out(), for a key or item that must not be repeated; returns whether the item is one.
bool MaskBuilder::take_out_key(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  if (item.kind() == Point::kOtherKey) {
    other_key(root, item, bits);
    return true;
  }
  if (item.kind() != Point::kUniqueLeaf || !source_.program.unique_leaves[item.index()].quoted)
    return false;
  unique_string(root, item, bits);
  return true;
}

// Sets the bits of tokens inside the item's lexeme, and of tokens that continue after its quotation
// mark. A lexeme with other exits is added to the scans.
void MaskBuilder::scan(uint32_t root, const Item& item, uint32_t leaf_index,
                       std::vector<Scan>& scans, std::span<uint32_t> bits) {
  const Leaf& leaf = source_.program.leaves[leaf_index];
  const CountWindow left = leaf.window.after(item.count);
  auto mask = source_.leaf_masks[leaf_index]->get(item.state, left, root, stack_.work());
  if (leaf.lexeme->any_content && !mask->counted.empty() &&
      mask->counted.front().count > left.max) {
    add_counted(*mask, left.max, bits);
  } else {
    mask->inside.add_to(bits);
  }
  if (!mask->quote_exits.empty()) {
    const Restore restore(*this);
    const Config behind = stepper_.ended(item, 1);
    add_quote_exits({item, root}, *mask, leaf.lexeme->any_content ? left : CountWindow{}, kNone,
                    behind, bits);
  }
  if (!mask->exits.empty()) scans.push_back({item, std::move(mask)});
}

std::bitset<256> MaskBuilder::first_bytes(const Config& config) const {
  std::bitset<256> first;
  for (uint32_t i = config.begin; i < config.end; ++i)
    add_first_bytes(source_.program, stack_, items_[i], first);
  return first;
}

// Adds the tokens inside a lexeme of any content with at most `most` characters.
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

// Adds the tokens that end the item's lexeme at a quotation mark and continue as `behind` allows.
// tag kNone: any tag.
void MaskBuilder::add_quote_exits(const Place& place, const ScanMask& mask, const CountWindow& left,
                                  uint32_t tag, const Config& behind, std::span<uint32_t> bits) {
  const auto allowed = suffixes(behind);
  const auto& exits = mask.quote_exits;
  const auto for_each = [&](const std::vector<int32_t>& list, auto&& take) {
    for (const int32_t suffix : list) {
      auto it = std::partition_point(exits.begin(), exits.end(), [&](const auto& e) {
        return e.suffix < static_cast<uint32_t>(suffix);
      });
      for (; it != exits.end() && it->suffix == static_cast<uint32_t>(suffix); ++it) {
        if ((tag == kNone || it->tag == tag) && it->count >= left.min && it->count <= left.max)
          take(it->token);
      }
    }
  };
  for_each(allowed->sure, [&](int32_t token) { set_bit(bits, token); });
  for_each(allowed->unsure, [&](int32_t token) {
    if (allows(place, source_.vocabulary.bytes(token))) set_bit(bits, token);
  });
}

// Whether the item accepts the token's bytes below its node.
bool MaskBuilder::allows(const Place& place, std::string_view bytes) {
  const TokenTrie& trie = source_.vocabulary.trie();
  size_t depth = 0;
  for (uint32_t node = 0; node != place.node; ++depth)
    node = trie.child(node, static_cast<uint8_t>(bytes[depth]));
  const Restore restore(*this);
  items_.push_back(place.item);
  Config config{static_cast<uint32_t>(items_.size() - 1), static_cast<uint32_t>(items_.size())};
  for (const char c : bytes.substr(depth)) {
    config = stepper_.step(config, static_cast<uint8_t>(c));
    if (config.dead()) return false;
  }
  return true;
}

std::shared_ptr<const MaskCache::Suffixes> MaskBuilder::suffixes(const Config& behind) {
  const StateHash key = hasher_.of(
      std::span(items_).subspan(behind.begin, behind.end - behind.begin), behind.complete);
  if (auto found = source_.cache.find_suffixes(key)) return found;
  const Restore restore(*this);
  const TokenTrie& trie = source_.vocabulary.quote_suffixes();
  MaskCache::Suffixes result;
  if (!behind.dead()) result.sure.assign(trie.values(0).begin(), trie.values(0).end());
  stepper_.looked_at_used();
  walk(trie, behind, false,
       [&](uint32_t node) {
         if (stepper_.looked_at_used())
           unsure_until_ = std::max(unsure_until_, trie.node(node).end);
         auto& list = node < unsure_until_ ? result.unsure : result.sure;
         list.insert(list.end(), trie.values(node).begin(), trie.values(node).end());
       },
       {});
  unsure_until_ = 0;
  if (stack_.work().failed()) return std::make_shared<const MaskCache::Suffixes>();
  return source_.cache.insert_suffixes(key, std::move(result));
}

void MaskBuilder::other_key(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const ObjectGraph& graph = source_.program.objects[item.index()];
  const auto mask = source_.other_key_masks[item.index()]->get(item.state, {}, root, stack_.work());
  std::vector<uint32_t> own = take_scratch(bits.size());
  mask->inside.add_to(own);
  std::vector<uint32_t> tags;
  for (const ScanMask::QuoteExit& exit : mask->quote_exits) {
    if (std::find(tags.begin(), tags.end(), exit.tag) == tags.end()) tags.push_back(exit.tag);
  }
  for (const uint32_t tag : tags) {
    const Restore restore(*this);
    const Config behind = stepper_.ended(item, tag);
    if (!behind.dead()) add_quote_exits({item, root}, *mask, {}, tag, behind, own);
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
  const auto mask = source_.leaf_masks[leaf_index]->get(item.state, left, root, stack_.work());
  if (leaf.lexeme->any_content && !mask->counted.empty() &&
      mask->counted.front().count > left.max) {
    add_counted(*mask, left.max, own);
  } else {
    mask->inside.add_to(own);
  }
  if (!mask->quote_exits.empty()) {
    const Restore restore(*this);
    const Config behind = stepper_.ended(item, 1);
    add_quote_exits({item, root}, *mask, leaf.lexeme->any_content ? left : CountWindow{}, kNone,
                    behind, own);
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

// Clears the tokens that would repeat a text of the list.
void MaskBuilder::exclude_used(uint32_t root, uint32_t list, const Item& item,
                               std::span<uint32_t> bits) {
  const std::string_view so_far = stack_.text(item.start, stack_.position());
  for (; list != kNone && stack_.work().spend(1); list = stack_.used(list).next) {
    const Stack::Used& used = stack_.used(list);
    const std::string_view text = stack_.text(used.begin, used.begin + used.size);
    if (text.starts_with(so_far)) exclude(root, text.substr(so_far.size()), item, bits);
  }
}

// Clears the tokens that would spell a reserved key, walking its automaton along the trie.
void MaskBuilder::exclude_reserved(uint32_t root, const Item& item, std::span<uint32_t> bits) {
  const ByteDfa& reserved = source_.program.objects[item.index()].reserved_keys->dfa;
  const TokenTrie& trie = source_.vocabulary.trie();
  struct Visit {
    uint32_t state, node;
    std::string rest;
  };
  std::vector<Visit> open{
      {reserved.run(reserved.start(), stack_.text(item.start, stack_.position())), root, ""}};
  while (!open.empty() && stack_.work().spend(1)) {
    const Visit at = std::move(open.back());
    open.pop_back();
    if (at.state == ByteDfa::kDead) continue;
    // At a node without tokens that continue the key, tokens may end inside the key and lead to
    // nothing else.
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

// Clears the tokens after which the item is so_far + rest or can only become it.
void MaskBuilder::exclude(uint32_t root, std::string_view rest, const Item& item,
                          std::span<uint32_t> bits) {
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

void MaskBuilder::enter(const TokenTrie& trie, uint32_t node, const Arrival& arrival,
                        std::vector<Level>& levels) {
  constexpr uint64_t kChildren = 4;  // operations: most nodes have few children
  stack_.work().spend(kChildren);
  Level level{.end = trie.node(node).end,
              .dead_end = node + 1,
              .config = arrival.config,
              .mark = stack_.mark(),
              .n_items = items_.size(),
              .space = arrival.space};
  if (arrival.space == kNone) {
    level.first = first_bytes(arrival.config);
    level.space = common_space(arrival.config);
  } else {
    level.first = levels.back().first;  // of the same items
    for (const ByteEdge& e : source_.program.space->dfa.edges(arrival.space)) {
      for (int byte = e.first; byte <= e.last; ++byte) level.first.set(byte);
    }
  }
  levels.push_back(level);
}

// Returns the white-space state that all items share; kNone: they do not share one, or are few.
uint32_t MaskBuilder::common_space(const Config& config) const {
  constexpr uint32_t kFew = 4;
  if (config.end - config.begin < kFew) return kNone;
  const uint32_t state = items_[config.begin].state;
  for (uint32_t i = config.begin; i < config.end; ++i) {
    if (!waits_in_space(items_[i]) || items_[i].state != state) return kNone;
  }
  return state;
}

Config MaskBuilder::with_space(const Config& config, uint32_t space) {
  const auto begin = static_cast<uint32_t>(items_.size());
  for (uint32_t i = config.begin; i < config.end; ++i) {
    Item item = items_[i];
    item.state = space;
    items_.push_back(item);
  }
  return {begin, static_cast<uint32_t>(items_.size()), config.complete};
}

// Returns the items at a node: those stepped from the parent level and those that enter by exits.
MaskBuilder::Arrival MaskBuilder::arrive(Level& from, bool steps, uint8_t byte, uint32_t node,
                                         std::span<const Exits> exits) {
  cut(from.mark, from.n_items);
  const auto here = [&](const Exits& each) {
    return each.at < each.list.size() && each.list[each.at].node == node;
  };
  if (from.space != kNone && steps) {
    const uint32_t next = source_.program.space->dfa.step(from.space, byte) & ~ByteDfa::kEndsChar;
    if (next != ByteDfa::kDead && std::ranges::none_of(exits, here)) {
      stack_.work().spend(1);
      stack_.add_byte(byte);
      return {{from.config.begin, from.config.end}, next};
    }
    if (items_[from.config.begin].state != from.space) {
      from.config = with_space(from.config, from.space);
      from.n_items = items_.size();
    }
  }
  Config config;
  if (steps) config = stepper_.step(from.config, byte);
  for (const Exits& each : exits) {
    if (!here(each)) continue;
    const Config& behind = each.list[each.at].behind;
    config = config.dead() ? behind : stepper_.joined(config, behind);
  }
  return {config};
}

template <class Visit>
void MaskBuilder::walk(const TokenTrie& trie, const Config& config, bool delegates, Visit&& visit,
                       std::span<uint32_t> bits) {
  std::vector<Level> levels;
  std::vector<Exits> exits;
  // Returns the first node from i on and below `end` that has an exit; `end`: none.
  const auto next_exit = [&](uint32_t i, uint32_t end) {
    for (Exits& each : exits) {
      while (each.at < each.list.size() && each.list[each.at].node < i) ++each.at;
      if (each.at < each.list.size()) end = std::min(end, each.list[each.at].node);
    }
    return end;
  };
  enter(trie, 0, {delegates ? take_out(0, config, bits, exits) : config}, levels);
  for (uint32_t i = 1; i < trie.size() && !stack_.work().failed();) {
    while (i >= levels.back().end) levels.pop_back();
    while (!exits.empty() && i >= exits.back().end) exits.pop_back();
    Level& at = levels.back();
    const bool reached = i >= at.dead_end;  // a child of the level's node
    const uint32_t exit = next_exit(i, reached ? i + 1 : at.dead_end);
    if (!reached && exit == at.dead_end) {
      i = exit;
      continue;
    }
    if (!reached) i = exit;
    const TokenTrie::Node& node = trie.node(i);
    const bool steps = reached && at.first[node.byte];
    if (reached) at.dead_end = node.end;
    if (!steps && exit != i) {
      i = exits.empty() ? node.end : i + 1;
      continue;
    }
    Arrival next = arrive(at, steps, node.byte, i, exits);
    if (!next.config.dead()) visit(i);
    if (node.end > i + 1 && next.config.begin != next.config.end) {
      if (delegates && next.space == kNone && node.end - i > kSmallSubtree)
        next.config = take_out(i, next.config, bits, exits);
      enter(trie, i, next, levels);
    }
    ++i;
  }
}

}  // namespace penstock::grammar
