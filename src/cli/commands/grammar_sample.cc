#include "cli/commands/grammar_sample.h"

#include <bit>

#include "grammar/vocabulary/token_set.h"

namespace penstock {
namespace {

constexpr std::string_view kClosing = "\"}]:,0 ae/";  // bytes that close values, best first

}  // namespace

GrammarSampler::GrammarSampler(std::shared_ptr<const grammar::Grammar> grammar, uint64_t seed,
                               int wander, int max_tokens)
    : grammar_(std::move(grammar)), random_(seed), wander_(wander), max_tokens_(max_tokens) {
  const grammar::TokenTrie& trie = grammar_->vocabulary().trie();
  for (const char byte : kClosing) {
    const uint32_t node = trie.child(0, static_cast<uint8_t>(byte));
    if (node != trie.size() && !trie.values(node).empty())
      closing_.push_back(trie.values(node).front());
  }
}

TokenId GrammarSampler::any_of(const std::vector<uint32_t>& mask) {
  uint64_t n = 0;
  for (const uint32_t word : mask) n += static_cast<uint64_t>(std::popcount(word));
  if (n == 0) return kNoToken;
  uint64_t left = random_() % n;
  for (size_t i = 0; i < mask.size(); ++i) {
    const auto here = static_cast<uint64_t>(std::popcount(mask[i]));
    if (left >= here) {
      left -= here;
      continue;
    }
    uint32_t word = mask[i];
    while (left-- > 0) word &= word - 1;
    return static_cast<TokenId>(i * 32) + std::countr_zero(word);
  }
  return kNoToken;
}

TokenId GrammarSampler::choose(const std::vector<uint32_t>& mask, bool to_the_end) {
  if (!to_the_end) return any_of(mask);
  for (const TokenId end : grammar_->vocabulary().ends()) {
    if (grammar::has_bit(mask, end)) return end;
  }
  for (const TokenId token : closing_) {
    if (grammar::has_bit(mask, token)) return token;
  }
  return any_of(mask);
}

GrammarSampler::Text GrammarSampler::draw() {
  const grammar::Vocabulary& vocabulary = grammar_->vocabulary();
  grammar::Matcher matcher(grammar_);
  std::vector<uint32_t> mask(vocabulary.mask_words());
  Text result;
  const auto turn = static_cast<int>(random_() % static_cast<uint64_t>(wander_ + 1));
  for (int n = 0; n < max_tokens_ && !matcher.ended(); ++n) {
    matcher.fill_mask(mask);
    const TokenId token = choose(mask, n >= turn);
    const bool taken = token != kNoToken && matcher.append(token);
    result.failure = matcher.failure();
    result.dead_end = !taken && result.failure.empty();
    if (!taken) return result;
    result.text += vocabulary.bytes(token);
  }
  result.complete = matcher.ended();
  return result;
}

}  // namespace penstock
