// The tokens of a tokenizer as a trie over their bytes: what masks are made over.
//
// Special tokens have no bytes here; a grammar names them as terminals of their own. Immutable, shared by all threads.
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

// Kinds of bytes a subtree may hold: what an automaton often treats alike.
namespace byte_kinds {
inline constexpr uint16_t kLower = 1, kUpper = 2, kDigit = 4, kUnderscore = 8, kDash = 16, kSpace = 32,
                          kDot = 64, kSlash = 128, kColon = 256, kOtherAscii = 512, kQuote = 1024,
                          kBackslash = 2048, kControl = 4096, kBeyondAscii = 8192;
// Bytes that no UTF-8 text of whole characters has there; the last character may be cut off.
inline constexpr uint16_t kBroken = 16384;
uint16_t of(uint8_t byte);
}  // namespace byte_kinds

// Nodes in preorder: a node's first child, if any, is the next one; `end` is the node behind its subtree. The node of
// the empty text is the first.
class TokenTrie {
 public:
  struct Node {
    uint32_t end;
    uint32_t first_token;  // into tokens(); up to the next node's
    uint16_t kinds;        // of all bytes below the node, where a character has just ended
    uint8_t byte;
    uint8_t height;  // bytes of the longest text below, at most kMaxHeight
  };
  static constexpr uint8_t kMaxHeight = 255;
  struct Entry {
    std::string_view bytes;
    int32_t value;
  };

  // Entries in any order; equal texts are fine.
  explicit TokenTrie(std::vector<Entry> entries);

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  // The values whose text ends at the node; of the whole subtree.
  std::span<const int32_t> values(uint32_t i) const { return between(i, i + 1); }
  std::span<const int32_t> values_below(uint32_t i) const { return between(i, nodes_[i].end); }
  // size() when there is none.
  uint32_t child(uint32_t i, uint8_t byte) const;

 private:
  std::span<const int32_t> between(uint32_t from, uint32_t to) const {
    return {values_.data() + nodes_[from].first_token, values_.data() + nodes_[to].first_token};
  }
  void build(std::vector<Entry>& entries);
  void summarize();
  uint16_t kinds_of_char(uint32_t lead) const;
  uint16_t kinds_behind(uint32_t node, std::span<const utf8::ByteRange> parts) const;
  std::vector<Node> nodes_;  // one more behind the last
  std::vector<int32_t> values_;
};

class Vocabulary {
 public:
  // tokenizer: outlives it.
  static std::shared_ptr<const Vocabulary> make(const Tokenizer& tokenizer);
  // tokens[i]: the bytes of token i, "" for one without text. ends: tokens that end the text; special: names of tokens.
  static std::shared_ptr<const Vocabulary> make(std::vector<std::string> tokens, std::vector<TokenId> ends,
                                                std::vector<std::pair<std::string, TokenId>> special = {});

  int size() const { return static_cast<int>(bytes_.size()); }
  size_t mask_words() const { return (bytes_.size() + 31) / 32; }
  // What the token adds to a text; "" for special tokens. first: nothing precedes it, where SentencePiece drops a space.
  std::string_view bytes(TokenId token, bool first = false) const;
  // Whether every byte of UTF-8 but the control characters is a token by itself, so that any text can be written.
  bool has_bytes() const { return has_bytes_; }
  std::span<const TokenId> ends() const { return ends_; }
  std::optional<TokenId> special(std::string_view name) const;
  // The first name of a special token in a text, the longest there; those that end the generation are left out.
  struct SpecialInText {
    size_t position, length;
    TokenId token;
  };
  std::optional<SpecialInText> find_special(std::string_view text) const;
  const TokenTrie& trie(bool first = false) const { return first && first_trie_ ? *first_trie_ : *trie_; }

  // Masks made before; grows within a bound, any thread may use it.
  LexemeMaskRegistry& lexeme_masks() const { return *lexeme_masks_; }

  // How the tokenizer writes texts; null where there is none.
  Spellings* spellings() const { return spellings_.get(); }

  // What follows a quotation mark in tokens, for masks inside of strings. A value is an index into the groups' suffixes.
  const TokenTrie& quote_suffixes() const { return *suffix_trie_; }
  uint32_t n_quote_suffixes() const { return n_suffixes_; }
  struct SuffixedToken {
    uint32_t suffix;
    int32_t token;
  };
  // The tokens below a node of trie(false) whose last byte is a quotation mark, by what follows it.
  std::span<const SuffixedToken> behind_quote(uint32_t node) const;

  ~Vocabulary();

 private:
  Vocabulary();
  void build();
  void build_suffixes();

  std::vector<std::string> bytes_;
  std::vector<std::string> first_bytes_;  // empty: the same
  std::vector<TokenId> ends_;
  std::vector<std::pair<std::string, TokenId>> special_;  // by name
  size_t longest_special_ = 0;
  std::array<bool, 256> begins_special_{};  // first bytes of their names
  std::unique_ptr<TokenTrie> trie_, first_trie_, suffix_trie_;
  uint32_t n_suffixes_ = 0;
  bool has_bytes_ = false;
  std::vector<std::string> suffixes_;
  std::vector<std::pair<uint32_t, uint32_t>> quote_nodes_;  // node, begin in behind_quote_; ascending
  std::vector<SuffixedToken> behind_quote_;
  std::unique_ptr<LexemeMaskRegistry> lexeme_masks_;
  std::unique_ptr<Spellings> spellings_;
};

}  // namespace penstock::grammar
