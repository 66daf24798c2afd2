#include "grammar/vocabulary/lexeme_masks.h"

#include <algorithm>
#include <array>

#include "grammar/parts/intern_table.h"
#include "grammar/parts/utf8_forms.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxMemory = 16 << 20;  // bytes, for one lexeme's masks
constexpr uint32_t kWorthAsking = 8;     // nodes; smaller subtrees are walked directly

// Whether every path through the parts of a character leads from `state` to `target`.
bool all_lead_to(const ByteDfa& dfa, uint32_t state, std::span<const utf8::ByteRange> parts,
                 uint32_t target) {
  if (parts.empty()) return state == target;
  for (int byte = parts.front().first; byte <= parts.front().last; ++byte) {
    const uint32_t next = dfa.step(state, static_cast<uint8_t>(byte)) & ~ByteDfa::kEndsChar;
    if (next == ByteDfa::kDead) return false;
    // Adjacent bytes mostly lead to the same state.
    const bool known =
        byte > parts.front().first &&
        next == (dfa.step(state, static_cast<uint8_t>(byte - 1)) & ~ByteDfa::kEndsChar);
    if (!known && !all_lead_to(dfa, next, parts.subspan(1), target)) return false;
  }
  return true;
}

// Returns the kinds of bytes that do not change the state; kBeyondAscii: whole characters.
uint16_t loops(const ByteDfa& dfa, uint32_t state) {
  uint16_t others = byte_kinds::kBroken;
  for (int byte = 0; byte < 0x80; ++byte) {
    if ((dfa.step(state, static_cast<uint8_t>(byte)) & ~ByteDfa::kEndsChar) != state)
      others |= byte_kinds::of(static_cast<uint8_t>(byte));
  }
  const auto whole = [&](const utf8::Form& form) {
    return all_lead_to(dfa, state, form.parts(), state);
  };
  if (!std::all_of(utf8::kForms.begin(), utf8::kForms.end(), whole))
    others |= byte_kinds::kBeyondAscii;
  return static_cast<uint16_t>(~others);
}

// Adds the states after all paths through the parts of a character; returns whether no path is
// dead.
bool add_behind(const ByteDfa& dfa, uint32_t state, std::span<const utf8::ByteRange> parts,
                std::vector<uint32_t>& states) {
  if (parts.empty()) {
    if (std::ranges::find(states, state) == states.end()) states.push_back(state);
    return true;
  }
  uint32_t before = ByteDfa::kDead;
  for (int byte = parts.front().first; byte <= parts.front().last; ++byte) {
    const uint32_t next = dfa.step(state, static_cast<uint8_t>(byte)) & ~ByteDfa::kEndsChar;
    if (next == ByteDfa::kDead) return false;
    if (next != before && !add_behind(dfa, next, parts.subspan(1), states)) return false;
    before = next;
  }
  return true;
}

// Kinds of bytes other than plain text, of which nothing ends a string or needs an escape in JSON.
constexpr uint16_t kNotPlain =
    byte_kinds::kQuote | byte_kinds::kBackslash | byte_kinds::kControl | byte_kinds::kBroken;

// As add_behind(), for all plain characters.
bool add_behind_plain(const ByteDfa& dfa, uint32_t state, std::vector<uint32_t>& states) {
  uint32_t before = ByteDfa::kDead;
  for (int byte = 0; byte < 0x80; ++byte) {
    if ((byte_kinds::of(static_cast<uint8_t>(byte)) & kNotPlain) != 0) continue;
    const uint32_t next = dfa.step(state, static_cast<uint8_t>(byte)) & ~ByteDfa::kEndsChar;
    if (next == ByteDfa::kDead) return false;
    if (next != before) add_behind(dfa, next, {}, states);
    before = next;
  }
  return std::ranges::all_of(utf8::kForms, [&](const utf8::Form& form) {
    return add_behind(dfa, state, form.parts(), states);
  });
}

// Walks the trie with one lexeme.
class ScanWalk {
 public:
  ScanWalk(const Lexeme& lexeme, const Vocabulary& vocabulary, const CountWindow& left)
      : lexeme_(lexeme),
        vocabulary_(vocabulary),
        trie_(vocabulary.trie()),
        window_(lexeme.any_content ? CountWindow{} : left),
        inside_(vocabulary.mask_words()),
        loops_(lexeme.dfa.n_states(), kUnknown),
        keeps_plain_(lexeme.dfa.n_states(), kUnknown) {}

