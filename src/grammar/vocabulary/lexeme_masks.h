// Masks of lexemes: the tokens that stay inside a lexeme and those that leave it. Masks of grammars
// are composed of them.
//
// A mask depends only on the lexeme, its state and the vocabulary, so that all positions, requests
// and grammars share it. Thread-safe; the first caller computes a mask.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "grammar/lexer/lexeme.h"
#include "grammar/parts/work_meter.h"
#include "grammar/vocabulary/token_set.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Maximum bytes of a token; longer ones are cut to it where counts are compared. The longest tokens
// of known vocabularies have 128.
inline constexpr uint64_t kLongestToken = 256;

// The mask of the tokens below one node of the trie, from one state of a lexeme.
struct ScanMask {
  // Tokens after which the lexeme can continue; for lexemes that end immediately also those that
  // end it.
  TokenSet inside;
  // Lexemes without quotation marks: nodes at which the lexeme may end in `state` and below which
  // there are tokens that are not in `inside`; ascending nodes.
  struct Exit {
    uint32_t node, state;
  };
  std::vector<Exit> exits;
  // Quoted lexemes: tokens that end the lexeme at a quotation mark, by the suffix after the mark.
  struct QuoteExit {
    uint32_t suffix, tag, count;  // count: characters before the quotation mark
    int32_t token;
  };
  std::vector<QuoteExit> quote_exits;  // in order of suffix
  // Lexemes of any content: tokens of `inside` with their numbers of characters, most first, if a
  // window may need them.
  struct Counted {
    uint32_t count;
    int32_t token;
  };
  std::vector<Counted> counted;
  // number of trie nodes visited to make the mask
  uint32_t n_visited = 0;
  size_t memory() const;
};

// The masks of one lexeme.
class LexemeMasks {
 public:
  LexemeMasks(const Lexeme& lexeme, const Vocabulary& vocabulary)
      : lexeme_(lexeme), vocabulary_(vocabulary) {}

  // Returns the mask from `state` of the tokens below node `root` of vocabulary.trie(). left:
  // remaining window of the leaf; for lexemes of any content the caller applies it, by
  // ScanMask::counted. Computing a mask is counted on `work`.
  std::shared_ptr<const ScanMask> get(uint32_t state, CountWindow left, uint32_t root,
                                      WorkMeter& work);
  // Clears the cache; returns the number of bytes freed.
  size_t clear();
  size_t memory() const { return memory_.load(std::memory_order_relaxed); }

 private:
  struct Key {
    uint32_t state, root;
    CountWindow left;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  CountWindow window_key(CountWindow left) const;
  std::shared_ptr<const ScanMask> build(const Key& key) const;

  const Lexeme& lexeme_;
  const Vocabulary& vocabulary_;
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const ScanMask>, KeyHash> masks_;
  std::atomic<size_t> memory_ = 0;
};

// The masks of all lexemes over one vocabulary. Thread-safe.
class LexemeMaskRegistry {
 public:
  // Returns the masks of a lexeme. They live as long as a caller holds them; those of CommonLexemes
  // live as long as the registry.
  std::shared_ptr<LexemeMasks> of(const std::shared_ptr<const Lexeme>& lexeme,
                                  const Vocabulary& vocabulary);
  // Precomputes the masks of strings, which every JSON grammar needs and which take longest.
  void prepare(const Vocabulary& vocabulary);

 private:
  struct Entry {
    std::weak_ptr<const Lexeme> lexeme;
    std::weak_ptr<LexemeMasks> masks;
  };
  static constexpr size_t kFewEntries = 4096;
  std::mutex mutex_;
  // may include expired lexemes, up to most_entries_
  std::unordered_map<const Lexeme*, Entry> entries_;
  size_t most_entries_ = kFewEntries;
  std::vector<std::shared_ptr<LexemeMasks>> common_;
};

}  // namespace penstock::grammar
