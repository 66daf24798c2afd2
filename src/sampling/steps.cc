#include "sampling/steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "kernels/philox.h"

namespace penstock {
namespace {

// --- Logit steps ---

void grammar(StepContext& c) {
  const std::span<uint32_t> mask = c.edits->new_mask((c.state->spec->vocab_size + 31) / 32);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point started = Clock::now();
  c.state->matcher->fill_mask(mask);
  ++c.scratch->grammar.rows;
  c.scratch->grammar.seconds += std::chrono::duration<double>(Clock::now() - started).count();
  c.edits->allow(mask);
}

void logit_bias(StepContext& c) {
  for (const auto& [token, bias] : c.params().logit_bias) c.edits->add(token, bias);
}

void ban_tokens(StepContext& c) {
  if (const auto& mask = c.state->spec->not_banned; !mask.empty()) return c.edits->allow(mask);
  for (const TokenId token : c.params().banned_token_ids) c.edits->set(token, kImpossible);
}

void bad_words(StepContext& c) {
  for (const std::vector<TokenId>& word : c.state->spec->bad_words) {
    const size_t prefix = word.size() - 1;
    if (c.tokens.size() < prefix) continue;
    if (std::equal(word.begin(), word.end() - 1, c.tokens.end() - prefix))
      c.edits->set(word.back(), kImpossible);
  }
}

// Whether the grammar may end here; it may then allow nothing else.
bool complete(const StepContext& c) {
  return c.state->matcher != nullptr && c.state->matcher->complete();
}

void min_tokens(StepContext& c) {
  for (const TokenId token : c.state->spec->end_ids) c.edits->set(token, kImpossible);
}

// Repetition penalty (prompt and output, by division), then frequency and presence penalties
// (output, by subtraction).
void penalties_of_all(StepContext& c) {
  const SamplingParams& p = c.params();
  const auto seen = c.state->counts.slots();
  for (const TokenCounts::Entry& entry : seen) {
    if (entry.token != kNoToken && (entry.in_prompt || entry.n_output > 0))
      c.edits->penalize(entry.token, p.repetition_penalty);
  }
  c.edits->next_phase();
  for (const TokenCounts::Entry& entry : seen) {
    if (entry.token == kNoToken || entry.n_output == 0) continue;
    c.edits->add(entry.token,
                 -(p.frequency_penalty * static_cast<float>(entry.n_output) + p.presence_penalty));
  }
}

// The same over the last tokens of prompt and output, as llama.cpp has it.
void penalties_of_last(StepContext& c) {
  const SamplingParams& p = c.params();
  const size_t n = std::min(c.tokens.size(), static_cast<size_t>(p.penalty_last_n));
  std::vector<TokenId>& last = c.scratch->last_tokens;
  last.assign(c.tokens.end() - static_cast<std::ptrdiff_t>(n), c.tokens.end());
  std::ranges::sort(last);
  const auto each = [&](const auto& visit) {
    for (auto at = last.begin(); at != last.end();) {
      const auto end = std::find_if(at, last.end(), [&](TokenId token) { return token != *at; });
      visit(*at, static_cast<float>(end - at));
      at = end;
    }
  };
  each([&](TokenId token, float) { c.edits->penalize(token, p.repetition_penalty); });
  c.edits->next_phase();
  each([&](TokenId token, float count) {
    c.edits->add(token, -(p.frequency_penalty * count + p.presence_penalty));
  });
}

void penalties(StepContext& c) {
  c.params().penalty_last_n < 0 ? penalties_of_all(c) : penalties_of_last(c);
}

// DRY: a token that followed an earlier occurrence of the context's end is penalized by multiplier
// * base^(match - allowed_length), once, for the longest match.
void dry(StepContext& c) {
  const SamplingParams& p = c.params();
  const auto context = static_cast<int>(c.tokens.size());
  const int n = p.dry_penalty_last_n < 0 ? context : std::min(p.dry_penalty_last_n, context);
  const auto repeats = c.scratch->repeats.find(c.tokens.last(n), c.state->spec->dry_breakers,
                                               std::max(p.dry_allowed_length, 1));
  // keeps the penalty finite
  const float max_exponent = p.dry_base > 1.000001f ? 80.0f / std::log(p.dry_base) : 1e9f;
  for (const Repeat& repeat : repeats) {
    const float exponent =
        std::min(static_cast<float>(repeat.length - p.dry_allowed_length), max_exponent);
    c.edits->add(repeat.next, -(p.dry_multiplier * std::pow(p.dry_base, exponent)));
  }
}

// A mark around reasoning, of tokens or of others that run together with the text around it.
class ThinkingMark {
 public:
  using Place = std::span<const TokenId>::iterator;
  ThinkingMark(const std::vector<TokenId>& tokens, const MarkEdges* edges)
      : tokens_(tokens), edges_(edges) {}

