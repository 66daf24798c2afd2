// Byte-pair encoding: the adjacent pair of lowest rank is merged until no pair has a rank.
//
// One engine for GPT-2's byte-level kind, Hugging Face's character kind, tiktoken's rank files and
// SentencePiece's score-driven kind; they differ in how symbols start, how ranks come about and what happens
// to unknown characters.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "text/vocab/flat_map.h"
#include "text/vocab/trie.h"
#include "text/vocab/vocabulary.h"
#include "text/vocab/word_model.h"

namespace penstock {

struct Merge {
  uint32_t rank = 0;
  TokenId id = 0;
};

struct BpeRules {
  bool bytes = false;          // symbols are bytes and words_ is keyed by bytes; else characters
  bool mapped = false;         // words arrive in the byte alphabet (bytes only)
  bool ignore_merges = false;  // a word that is a token is that token
  bool fuse_unk = false;       // a run of unknown characters is one unk
  TokenId unk = kNoToken;
  bool byte_fallback = false;  // unknown characters as their bytes, where all of those are tokens
  ByteTokens byte_ids{};
  std::string prefix, suffix;  // of symbols inside a word, of a word's last symbol
  StringIndex words;           // symbol (and whole word) -> id; without special tokens
  FlatMap<Merge> merges;       // left << 32 | right
  int vocab_size = 0;          // ids from here on are characters that occur only inside tokens
  Trie user_defined;           // SentencePiece: never merged with their neighbours
  std::vector<bool> unused;    // SentencePiece: ids that may be passed through but not emitted; empty = none

  static uint64_t pair_key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
};

// Fills merges from the tokens themselves: every split of a token into two tokens merges with the token's
// rank. ranks[i]: rank of tokens[i], lower merges first. For character symbols, characters that are not
// tokens themselves become ids from rules.vocab_size on.
struct RankedToken {
  std::string_view text;
  TokenId id;
  uint32_t rank;
};
void add_merges_from_ranks(const std::vector<RankedToken>& tokens, BpeRules& rules);

class Bpe final : public WordModel {
 public:
  explicit Bpe(BpeRules rules);
  std::unique_ptr<WordScratch> make_scratch() const override;
  void encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const override;

 private:
  struct Scratch;
  void encode_part(std::string_view part, Scratch& s, std::vector<TokenId>& out) const;
  void encode_merged(std::string_view part, Scratch& s, std::vector<TokenId>& out) const;
  void start_symbols(std::string_view part, Scratch& s) const;
  TokenId symbol_id(std::string_view symbol, bool first, bool last) const;
  void merge_short(Scratch& s) const;
  void merge_long(Scratch& s) const;
  void emit(std::string_view part, const Scratch& s, std::vector<TokenId>& out) const;
  void emit_known(TokenId id, const Scratch& s, std::vector<TokenId>& out) const;
  void emit_unknown(std::string_view symbol, bool after_unknown, std::vector<TokenId>& out) const;
  bool is_unused(TokenId id) const {
    return static_cast<size_t>(id) < rules_.unused.size() && rules_.unused[id];
  }

  BpeRules rules_;
  bool cut_at_space_ = false;              // no token crosses from a character other than ▁ to a ▁
  std::array<TokenId, 256> byte_symbols_;  // ids of one-byte symbols
  // Whether merging the characters of token id gives that token: 0 not known yet, 1 yes, 2 no.
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace penstock
