// Which tokens stay inside of a lexeme, and where they leave it: what masks are put together from.
//
// It depends on the lexeme, its state and the vocabulary only, so that every position, request and grammar that comes to
// the same state shares it. Any thread may ask; what is not known yet is worked out by the one who asks first.
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

// No token has more bytes, or is cut to that many where counts are compared; vocabularies' longest have 128.
inline constexpr uint64_t kLongestToken = 256;

// Of the tokens below one node of the trie, from one state.
struct ScanMask {
  // Tokens behind which the lexeme can go on; of lexemes that end at once, those that end it too.
  TokenSet inside;
  // Lexemes without quotation marks: nodes behind which the lexeme may have ended in `state` and a token goes on that is not inside; nodes
  // ascend.
  struct Exit {
    uint32_t node, state;
  };
  std::vector<Exit> exits;
  // Quoted ones: tokens that end the lexeme at a quotation mark, by what follows it.
  struct QuoteExit {
    uint32_t suffix, tag, count;  // count: characters before the quotation mark
    int32_t token;
  };
  std::vector<QuoteExit> quote_exits;  // by suffix
  // Lexemes of any content: tokens inside by how many characters they have, most first, where a window may need them.
  struct Counted {
    uint32_t count;
    int32_t token;
  };
  std::vector<Counted> counted;
  uint32_t n_visited = 0;  // nodes that making it took
  size_t memory() const;
};

// The masks of one lexeme.
class LexemeMasks {
 public:
  LexemeMasks(const Lexeme& lexeme, const Vocabulary& vocabulary)
      : lexeme_(lexeme), vocabulary_(vocabulary) {}

  // From `state` below the node `root` of vocabulary.trie(). left: what is left of the leaf's window; of lexemes of any
  // content it is left to the caller, who looks at the counts. What has to be made is counted.
  std::shared_ptr<const ScanMask> get(uint32_t state, CountWindow left, uint32_t root, WorkMeter& work);
  // Forgets all. Returns how many bytes that were.
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

// The masks of all lexemes over one vocabulary. Any thread may call.
class LexemeMaskRegistry {
 public:
  // The masks live as long as a caller holds them, those of the lexemes that all grammars share for ever.
  std::shared_ptr<LexemeMasks> of(const std::shared_ptr<const Lexeme>& lexeme, const Vocabulary& vocabulary);
  // Makes those that the first string of any grammar needs, which take longest.
  void prepare(const Vocabulary& vocabulary);

 private:
  struct Entry {
    std::weak_ptr<const Lexeme> lexeme;
    std::weak_ptr<LexemeMasks> masks;
  };
  static constexpr size_t kFewEntries = 4096;
  std::mutex mutex_;
  std::unordered_map<const Lexeme*, Entry> entries_;  // also of lexemes that are gone, up to most_entries_
  size_t most_entries_ = kFewEntries;
  std::vector<std::shared_ptr<LexemeMasks>> common_;
};

}  // namespace penstock::grammar