  ScanMask run(uint32_t state, uint32_t root) {
    std::vector<Level> levels{{trie_.node(root).end, state, 0}};
    for (uint32_t i = root + 1; i < trie_.node(root).end;) {
      while (i >= levels.back().end) leave(levels);
      ++mask_.n_visited;
      Level& at = levels.back();
      const uint32_t next = lexeme_.dfa.step(at.state, trie_.node(i).byte);
      const uint32_t to = next & ~ByteDfa::kEndsChar;
      const uint64_t count = at.count + ((next & ByteDfa::kEndsChar) != 0);
      if (!lexeme_.alive(to, count, window_)) {
        at.all_inside = false;
        i = trie_.node(i).end;
        continue;
      }
      if (stays(i, to, count)) {
        set_bits(inside_, trie_.values_below(i));
        i = trie_.node(i).end;
        continue;
      }
      const size_t n_exits = mask_.exits.size();
      visit(i, to, count);
      if (trie_.node(i).end > i + 1) levels.push_back({trie_.node(i).end, to, count, n_exits});
      ++i;
    }
    while (levels.size() > 1) leave(levels);
    return finish();
  }

 private:
  struct Level {
    uint32_t end, state;
    uint64_t count;
    size_t n_exits = 0;      // number of exits before the node's own
    bool all_inside = true;  // whether all tokens below stay inside
  };

  // Drops the exits below a node whose tokens all stay inside. For lexemes of any content the
  // window decides later.
  void leave(std::vector<Level>& levels) {
    const Level left = levels.back();
    levels.pop_back();
    if (left.all_inside && !lexeme_.any_content) {
      mask_.exits.resize(left.n_exits);
    } else {
      levels.back().all_inside = false;
    }
  }

  // Whether every token below the node stays inside the lexeme: in one state, as in most of a
  // string, or in a few states, as when a pattern is searched in plain text.
  bool stays(uint32_t node, uint32_t state, uint64_t count) {
    const TokenTrie::Node& at = trie_.node(node);
    if (lexeme_.any_content || lexeme_.dfa.tag(state) != 0 || at.end - node < kWorthAsking)
      return false;
    if ((at.kinds & ~loops_of(state)) != 0)
      return window_.trivial() && (at.kinds & kNotPlain) == 0 && keeps_plain(state);
    return window_.trivial() ||
           (at.height < TokenTrie::kMaxHeight && lexeme_.alive(state, count + at.height, window_));
  }

  uint16_t loops_of(uint32_t state) {
    uint16_t& known = loops_[state];
    if (known == kUnknown) known = loops(lexeme_.dfa, state);
    return known;
  }

  // Whether plain characters lead only to a few non-accepting states that all continue with plain
  // characters.
  bool keeps_plain(uint32_t state) {
    constexpr size_t kFew = 64;
    uint16_t& known = keeps_plain_[state];
    if (known != kUnknown) return known != 0;
    if (n_asked_ > kMostAsked) return false;
    std::vector<uint32_t> states{state};
    bool keeps = true;
    for (size_t i = 0; i < states.size() && keeps; ++i, ++n_asked_) {
      const uint16_t other = keeps_plain_[states[i]];
      keeps = other != kUnknown ? other != 0
                                : states.size() <= kFew && lexeme_.dfa.tag(states[i]) == 0 &&
                                      add_behind_plain(lexeme_.dfa, states[i], states);
    }
    if (keeps) {
      for (const uint32_t each : states) keeps_plain_[each] = 1;
    }
    known = keeps ? 1 : 0;
    return keeps;
  }

  void visit(uint32_t node, uint32_t state, uint64_t count) {
    const bool accepts = lexeme_.accepts(state, count, window_);
    if (accepts && lexeme_.quoted) {
      for (const auto& [suffix, token] : vocabulary_.behind_quote(node)) {
        mask_.quote_exits.push_back(
            {suffix, lexeme_.dfa.tag(state), static_cast<uint32_t>(count), token});
      }
      return;  // nothing may follow the quotation mark
    }
    const auto tokens = trie_.values(node);
    set_bits(inside_, tokens);
    if (lexeme_.any_content) {
      const auto chars = static_cast<uint32_t>(count + (lexeme_.dfa.inside_char(state) ? 1 : 0));
      for (const int32_t token : tokens) mask_.counted.push_back({chars, token});
    }
    if (accepts && trie_.node(node).end > node + 1) mask_.exits.push_back({node, state});
  }

