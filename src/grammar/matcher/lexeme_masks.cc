#include "grammar/matcher/lexeme_masks.h"

#include <algorithm>
#include <array>

#include "grammar/intern_table.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxMemory = 16 << 20;  // of one lexeme's masks

// Walks the trie with one lexeme.
class ScanWalk {
 public:
  ScanWalk(const Lexeme& lexeme, const Vocabulary& vocabulary, const CountWindow& left)
      : lexeme_(lexeme),
        vocabulary_(vocabulary),
        trie_(vocabulary.trie()),
        window_(lexeme.any_content ? CountWindow{} : left) {}

  ScanMask run(uint32_t state, uint32_t root) {
    std::vector<Level> levels{{trie_.node(root).end, state, 0}};
    for (uint32_t i = root + 1; i < trie_.node(root).end;) {
      while (i >= levels.back().end) levels.pop_back();
      const Level& at = levels.back();
      const uint32_t next = lexeme_.dfa.step(at.state, trie_.node(i).byte);
      const uint32_t to = next & ~ByteDfa::kEndsChar;
      const uint64_t count = at.count + ((next & ByteDfa::kEndsChar) != 0);
      if (!lexeme_.alive(to, count, window_)) {
        i = trie_.node(i).end;
        continue;
      }
      visit(i, to, count);
      levels.push_back({trie_.node(i).end, to, count});
      ++i;
    }
    return finish();
  }

 private:
  struct Level {
    uint32_t end, state;
    uint64_t count;
  };

  void visit(uint32_t node, uint32_t state, uint64_t count) {
    const bool accepts = lexeme_.accepts(state, count, window_);
    if (accepts && lexeme_.quoted) {
      for (const auto& [suffix, token] : vocabulary_.behind_quote(node)) {
        mask_.quote_exits.push_back({suffix, lexeme_.dfa.tag(state), static_cast<uint32_t>(count), token});
      }
      return;  // nothing goes on behind the quotation mark
    }
    const auto tokens = trie_.values(node);
    inside_.insert(inside_.end(), tokens.begin(), tokens.end());
    if (lexeme_.any_content) {
      const auto chars = static_cast<uint32_t>(count + (lexeme_.dfa.inside_char(state) ? 1 : 0));
      for (const int32_t token : tokens) mask_.counted.push_back({chars, token});
    }
    if (accepts && trie_.node(node).end > node + 1) mask_.exits.push_back({node, lexeme_.dfa.tag(state)});
  }

  ScanMask finish() {
    mask_.inside = TokenSet(std::move(inside_), vocabulary_.mask_words());
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
  std::vector<int32_t> inside_;
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

std::shared_ptr<const ScanMask> LexemeMasks::get(uint32_t state, CountWindow left, uint32_t root) {
  const Key key{state, root, window_key(left)};
  {
    const std::scoped_lock lock(mutex_);
    if (const auto it = masks_.find(key); it != masks_.end()) return it->second;
  }
  auto mask = build(key);
  const std::scoped_lock lock(mutex_);
  if (memory_ + mask->memory() > kMaxMemory) {
    masks_.clear();
    memory_ = 0;
  }
  memory_ += mask->memory();
  return masks_.emplace(key, std::move(mask)).first->second;
}

std::shared_ptr<const ScanMask> LexemeMasks::build(const Key& key) const {
  return std::make_shared<ScanMask>(ScanWalk(lexeme_, vocabulary_, key.left).run(key.state, key.root));
}

size_t LexemeMasks::clear() {
  const std::scoped_lock lock(mutex_);
  masks_.clear();
  return memory_.exchange(0);
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
  if (entries_.size() > 4096) std::erase_if(entries_, [](const auto& e) { return e.second.masks.expired(); });
  return masks;
}

}  // namespace penstock::grammar
