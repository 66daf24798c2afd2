// Byte-pair encoding: the adjacent pair of lowest rank is merged until no pair has a rank.
//
// One implementation for GPT-2's byte-level BPE, Hugging Face's character BPE, tiktoken's rank
// files and SentencePiece's score-driven BPE; they differ in the initial symbols, the origin of the
// ranks and the handling of unknown characters.
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
  // initial symbols are bytes and `words` is keyed by bytes; false: characters
  bool bytes = false;
  // with `bytes`: words are passed in the byte alphabet
  bool mapped = false;
  // a word that is a token is not split, whatever the merges
  bool ignore_merges = false;
  // a run of unknown characters becomes a single unk
  bool fuse_unk = false;
  TokenId unk = kNoToken;
  // an unknown character becomes its bytes, if all of them are tokens
  bool byte_fallback = false;
  ByteTokens byte_ids{};
  // prefix of symbols inside a word; suffix of a word's last symbol
  std::string prefix, suffix;
  // symbol or whole word -> id; without special tokens
  StringIndex words;
  FlatMap<Merge> merges;  // pair_key(left, right) -> merge
  // ids >= vocab_size are characters that occur only inside tokens
  int vocab_size = 0;
  // SentencePiece: pieces that are never merged with their neighbours
  Trie user_defined;
  // SentencePiece: ids that may occur while merging but are not emitted; empty: none.
  std::vector<bool> unused;

  static uint64_t pair_key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
};

// Fills rules.merges from the tokens: every split of a token into two tokens is a merge with the
// token's rank; lower ranks merge first. For character symbols, characters that are not tokens get
// ids from rules.vocab_size on.
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
  void encode(std::string_view word, WordScratch* scratch,
              std::vector<TokenId>& out) const override;

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
  // no token crosses from a character other than ▁ to a ▁
  bool cut_at_space_ = false;
  std::array<TokenId, 256> byte_symbols_;  // ids of the one-byte symbols
  // Whether merging the characters of token id gives that token: 0 not known yet, 1 yes, 2 no.
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace penstock