  ScanMask finish() {
    mask_.inside = TokenSet(inside_);
    std::stable_sort(mask_.quote_exits.begin(), mask_.quote_exits.end(),
                     [](const auto& a, const auto& b) { return a.suffix < b.suffix; });
    std::stable_sort(mask_.counted.begin(), mask_.counted.end(),
                     [](const auto& a, const auto& b) { return a.count > b.count; });
    mask_.exits.shrink_to_fit();
    mask_.quote_exits.shrink_to_fit();
    mask_.counted.shrink_to_fit();
    return std::move(mask_);
  }

  const Lexeme& lexeme_;
  const Vocabulary& vocabulary_;
  const TokenTrie& trie_;
  CountWindow window_;
  ScanMask mask_;
  std::vector<uint32_t> inside_;
  static constexpr uint16_t kUnknown = UINT16_MAX;
  std::vector<uint16_t> loops_;        // by state
  std::vector<uint16_t> keeps_plain_;  // by state, 0 or 1
  static constexpr uint32_t kMostAsked = 128;
  uint32_t n_asked_ = 0;  // states whose plain characters were followed
};

}  // namespace

size_t ScanMask::memory() const {
  return sizeof(*this) + inside.memory() + exits.capacity() * sizeof(Exit) +
         quote_exits.capacity() * sizeof(QuoteExit) + counted.capacity() * sizeof(Counted);
}

size_t LexemeMasks::KeyHash::operator()(const Key& key) const {
  return mix(mix(mix(key.state, key.root), key.left.min), key.left.max);
}

CountWindow LexemeMasks::window_key(CountWindow left) const {
  if (lexeme_.any_content || left.trivial()) return {};
  return clipped(left, kLongestToken + lexeme_.lengths.n_sets());
}

std::shared_ptr<const ScanMask> LexemeMasks::get(uint32_t state, CountWindow left, uint32_t root,
                                                 WorkMeter& work) {
  const Key key{state, root, window_key(left)};
  {
    const std::scoped_lock lock(mutex_);
    if (const auto it = masks_.find(key); it != masks_.end()) return it->second;
  }
  auto mask = build(key);
  constexpr uint32_t kPerOperation = 8;  // nodes
  work.spend(1 + mask->n_visited / kPerOperation);
  const std::scoped_lock lock(mutex_);
  if (memory_ + mask->memory() > kMaxMemory) {
    masks_.clear();
    memory_ = 0;
  }
  memory_ += mask->memory();
  return masks_.emplace(key, std::move(mask)).first->second;
}

std::shared_ptr<const ScanMask> LexemeMasks::build(const Key& key) const {
  return std::make_shared<ScanMask>(
      ScanWalk(lexeme_, vocabulary_, key.left).run(key.state, key.root));
}

size_t LexemeMasks::clear() {
  const std::scoped_lock lock(mutex_);
  masks_.clear();
  return memory_.exchange(0);
}

void LexemeMaskRegistry::prepare(const Vocabulary& vocabulary) {
  const CommonLexemes& common = CommonLexemes::get();
  WorkMeter work;
  for (const auto& lexeme : {common.string, common.canonical_string})
    of(lexeme, vocabulary)->get(lexeme->start(), {}, 0, work);
}

std::shared_ptr<LexemeMasks> LexemeMaskRegistry::of(const std::shared_ptr<const Lexeme>& lexeme,
                                                    const Vocabulary& vocabulary) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = entries_[lexeme.get()];
  if (auto masks = entry.masks.lock(); masks && entry.lexeme.lock() == lexeme) return masks;
  auto masks = std::make_shared<LexemeMasks>(*lexeme, vocabulary);
  entry = {lexeme, masks};
  const CommonLexemes& shared = CommonLexemes::get();
  const std::array common{shared.string, shared.canonical_string, shared.number, shared.integer,
                          shared.plain_integer};
  if (std::find(common.begin(), common.end(), lexeme) != common.end()) common_.push_back(masks);
  if (entries_.size() > most_entries_) {
    std::erase_if(entries_, [](const auto& e) { return e.second.masks.expired(); });
    // keeps the amortized cost of sweeps constant
    most_entries_ = std::max(kFewEntries, 2 * entries_.size());
  }
  return masks;
}

}  // namespace penstock::grammar
