// Samples tokens from logits: applies the sampler steps, draws, and reports log-probabilities.
//
// The effects of a sequence's history on a draw are collected first, as plain data (describe()),
// from which the host or a device makes the draw. A Sampler is scratch memory: one per thread, no
// state between calls. All randomness comes from the sequence's seed.
#pragma once
#include <span>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/draft_tree.h"
#include "sampling/logit_edits.h"
#include "sampling/sampler_state.h"
#include "sampling/steps.h"

namespace penstock {

// A sequence at the token to be drawn.
struct SampleContext {
  SamplerState& state;
  std::span<const TokenId> tokens;  // the sequence so far, prompt first
  int n_prompt = 0;
};

// A token drawn from a draft's distribution.
struct DrawnToken {
  TokenId token;
  const TokenDistribution& from;
};

class Sampler {
 public:
  // Returns the draw of the next token as plain data, which points into `edits` and the state.
  SampleRow describe(const SampleContext& context, LogitEdits& edits);
  // Whether a SampleRow fully describes draws with these parameters; else only sample() can make
  // them.
  static bool row_says_all(const SamplingSpec& spec);
  // Returns how many of the greatest logits determine the draw, so that the others may be left out;
  // 0: all are needed.
  static int n_needed(const SampleContext& context);
  // n_needed() returns 0 instead of a greater number
  static constexpr int kMostNeeded = 256;
  // Whether the SampleRow of a draw depends on the tokens before it, and not only on their number.
  static bool row_reads_tokens(SamplerState& state);

  // Makes the draw that `row` describes from its logits, which are overwritten.
  SampleResult draw(const SampleRow& row, std::span<float> logits);

  // Draws from the logits [vocab_size], which are overwritten; does not append the token to the
  // state. The top params.logprobs tokens, SampleResult::n_top of them, are appended to
  // `alternatives`.
  SampleResult sample(const SampleContext& context, std::span<float> logits,
                      std::vector<TokenLogprob>& alternatives);

  // Keeps a drawn token x with probability min(1, p(x) / q(x)), where p is the distribution after
  // all steps and q is drawn.from; else draws from max(0, p - q). REQUIRES: neither greedy nor
  // mirostat.
  SampleResult accept_or_resample(const SampleContext& context, std::span<float> logits,
                                  const DrawnToken& drawn, bool& accepted,
                                  std::vector<TokenLogprob>& alternatives);

  // Draws a draft token: as sample(), but with a separate stream of random numbers. Sets `from` to
  // the distribution. kNoToken when no token is possible. REQUIRES: neither greedy nor mirostat.
  TokenId draw_draft(const SampleContext& context, std::span<float> logits,
                     TokenDistribution& from);

  // Appends to `out` the log-probability and rank of `token`, then those of the n most likely
  // tokens (-1: all); returns the number of entries. Logits are not changed.
  int logprobs(std::span<const float> logits, TokenId token, int n, std::vector<TokenLogprob>& out);

  // Applies masks, biases and penalties to a row, as sample() does before temperature and filters.
  void edit_logits(const SampleContext& context, std::span<float> logits);

  void reserve(int vocab_size, int max_tokens);
  // Returns the work on grammars since the last call.
  GrammarWork take_grammar_work() { return std::exchange(scratch_.grammar, {}); }

 private:
  float log_sum(std::span<const float> logits);  // log of the sum of exp
  int top(std::span<const float> logits, float log_z, int n, std::vector<TokenLogprob>& out);
  StepContext steps_of(const SampleContext& context, LogitEdits& edits);
  void collect_edits(StepContext& steps, SampleRow& row);
  void edit(const SampleContext& context, const SampleRow& row, std::span<float> logits) const;
  void keep_raw(const SampleRow& row, std::span<const float> logits, int n_top,
                std::vector<TokenLogprob>& alternatives, SampleResult& result);
  void report_raw(const SampleRow& row, SampleResult& result) const;
  // What is told of the token that was drawn: of the model's row, or, with
  // params.processed_logprobs, of the distribution that is left.
  void report(const StepContext& steps, std::vector<TokenLogprob>& alternatives,
              SampleResult& result);
  void report_processed(const StepContext& steps, int n_top,
                        std::vector<TokenLogprob>& alternatives, SampleResult& result);
  bool narrow(StepContext& steps, std::span<float> logits);
  TokenId pick(StepContext& steps, std::span<float> logits);
  bool exclude_unfit(const StepContext& steps, TokenId token, std::span<float> logits);
  TokenId pick_residual(const TokenDistribution& drawn_from, double u);

  Candidates candidates_;
  std::vector<float> block_max_, raw_;
  float raw_log_sum_ = 0;
  // [vocab_size] probabilities q of pick_residual(); all 0 between calls
  std::vector<float> q_of_;
  LogitEdits edits_;
  std::vector<TokenLogprob> top_;

  SamplerScratch scratch_;
};

}  // namespace penstock
