// WordPiece (BERT), which cuts a word greedily into the longest known pieces, LongestPieces (RWKV), which
// does that with a whole text, and WordLevel, where every word is one token.
#pragma once
#include <string>

#include "text/vocab/trie.h"
#include "text/vocab/vocabulary.h"
#include "text/vocab/word_model.h"

namespace penstock {

// The pieces a word is cut into.
struct WordPieces {
  Trie first;  // pieces that start a word
  Trie rest;   // pieces inside a word, without their prefix
  // the pieces of `first` again: most words are a single piece, found by one lookup
  StringIndex words;

  void add(std::string_view piece, std::string_view prefix, TokenId id) {
    first.insert(piece, id);
    if (!piece.empty()) words.insert(piece, id);
    if (piece.starts_with(prefix)) rest.insert(piece.substr(prefix.size()), id);
  }
};

class WordPiece final : public WordModel {
 public:
  // unk: token of unknown words; kNoToken: they are dropped. Words of more than max_chars
  // characters are unknown.
  WordPiece(WordPieces pieces, TokenId unk, int max_chars)
      : pieces_(std::move(pieces)), unk_(unk), max_chars_(max_chars) {}
  void encode(std::string_view word, WordScratch* scratch,
              std::vector<TokenId>& out) const override;

 private:
  WordPieces pieces_;
  TokenId unk_;
  int max_chars_;
};

// Cuts a text greedily into the longest known pieces (RWKV). Bytes that begin none are dropped.
class LongestPieces final : public WordModel {
 public:
  explicit LongestPieces(Trie pieces) : pieces_(std::move(pieces)) {}
  void encode(std::string_view word, WordScratch* scratch,
              std::vector<TokenId>& out) const override;

 private:
  Trie pieces_;
};

class WordLevel final : public WordModel {
 public:
  WordLevel(StringIndex words, TokenId unk) : words_(std::move(words)), unk_(unk) {}
  void encode(std::string_view word, WordScratch* scratch,
              std::vector<TokenId>& out) const override;

 private:
  StringIndex words_;
  TokenId unk_;
};

}  // namespace penstock
