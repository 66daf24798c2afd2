#include "sampling/exclusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace penstock {
namespace {

using Tokens = std::vector<bool>;  // [vocab_size]

// Returns the tokens that a step allows.
Tokens left_by(const SamplerStep& step, StepContext& context, int vocab_size) {
  Tokens left(static_cast<size_t>(vocab_size), true);
  LogitEdits& edits = *context.edits;
  edits.clear();
  step.apply(context);
  for (size_t token = 0; !edits.mask().empty() && token < left.size(); ++token)
    left[token] = (edits.mask()[token / 32] >> (token % 32) & 1u) != 0;
  for (const LogitEdit& edit : edits.list()) {
    if (edit.kind == LogitEdit::Kind::kSet && edit.value == kImpossible)
      left[static_cast<size_t>(edit.token)] = false;
  }
  return left;
}

std::string listed(const Tokens& tokens) {
  constexpr int kMost = 5;
  std::string text;
  int n = 0;
  for (size_t token = 0; token < tokens.size(); ++token) {
    if (tokens[token] && ++n <= kMost) text += fmt::format("{}{}", text.empty() ? "" : ", ", token);
  }
  if (n > kMost) text += fmt::format(" and {} more", n - kMost);
  return fmt::format("{} {}", n == 1 ? "token" : "tokens", text);
}

// Removes tokens that are not in `left`; returns whether any were removed.
bool take_out(Tokens& tokens, const Tokens& left) {
  bool any = false;
  for (size_t token = 0; token < tokens.size(); ++token) {
    if (!tokens[token] || left[token]) continue;
    tokens[token] = false;
    any = true;
  }
  return any;
}

}  // namespace

std::string why_none_is_left(const SampleContext& context) {
  LogitEdits edits;
  SamplerScratch scratch;
  StepContext steps{.state = &context.state,
                    .tokens = context.tokens,
                    .n_prompt = context.n_prompt,
                    .edits = &edits,
                    .scratch = &scratch};
  const int vocab_size = context.state.spec->vocab_size;
  Tokens tokens(static_cast<size_t>(vocab_size), true);
  std::string grammar, others;
  for (const SamplerStep& step : logit_steps()) {
    if (std::string_view(step.name) != "grammar" || !step.active(steps)) continue;
    tokens = left_by(step, steps, vocab_size);
    if (std::string why = context.state.matcher->failure(); !why.empty()) return why;
    grammar = fmt::format("the grammar allows only {}", listed(tokens));
  }
  for (const SamplerStep& step : logit_steps()) {
    if (std::string_view(step.name) == "grammar" || !step.active(steps)) continue;
    if (take_out(tokens, left_by(step, steps, vocab_size)))
      others += fmt::format("{}{}", others.empty() ? "" : " and ", step.name);
  }
  const bool any_left = std::find(tokens.begin(), tokens.end(), true) != tokens.end();
  if (any_left || others.empty()) return "";
  if (grammar.empty()) return fmt::format("no token can be chosen: {} exclude all of them", others);
  return fmt::format("no token can be chosen: {}, excluded by {}", grammar, others);
}

}  // namespace penstock
