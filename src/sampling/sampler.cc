#include "sampling/sampler.h"

#include <cmath>

#include "sampling/philox.h"
#include "sampling/vocab_scan.h"

namespace penstock {

float Sampler::log_sum(std::span<const float> logits) {
  const float max = scan_block_max(logits, block_max_);
  return max + static_cast<float>(std::log(scan_sum_exp(logits, max, 1.0f)));
}

int Sampler::top(std::span<const float> logits, float log_z, int n, std::vector<TokenLogprob>& out) {
  // reset() and peek_top() only read.
  if (n == 0 || !candidates_.reset({const_cast<float*>(logits.data()), logits.size()}, 1.0f)) return 0;
  int rank = 0;
  for (const Candidate& c : candidates_.peek_top(n < 0 ? static_cast<int>(logits.size()) : n)) {
    out.push_back({c.id, logits[c.id] - log_z, ++rank});
  }
  return rank;
}

int Sampler::logprobs(std::span<const float> logits, TokenId token, int n, std::vector<TokenLogprob>& out) {
  const float log_z = log_sum(logits);
  out.push_back({token, logits[token] - log_z, 1 + scan_count_greater(logits, logits[token])});
  return 1 + top(logits, log_z, n, out);
}

Sampled Sampler::sample(SamplerState& state, const SampleInput& input,
                        std::vector<TokenLogprob>& alternatives) {
  const SamplingParams& params = state.spec->params;
  StepContext context{input.logits, input.tokens, input.n_prompt, input.mask,
                      &state,       &candidates_, &scratch_};
  Sampled result;
  // The raw distribution is reported, so it is looked at before the steps change it.
  const bool wants_logprobs = params.logprobs.has_value();
  float log_z = 0;
  if (wants_logprobs) {
    raw_.assign(input.logits.begin(), input.logits.end());
    log_z = log_sum(raw_);
    result.n_alternatives = top(raw_, log_z, *params.logprobs, alternatives);
  }
  for (const SamplerStep& step : logit_steps()) {
    if (step.active(context)) step.apply(context);
  }
  if (state.spec->greedy()) {
    result.token = scan_argmax(input.logits);
  } else if (candidates_.reset(input.logits, params.mirostat != 0 && params.temperature < 1e-5f
                                                 ? 1e-5f
                                                 : params.temperature)) {
    const double u = uniform_draw(state.spec->seed, context.n_output(), state.index, Draw::kToken);
    if (params.mirostat != 0) {
      result.token = mirostat_pick(context, u);
    } else {
      for (const SamplerStep& step : filter_steps()) {
        if (step.active(context)) step.apply(context);
      }
      result.token = candidates_.pick(u);
    }
  }
  if (wants_logprobs && result.token != kNoToken) {
    result.logprob = raw_[result.token] - log_z;
    result.rank = 1 + scan_count_greater(raw_, raw_[result.token]);
  }
  return result;
}

void Sampler::reserve(int vocab_size, int max_tokens) {
  raw_.reserve(vocab_size);
  block_max_.reserve(vocab_size / kScanBlock + 1);
  scratch_.match.reserve(max_tokens);
  scratch_.followers.reserve(max_tokens);
}

}  // namespace penstock
