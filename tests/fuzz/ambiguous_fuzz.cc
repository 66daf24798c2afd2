// Bytes choose a small grammar: ambiguous, nullable, left recursive, in rings. It is walked with
// bits as what is taken, and no step costs more than a text may.
#include "grammar/grammar.h"

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/parts/work_meter.h"

namespace {

using namespace penstock;
using namespace penstock::grammar;

constexpr TokenId kEnd = 256;

std::shared_ptr<const Vocabulary> make_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();  // kEnd
  std::vector<std::string> longer{"a", "b", "c"};
  for (size_t i = 0; longer.size() < 363; ++i) {
    for (const char letter : {'a', 'b', 'c'}) longer.push_back(longer[i] + letter);
  }
  tokens.insert(tokens.end(), longer.begin() + 3, longer.end());
  return Vocabulary::make(std::move(tokens), {kEnd});
}

// Draws from the bytes; behind their end always 0.
class Draw {
 public:
  Draw(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  unsigned below(unsigned n) { return at_ < size_ ? data_[at_++] % n : 0; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

class GrammarText {
 public:
  GrammarText(Draw& draw, unsigned n_rules) : draw_(draw), n_rules_(n_rules) {}
  std::string rules() {
    std::string text;
    for (unsigned i = 0; i < n_rules_; ++i) text += name(i) + " ::= " + choice(3) + "\n";
    return text;
  }

 private:
  static std::string name(unsigned rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }
  std::string choice(int depth) {
    std::string text = sequence(depth);
    for (unsigned n = draw_.below(3); n > 0; --n) text += " | " + sequence(depth);
    return text;
  }
  std::string sequence(int depth) {
    std::string text = "\"\"";
    for (unsigned n = draw_.below(4); n > 0; --n) text += " " + part(depth);
    return text;
  }
  std::string part(int depth) {
    const char* const kTexts[] = {"\"a\"", "\"b\"", "\"ab\"", "[abc]", "[abc]*", "\"c\"?"};
    const char* const kCounts[] = {"*", "+", "?", "{2,3}", "{0,100}", "{3,}"};
    const unsigned what = draw_.below(depth > 0 ? 6 : 4);
    if (what < 2) return kTexts[draw_.below(6)];
    if (what < 4) return name(draw_.below(n_rules_));
    return "(" + choice(depth - 1) + ")" + (what == 4 ? "" : kCounts[draw_.below(6)]);
  }

  Draw& draw_;
  unsigned n_rules_;
};

// Whether it can go on.
bool step(Matcher& matcher, Draw& draw, std::vector<uint32_t>& mask) {
  const Vocabulary& vocabulary = matcher.grammar().vocabulary();
  const uint64_t before = matcher.work();
  matcher.fill_mask(mask);
  if (matcher.work() - before > 2 * WorkMeter::kMost) __builtin_trap();
  if (!matcher.failure().empty()) return false;
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    if ((mask[token / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
  }
  if (allowed.empty()) __builtin_trap();
  const auto other = static_cast<TokenId>(kEnd + draw.below(255));
  const bool bit = (mask[other / 32] >> (other % 32) & 1) != 0;
  const bool taken = matcher.append(other);
  if (!matcher.failure().empty()) return false;
  if (taken != bit) __builtin_trap();
  if (taken) return !matcher.ended();
  if (!matcher.append(allowed[draw.below(256) % allowed.size()]) && matcher.failure().empty())
    __builtin_trap();
  return matcher.failure().empty() && !matcher.ended();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = make_vocabulary();
  Draw draw(data, size);
  const unsigned n_rules = 1 + draw.below(6);
  const std::string text = GrammarText(draw, n_rules).rules();
  CompileLimits limits;
  limits.max_states = 5000;
  limits.max_edges = 50'000;
  limits.max_expr_nodes = 20'000;
  const auto grammar = Grammar::compile({SpecKind::kGrammar, text}, vocabulary, limits);
  if (!grammar) return 0;
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (int i = 0; i < 16 && step(matcher, draw, mask); ++i) {
  }
  return 0;
}
