#include "draft/guesser.h"

#include <algorithm>
#include <limits>

#include "sampling/vocab_scan.h"

namespace penstock {
namespace {

// Returns f(context) with the sequence's sampler state after the tokens of the tree.
template <class F>
auto with_tree(const Guesser::Wanted& wanted, F&& f) {
  Hypothesis hypothesis(*wanted.request->state);
  for (const TokenId token : wanted.tree->tokens) hypothesis.append(token);
  return f(SampleContext{hypothesis.state(), wanted.tokens, wanted.request->n_prompt});
}

}  // namespace

std::span<const Guesser::Guess> Guesser::guess(Tensor logits, std::span<const Wanted> wanted) {
  guesses_.assign(wanted.size(), {});
  drawn_.assign(wanted.size(), false);
  const auto vocab = static_cast<int>(row_.size());
  const bool on_device = ops_.samples() && logits.cols >= vocab && vocabulary_.empty();
  if (on_device) ask_device(logits.columns(0, vocab), wanted);
  const StepTicket ticket = ops_.submit();
  if (on_device) ops_.wait(ticket);
  for (size_t i = 0; i < asked_for_.size(); ++i) {
    const SampleResult& result = results_[i];
    if (!result.drawn) continue;
    const auto of = static_cast<size_t>(asked_for_[i]);
    drawn_[of] = true;
    guesses_[of] = {result.token, wanted[of].likeliest ? result.likeliest : 1.0f};
  }
  asked_for_.clear();
  rows_.set(logits);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!drawn_[i]) guesses_[i] = guess_on_host(wanted[i], rows_.row(static_cast<int>(i)));
  }
  return guesses_;
}

// Draws from the drafter's own distribution are made on the host, which then knows the
// distribution.
void Guesser::ask_device(Tensor logits, std::span<const Wanted> wanted) {
  asked_.clear();
  if (edits_.size() < wanted.size()) edits_.resize(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const DraftRequest& request = *wanted[i].request;
    if (request.may_draw || !Sampler::row_says_all(*request.state->spec)) continue;
    SampleRow& row = asked_.emplace_back(with_tree(wanted[i], [&](const SampleContext& context) {
      return sampler_.describe(context, edits_[i]);
    }));
    row.row = static_cast<int32_t>(i);
    row.report = false, row.n_top = 0;
    row.likeliest = wanted[i].likeliest;
    asked_for_.push_back(static_cast<int>(i));
  }
  results_.assign(asked_.size(), {});
  if (!asked_.empty()) ops_.sample(logits, asked_, results_);
}

Guesser::Guess Guesser::guess_on_host(const Wanted& wanted, std::span<const float> logits) {
  const size_t n = vocabulary_.empty() ? std::min(logits.size(), row_.size()) : 0;
  std::copy_n(logits.begin(), n, row_.begin());
  std::fill(row_.begin() + static_cast<ptrdiff_t>(n), row_.end(),
            -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < vocabulary_.size(); ++i)
    row_[static_cast<size_t>(vocabulary_[i])] = logits[i];
  Guess guess;
  if (wanted.likeliest) {
    const float max = scan_block_max(row_, block_max_);
    guess.likeliest = static_cast<float>(1.0 / scan_sum_exp(row_, max, 1.0f));
  }
  guess.token = with_tree(wanted, [&](const SampleContext& context) {
    if (!wanted.request->may_draw) {
      none_.clear();
      return sampler_.sample(context, row_, none_).token;
    }
    TokenDistribution& from = wanted.tree->drawn_from.emplace_back();
    const TokenId token = sampler_.draw_draft(context, row_, from);
    if (token == kNoToken) wanted.tree->drawn_from.pop_back();
    return token;
  });
  return guess;
}

}  // namespace penstock
