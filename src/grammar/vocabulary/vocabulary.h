// The tokens of a tokenizer as a trie over their bytes, over which masks are computed.
//
// Special tokens have no bytes here; grammars use them as separate terminals. Immutable, shared by
// all threads.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/utf8_forms.h"
#include "penstock/types.h"

namespace penstock {
class Tokenizer;
}

namespace penstock::grammar {

class LexemeMaskRegistry;
class Spellings;

// Kinds of bytes in a subtree: groups that an automaton often treats alike.
namespace byte_kinds {
inline constexpr uint16_t kLower = 1, kUpper = 2, kDigit = 4, kUnderscore = 8, kDash = 16,
                          kSpace = 32, kDot = 64, kSlash = 128, kColon = 256, kOtherAscii = 512,
                          kQuote = 1024, kBackslash = 2048, kControl = 4096, kBeyondAscii = 8192;
// Bytes that are ill-formed UTF-8 at their position; a truncated last character is not.
inline constexpr uint16_t kBroken = 16384;
uint16_t of(uint8_t byte);
}  // namespace byte_kinds

// Nodes are in preorder: a node's first child, if any, is the next node; `end` is the node after
// its subtree. The root (empty text) is the first node.
class TokenTrie {
 public:
  struct Node {
    uint32_t end;
    // index of the first value of the node; they end at the next node's first_token
    uint32_t first_token;
    // kinds of all bytes below the node, if a character has just ended there
    uint16_t kinds;
    uint8_t byte;
    // length in bytes of the longest text below, at most kMaxHeight
    uint8_t height;
  };
  static constexpr uint8_t kMaxHeight = 255;
  struct Entry {
    std::string_view bytes;
    int32_t value;
  };

  // Makes a trie of entries in any order; duplicate texts are allowed.
  explicit TokenTrie(std::vector<Entry> entries);

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  // values(): the values whose text ends at the node. values_below(): the values of its whole
  // subtree.
  std::span<const int32_t> values(uint32_t i) const { return between(i, i + 1); }
  std::span<const int32_t> values_below(uint32_t i) const { return between(i, nodes_[i].end); }
  // Returns the child by this byte, or size() when there is none.
  uint32_t child(uint32_t i, uint8_t byte) const;

 private:
  std::span<const int32_t> between(uint32_t from, uint32_t to) const {
    return {values_.data() + nodes_[from].first_token, values_.data() + nodes_[to].first_token};
  }
  void build(std::vector<Entry>& entries);
  void summarize();
  uint16_t kinds_of_char(uint32_t lead) const;
  uint16_t kinds_behind(uint32_t node, std::span<const utf8::ByteRange> parts) const;
  std::vector<Node> nodes_;  // including one sentinel at the end
  std::vector<int32_t> values_;
};

class Vocabulary {
 public:
  // REQUIRES: the tokenizer outlives the vocabulary.
  static std::shared_ptr<const Vocabulary> make(const Tokenizer& tokenizer);
  // tokens[i]: the bytes of token i, "" for tokens without text. ends: end-of-generation tokens.
  // special: names of special tokens.
  static std::shared_ptr<const Vocabulary> make(
      std::vector<std::string> tokens, std::vector<TokenId> ends,
      std::vector<std::pair<std::string, TokenId>> special = {});

  int size() const { return static_cast<int>(bytes_.size()); }
  size_t mask_words() const { return (bytes_.size() + 31) / 32; }
  // Returns the bytes that the token adds to a text; "" for special tokens. first: it begins the
  // text, where SentencePiece drops a space.
  std::string_view bytes(TokenId token, bool first = false) const;
  // Whether every byte that occurs in UTF-8, except control characters, is a token of its own, so
  // that any text can be written.
  bool has_bytes() const { return has_bytes_; }
  std::span<const TokenId> ends() const { return ends_; }
  std::optional<TokenId> special(std::string_view name) const;
  // The first name of a special token in a text (of several at that position the longest);
  // end-of-generation tokens are not considered.
  struct SpecialInText {
    size_t position, length;
    TokenId token;
  };
  std::optional<SpecialInText> find_special(std::string_view text) const;
  const TokenTrie& trie(bool first = false) const {
    return first && first_trie_ ? *first_trie_ : *trie_;
  }

  // The cache of lexeme masks; bounded and thread-safe.
  LexemeMaskRegistry& lexeme_masks() const { return *lexeme_masks_; }

  // The tokenizer's spellings of texts; null: the vocabulary has no tokenizer.
  Spellings* spellings() const { return spellings_.get(); }

  // The trie of the suffixes that follow a quotation mark in tokens, for masks inside strings. Its
  // values are SuffixedToken::suffix.
  const TokenTrie& quote_suffixes() const { return *suffix_trie_; }
  struct SuffixedToken {
    uint32_t suffix;
    int32_t token;
  };
  // Returns the tokens below a node of trie(false) that is reached by a quotation mark, ordered by
  // the suffix after it.
  std::span<const SuffixedToken> behind_quote(uint32_t node) const;

  ~Vocabulary();

 private:
  Vocabulary();
  void build();
  void build_suffixes();

  std::vector<std::string> bytes_;
  // bytes of tokens at the start of a text; empty: the same as bytes_
  std::vector<std::string> first_bytes_;
  std::vector<TokenId> ends_;
  std::vector<std::pair<std::string, TokenId>> special_;  // sorted by name
  size_t longest_special_ = 0;
  std::array<bool, 256> begins_special_{};  // first bytes of the names of special tokens
  std::unique_ptr<TokenTrie> trie_, first_trie_, suffix_trie_;
  bool has_bytes_ = false;
  // node, begin in behind_quote_; ascending
  std::vector<std::pair<uint32_t, uint32_t>> quote_nodes_;
  std::vector<SuffixedToken> behind_quote_;
  std::unique_ptr<LexemeMaskRegistry> lexeme_masks_;
  std::unique_ptr<Spellings> spellings_;
};

}  // namespace penstock::grammar
