// Any bytes as a schema, regex, grammar, structural tag or choice (told by the first byte): a
// refusal or a grammar, within its limits. What compiles is walked: bits are what is taken, and
// there is no dead end.
#include "grammar/grammar.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace penstock;
using namespace penstock::grammar;

constexpr TokenId kEnd = 256;

std::shared_ptr<const Vocabulary> make_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();  // kEnd
  for (const char* text :
       {"{\"", "\":", "\",\"", "\"}", "]]", "12", "ab", "true", ".5", "\\u00", "\"a"})
    tokens.emplace_back(text);
  return Vocabulary::make(std::move(tokens), {kEnd});
}

void walk(const std::shared_ptr<const Grammar>& grammar, uint32_t random) {
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::vector<uint32_t> mask(vocabulary.mask_words());
  Matcher matcher(grammar);
  for (int step = 0; step < 24 && !matcher.ended(); ++step) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocabulary.size(); ++token) {
      if ((mask[token / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
    }
    if (allowed.empty()) __builtin_trap();
    random = random * 1664525 + 1013904223;
    const auto other = static_cast<TokenId>((random >> 8) % vocabulary.size());
    const bool bit = (mask[other / 32] >> (other % 32) & 1) != 0;
    if (matcher.append(other) != bit) __builtin_trap();
    if (bit) continue;
    if (!matcher.append(allowed[(random >> 4) % allowed.size()])) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = make_vocabulary();
  constexpr SpecKind kKinds[] = {SpecKind::kJsonSchema, SpecKind::kRegex, SpecKind::kGrammar,
                                 SpecKind::kStructuralTag, SpecKind::kChoice};
  if (size < 2) return 0;
  static const bool all = std::getenv("ALL_LIMITS") != nullptr;  // those that servers have
  CompileLimits limits;
  if (!all) {
    limits.max_schemas = 2000;
    limits.max_expr_nodes = 20'000;
    limits.max_states = 5000;
    limits.max_edges = 50'000;
    limits.max_alternatives = 64;
    limits.max_steps = 2'000'000;
  }
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto grammar =
      Grammar::compile({kKinds[data[0] % std::size(kKinds)], text}, vocabulary, limits);
  if (grammar) walk(*grammar, static_cast<uint32_t>(size * 2654435761U));
  return 0;
}
