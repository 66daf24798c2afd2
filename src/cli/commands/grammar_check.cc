#include "cli/commands/grammar_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "grammar/vocabulary/token_set.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using OrderedJson = nlohmann::ordered_json;

double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Matches the tokens of a text as sampling does: computes the mask, then appends the token.
class Walk {
 public:
  Walk(const std::shared_ptr<const grammar::Grammar>& compiled, CheckAnswer& answer)
      : vocabulary_(compiled->vocabulary()),
        answer_(answer),
        matcher_(compiled, true),
        bits_(vocabulary_.mask_words()) {}

  TextResult run(const std::vector<TokenId>& tokens) {
    for (size_t at = 0; at < tokens.size(); ++at) {
      make_mask();
      if (failed()) return {false, static_cast<int>(at), matcher_.failure()};
      const bool bit = grammar::has_bit(bits_, tokens[at]);
      const bool taken = matcher_.append(tokens[at]);
      if (failed()) return {false, static_cast<int>(at), matcher_.failure()};
      if (bit != taken) {
        answer_.broken = fmt::format("token {} at {}: the mask says {}, the state does not",
                                     tokens[at], at, bit);
      }
      if (!bit) return {false, static_cast<int>(at)};
    }
    make_mask();
    if (failed()) return {false, static_cast<int>(tokens.size()), matcher_.failure()};
    const auto ends = vocabulary_.ends();
    if (ends.empty())
      return {matcher_.may_end(), static_cast<int>(tokens.size())};  // tokenizer without end tokens
    const bool valid = std::any_of(ends.begin(), ends.end(),
                                   [&](TokenId end) { return grammar::has_bit(bits_, end); });
    if (valid != matcher_.may_end()) answer_.broken = "the end: the mask and the state disagree";
    return {valid, static_cast<int>(tokens.size())};
  }

 private:
  bool failed() const { return !matcher_.failure().empty(); }
  void make_mask() {
    const auto begin = std::chrono::steady_clock::now();
    matcher_.fill_mask(bits_);
    answer_.mask_us.push_back(us_since(begin));
  }

  const grammar::Vocabulary& vocabulary_;
  CheckAnswer& answer_;
  grammar::Matcher matcher_;
  std::vector<uint32_t> bits_;
};

OrderedJson rounded(double us) { return std::round(us * 10) / 10; }

std::array<double, 3> quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[std::min(values.size() - 1,
                           static_cast<size_t>(q * static_cast<double>(values.size())))];
  };
  return {at(0.5), at(0.99), values.back()};
}

}  // namespace

CheckAnswer check_grammar(const GrammarCheck& check, const Tokenizer& tokenizer,
                          const std::shared_ptr<const grammar::Vocabulary>& vocabulary) {
  CheckAnswer answer;
  const auto begin = std::chrono::steady_clock::now();
  auto compiled = grammar::Grammar::compile(check.spec, vocabulary);
  if (!compiled) {
    answer.refusal = std::move(compiled).error();
    return answer;
  }
  {
    const grammar::Matcher first(*compiled, true);
  }
  answer.compile_us = us_since(begin);
  answer.notes.assign((*compiled)->notes().begin(), (*compiled)->notes().end());
  for (const std::string& text : check.texts) {
    answer.results.push_back(
        Walk(*compiled, answer).run(tokenizer.encode(text, {.add_special = false})));
  }
  return answer;
}

std::string CheckAnswer::json(const std::string& id) const {
  OrderedJson out = OrderedJson::object();
  if (!id.empty()) out["id"] = bounded_json<OrderedJson>(id);
  if (refusal) {
    out["error"] = {{"kind", grammar::name_of(refusal->kind)},
                    {"where", refusal->where},
                    {"message", refusal->message}};
    if (!refusal->keyword.empty()) out["error"]["keyword"] = refusal->keyword;
    return out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  out["compile_us"] = rounded(compile_us);
  out["results"] = OrderedJson::array();
  for (const TextResult& result : results) {
    OrderedJson one = {{"valid", result.valid}};
    if (!result.valid) one["at"] = result.at;
    if (!result.failure.empty()) one["failure"] = result.failure;
    out["results"].push_back(std::move(one));
  }
  out["mask_us"] = OrderedJson::array();
  for (const double us : quantiles(mask_us)) out["mask_us"].push_back(rounded(us));
  out["all_mask_us"] = OrderedJson::array();
  for (const double us : mask_us) out["all_mask_us"].push_back(rounded(us));
  if (!notes.empty()) {
    out["notes"] = OrderedJson::array();
    for (const grammar::Note& note : notes)
      out["notes"].push_back({{"where", note.where}, {"message", note.message}});
  }
  return out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace penstock