  // Whether the first n tokens of the mark stand at a place.
  bool begins(Place at, size_t n) const {
    for (size_t i = 0; i < n; ++i, ++at) {
      if (!is_token(*at, i)) return false;
    }
    return true;
  }
  // Returns the place behind the first mark, or nothing.
  std::optional<Place> behind(Place from, Place end) const {
    const auto size = static_cast<std::ptrdiff_t>(tokens_.size());
    for (; end - from >= size; ++from) {
      if (begins(from, tokens_.size())) return from + size;
    }
    return std::nullopt;
  }

 private:
  bool is_token(TokenId token, size_t i) const {
    if (token == tokens_[i]) return true;
    if (edges_ == nullptr || (i > 0 && i + 1 < tokens_.size())) return false;
    return std::ranges::binary_search(i == 0 ? edges_->first : edges_->last, token);
  }

  const std::vector<TokenId>& tokens_;
  const MarkEdges* edges_;
};

// Returns the token that must come here since the budget for reasoning is spent; kNoToken if the
// model may choose.
TokenId closing_token(const StepContext& c) {
  const ThinkingBudget& budget = *c.state->spec->thinking;
  const auto output = c.tokens.subspan(static_cast<size_t>(c.n_prompt));
  if (static_cast<int64_t>(output.size()) < budget.max_tokens) return kNoToken;
  auto inside = output.begin();
  if (!budget.starts_inside) {
    const ThinkingMark open(budget.open, budget.open_edges.get());
    const auto found = open.behind(output.begin(), output.end());
    if (!found) return kNoToken;
    inside = *found;
  }
  if (output.end() - inside < budget.max_tokens) return kNoToken;
  const ThinkingMark close(budget.close, budget.close_edges.get());
  if (close.behind(inside, output.end())) return kNoToken;
  // This step has chosen all tokens after the budget; the model itself may have begun the closing
  // marks before its end.
  const auto spent = inside + budget.max_tokens;
  size_t n_begun = std::min(budget.close.size() - 1, static_cast<size_t>(budget.max_tokens));
  while (n_begun > 0 && !close.begins(spent - static_cast<std::ptrdiff_t>(n_begun), n_begun))
    --n_begun;
  return budget.close[n_begun + static_cast<size_t>(output.end() - spent)];
}

void close_thinking(StepContext& c) {
  const TokenId token = closing_token(c);
  if (token != kNoToken) c.edits->allow_only(token, c.state->spec->vocab_size);
}

// --- Filter steps ---

void min_p(StepContext& c) { c.candidates->keep_above(std::log(c.row->min_p)); }
void top_k(StepContext& c) { c.candidates->keep_top(c.row->top_k); }
void top_p(StepContext& c) { c.candidates->keep_mass(c.row->top_p); }
void typical_p(StepContext& c) { c.candidates->keep_typical(c.params().typical_p); }

// XTC: with probability xtc_probability, removes all tokens at least as likely as the threshold
// except the least likely of them.
void xtc(StepContext& c) {
  const SamplerState& state = *c.state;
  if (uniform_draw(state.spec->seed, c.n_output(), state.index, Draw::kXtc) >=
      c.params().xtc_probability)
    return;
  const std::span<const Candidate> top = c.candidates->above_probability(c.params().xtc_threshold);
  if (top.size() >= 2) c.candidates->remove(top.first(top.size() - 1));
}

// values of SamplerStep::host_only and reads_tokens
constexpr bool kAnyone = false, kReadsTokens = true;

// THE list. The order is vLLM's where it has the step: masks, bias, penalties |
// temperature | min-p, top-k, top-p, …; every filter sees the renormalized result of the
// previous one.
constexpr SamplerStep kLogitSteps[] = {
    {"allowed_token_ids", [](const StepContext& c) { return !c.state->spec->allowed.empty(); },
     [](StepContext& c) { c.edits->allow(c.state->spec->allowed); }},
    {"grammar", [](const StepContext& c) { return c.state->matcher != nullptr; }, grammar, kAnyone,
     kReadsTokens},
    {"banned_token_ids", [](const StepContext& c) { return !c.params().banned_token_ids.empty(); },
     ban_tokens},
    {"bad_words", [](const StepContext& c) { return !c.state->spec->bad_words.empty(); }, bad_words,
     kAnyone, kReadsTokens},
    {"min_tokens",
     [](const StepContext& c) { return c.n_output() < c.params().min_tokens && !complete(c); },
     min_tokens},
    {"logit_bias", [](const StepContext& c) { return !c.params().logit_bias.empty(); }, logit_bias},
    {"penalties", [](const StepContext& c) { return c.state->spec->penalizes; }, penalties, kAnyone,
     kReadsTokens},
    {"dry", [](const StepContext& c) { return c.params().dry_multiplier > 0; }, dry, kAnyone,
     kReadsTokens},
    // Last, so that nothing can forbid the end of the reasoning.
    {"thinking_token_budget",
     [](const StepContext& c) { return c.state->spec->thinking.has_value(); }, close_thinking,
     kAnyone, kReadsTokens},
};
constexpr SamplerStep kFilterSteps[] = {
    {"min_p", [](const StepContext& c) { return c.row->min_p > 0; }, min_p},
    {"top_k", [](const StepContext& c) { return c.row->top_k > 0; }, top_k},
    {"top_p", [](const StepContext& c) { return c.row->top_p < 1; }, top_p},
    {"typical_p",
     [](const StepContext& c) { return c.state != nullptr && c.params().typical_p < 1; }, typical_p,
     true},
    {"xtc",
     [](const StepContext& c) { return c.state != nullptr && c.params().xtc_probability > 0; }, xtc,
     true},
};

// Estimates the exponent of a Zipf distribution from the 100 most likely tokens, and returns the k
// for a surprise of mu bits (Basu et al. 2021, algorithm 1).
int mirostat_k(Candidates& candidates, float mu) {
  const std::span<const Candidate> top = candidates.peek_top(101);
  double numerator = 0, denominator = 0;
  for (size_t i = 0; i + 1 < top.size(); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    numerator += t * (double{top[i].x} - double{top[i + 1].x});
    denominator += t * t;
  }
  const int n = candidates.size();
  const double s = denominator > 0 ? numerator / denominator : 0;
  const double epsilon = s - 1;
  if (!(s > 0) || std::fabs(epsilon) < 1e-9) return n;
  const double k = std::pow(epsilon * std::exp2(double{mu}) / (1 - std::pow(n, -epsilon)), 1 / s);
  return k >= 1 && k < n ? static_cast<int>(std::lround(k)) : (k < 1 ? 1 : n);
}

}  // namespace

std::span<const SamplerStep> logit_steps() { return kLogitSteps; }
std::span<const SamplerStep> filter_steps() { return kFilterSteps; }

TokenId mirostat_pick(StepContext& c, double u) {
  const SamplingParams& p = c.params();
  Candidates& candidates = *c.candidates;
  float& mu = c.state->mirostat_mu;
  // surprise refers to the untruncated distribution
  const float log_total = candidates.log_total();
  if (p.mirostat == 1) {
    candidates.keep_top(mirostat_k(candidates, mu));
  } else {
    candidates.keep_above(log_total - mu * 0.69314718f);
  }
  const TokenId token = candidates.pick(u);
  const float surprise = (log_total - candidates.x_of(token)) * 1.44269504f;
  mu -= p.mirostat_eta * (surprise - p.mirostat_tau);
  return token;
}

}  // namespace penstock
