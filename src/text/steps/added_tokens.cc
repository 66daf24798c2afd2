#include "text/steps/added_tokens.h"

#include "text/unicode/unicode.h"

namespace penstock {
namespace {

// Returns the character that ends at position.
unicode::Decoded previous(std::string_view text, size_t position) {
  for (size_t length = 1; length <= 4 && length <= position; ++length) {
    const unicode::Decoded d = unicode::decode(text, position - length);
    if (d.valid && static_cast<size_t>(d.length) == length) return d;
  }
  return {unicode::kReplacement, 1, false};
}

bool is_bounded_word(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && unicode::is_word(previous(text, begin).code);
  const bool word_after = end < text.size() && unicode::is_word(unicode::decode(text, end).code);
  return !word_before && !word_after;
}

}  // namespace

void AddedTokens::build(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  tokens_ = std::move(tokens);
  raw_ = {};
  normalized_ = {};
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.normalized) {
      normalized_.insert(normalizer.is_identity() ? token.content : normalizer.apply(token.content),
                         static_cast<int32_t>(i));
    } else {
      raw_.insert(token.content, static_cast<int32_t>(i));
    }
  }
}

void AddedTokens::split(std::string_view text, bool normalized, bool parse_special,
                        FunctionRef<void(const Segment&)> out) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  size_t start = 0;  // start of text that was not passed on yet
  for (size_t i = 0; i < text.size() && !trie.empty();) {
    const Trie::Found found =
        trie.may_start(text[i]) ? trie.longest(text.substr(i)) : Trie::Found{};
    if (found.length == 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[found.value];
    size_t begin = i, end = i + found.length;
    i = end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !is_bounded_word(text, begin, end)) continue;
    if (token.lstrip) {
      while (begin > start) {
        const unicode::Decoded d = previous(text, begin);
        if (!d.valid || !unicode::is_white_space(d.code)) break;
        begin -= d.length;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const unicode::Decoded d = unicode::decode(text, end);
        if (!d.valid || !unicode::is_white_space(d.code)) break;
        end += d.length;
      }
    }
    if (start < begin) out({kNoToken, text.substr(start, begin - start)});
    out({token.id, text.substr(begin, end - begin)});
    start = end;
    i = std::max(i, end);
  }
  if (start < text.size()) out({kNoToken, text.substr(start)});
}

}  // namespace penstock
