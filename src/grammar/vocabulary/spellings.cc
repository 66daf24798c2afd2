#include "grammar/vocabulary/spellings.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace penstock::grammar {
namespace {

// No token spans its end, and SentencePiece's space precedes it.
constexpr char kBefore[] = "\n";

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = false});
}

}  // namespace

Spellings::Spellings(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), before_(encode(tokenizer, kBefore)) {}

// Returns "" if the preceding text's tokens merge with the text's.
std::vector<TokenId> Spellings::tokens_of(std::string text) const {
  std::vector<TokenId> tokens = encode(tokenizer_, kBefore + text);
  if (tokens.size() < before_.size() || !std::equal(before_.begin(), before_.end(), tokens.begin()))
    return {};
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(before_.size()));
  return tokens;
}

std::vector<TokenId> Spellings::spell(const Known& known) const {
  std::vector<TokenId> tokens = tokens_of(std::string(known.text));
  if (tokenizer_.decode_bytes(tokens, false) != known.text) return {};
  if (known.followers.empty()) return tokens;
  // [n]: number of followers for which exactly n tokens remain
  std::vector<size_t> n_votes(tokens.size() + 1, 0);
  for (const char follower : known.followers) {
    const std::vector<TokenId> longer = tokens_of(std::string(known.text) + follower);
    ++n_votes[static_cast<size_t>(std::ranges::mismatch(tokens, longer).in1 - tokens.begin())];
  }
  size_t n = tokens.size(), n_staying = n_votes[n];
  while (n > 0 && n_staying * 2 < known.followers.size()) n_staying += n_votes[--n];
  tokens.resize(n);
  return tokens;
}

int Spellings::write(const Known& known, std::span<TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  key_.assign(known.text).append(1, '\0').append(known.followers);
  auto found = kept_.find(key_);
  if (found == kept_.end()) {
    if (kept_.size() >= kMostKept) kept_.clear();
    found = kept_.emplace(key_, spell(known)).first;
  }
  const size_t n = std::min(tokens.size(), found->second.size());
  std::copy_n(found->second.begin(), n, tokens.begin());
  return static_cast<int>(n);
}

}  // namespace penstock::grammar
