#include "text/vocab/word_piece.h"

#include <algorithm>

#include "base/work.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

bool longer_than(std::string_view word, int max_chars) {
  int n = 0;
  for (size_t i = 0; i < word.size(); i += unicode::decode(word, i).length) {
    if (++n > max_chars) return true;
  }
  return false;
}

}  // namespace

void WordPiece::encode(std::string_view word, WordScratch*, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  bool known = word.size() <= static_cast<size_t>(max_chars_) || !longer_than(word, max_chars_);
  if (const TokenId id = known ? pieces_.words.find(word) : kNoToken; id >= 0) {
    out.push_back(id);
    return;
  }
  for (size_t at = 0; known && at < word.size();) {
    const Trie::Found found = (at == 0 ? pieces_.first : pieces_.rest).longest(word.substr(at));
    known = found.length > 0;
    out.push_back(found.value);
    at += found.length;
  }
  if (known) return;
  out.resize(before);
  if (unk_ != kNoToken) out.push_back(unk_);
}

void LongestPieces::encode(std::string_view word, WordScratch*, std::vector<TokenId>& out) const {
  constexpr size_t kOften = 1024;  // tokens
  while (!word.empty()) {
    const Trie::Found found = pieces_.longest(word);
    if (found.length > 0) out.push_back(found.value);
    word.remove_prefix(std::max<size_t>(found.length, 1));
    if (out.size() % kOften == 0) give_way();
  }
}

void WordLevel::encode(std::string_view word, WordScratch*, std::vector<TokenId>& out) const {
  const TokenId id = words_.find(word);
  if (id >= 0) {
    out.push_back(id);
  } else if (unk_ != kNoToken) {
    out.push_back(unk_);
  }
}

}  // namespace penstock
