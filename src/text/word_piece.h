// WordPiece (BERT): a word is cut greedily into the longest known pieces; and WordLevel, where a word is a
// token.
#pragma once
#include <string>

#include "text/trie.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace penstock {

class WordPiece final : public WordModel {
 public:
  // first: pieces that start a word; rest: pieces inside a word, without their prefix. unk may be kNoToken
  // (the word is left out). Words of more than max_chars characters are unknown.
  WordPiece(Trie first, Trie rest, TokenId unk, int max_chars)
      : first_(std::move(first)), rest_(std::move(rest)), unk_(unk), max_chars_(max_chars) {}
  void encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const override;

 private:
  Trie first_, rest_;
  TokenId unk_;
  int max_chars_;
};

class WordLevel final : public WordModel {
 public:
  WordLevel(StringIndex words, TokenId unk) : words_(std::move(words)), unk_(unk) {}
  void encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const override;

 private:
  StringIndex words_;
  TokenId unk_;
};

}  // namespace penstock
