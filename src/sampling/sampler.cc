#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "sampling/philox.h"
#include "sampling/vocab_scan.h"

namespace penstock {

float Sampler::log_sum(std::span<const float> logits) {
  const float max = scan_block_max(logits, block_max_);
  return max + static_cast<float>(std::log(scan_sum_exp(logits, max, 1.0f)));
}

int Sampler::top(std::span<const float> logits, float log_z, int n, std::vector<TokenLogprob>& out) {
  if (n == 0 || !candidates_.view(logits, 1.0f)) return 0;
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

StepContext Sampler::context_of(SamplerState& state, const SampleInput& input) {
  return {input.logits, input.tokens, input.n_prompt, input.mask, &state, &candidates_, &scratch_};
}

// The raw distribution is reported, so it is looked at before the steps change it. Returns the log of its
// sum.
float Sampler::keep_raw(const SamplingParams& params, const SampleInput& input, Sampled& result,
                        std::vector<TokenLogprob>& alternatives) {
  if (!params.logprobs.has_value()) return 0;
  raw_.assign(input.logits.begin(), input.logits.end());
  const float log_z = log_sum(raw_);
  result.n_alternatives = top(raw_, log_z, *params.logprobs, alternatives);
  return log_z;
}

void Sampler::report_raw(float log_z, Sampled& result) const {
  result.logprob = raw_[result.token] - log_z;
  result.rank = 1 + scan_count_greater(raw_, raw_[result.token]);
}

void Sampler::apply_logit_steps(StepContext& context) {
  for (const SamplerStep& step : logit_steps()) {
    if (step.active(context)) step.apply(context);
  }
}

// The distribution after temperature and filters; false when no token is possible.
bool Sampler::narrow(StepContext& context) {
  apply_logit_steps(context);
  if (!candidates_.reset(context.logits, context.params().temperature)) return false;
  for (const SamplerStep& step : filter_steps()) {
    if (step.active(context)) step.apply(context);
  }
  return true;
}

Sampled Sampler::sample(SamplerState& state, const SampleInput& input,
                        std::vector<TokenLogprob>& alternatives) {
  const SamplingParams& params = state.spec->params;
  StepContext context = context_of(state, input);
  Sampled result;
  const float log_z = keep_raw(params, input, result, alternatives);
  const auto uniform = [&] {
    return uniform_draw(state.spec->seed, context.n_output(), state.index, Draw::kToken);
  };
  if (state.spec->greedy()) {
    apply_logit_steps(context);
    result.token = scan_argmax(input.logits);
  } else if (params.mirostat != 0) {
    apply_logit_steps(context);
    if (candidates_.reset(input.logits, std::max(params.temperature, 1e-5f)))
      result.token = mirostat_pick(context, uniform());
  } else if (narrow(context)) {
    result.token = candidates_.pick(uniform());
  }
  if (params.logprobs.has_value() && result.token != kNoToken) report_raw(log_z, result);
  return result;
}

Sampled Sampler::accept_or_resample(SamplerState& state, const SampleInput& input, const DrawnToken& drawn,
                                    bool& accepted, std::vector<TokenLogprob>& alternatives) {
  StepContext context = context_of(state, input);
  Sampled result;
  accepted = false;
  const float log_z = keep_raw(state.spec->params, input, result, alternatives);
  if (!narrow(context)) return result;
  double p = 0, q = 0;
  for (const Candidate& c : candidates_.list()) {
    if (c.id == drawn.token) p = c.w / candidates_.total();
  }
  for (const TokenProb& each : drawn.from) {
    if (each.token == drawn.token) q = each.p;
  }
  const auto uniform = [&](Draw draw) {
    return uniform_draw(state.spec->seed, context.n_output(), state.index, draw);
  };
  accepted = uniform(Draw::kAccept) * q < p;
  result.token = accepted ? drawn.token : pick_residual(drawn.from, uniform(Draw::kResidual));
  if (state.spec->params.logprobs.has_value()) report_raw(log_z, result);
  return result;
}

// REQUIRES: candidates_ holds p.
TokenId Sampler::pick_residual(const TokenDistribution& drawn_from, double u) {
  for (const TokenProb& each : drawn_from) {
    if (static_cast<size_t>(each.token) >= q_of_.size()) q_of_.resize(each.token + 1);
    q_of_[each.token] = each.p;
  }
  const std::span<const Candidate> list = candidates_.list();
  const double total = candidates_.total();
  const auto residual = [&](const Candidate& c) {
    const double q = static_cast<size_t>(c.id) < q_of_.size() ? q_of_[c.id] : 0.0;
    return std::max(0.0, c.w / total - q);
  };
  double sum = 0;
  for (const Candidate& c : list) sum += residual(c);
  double target = u * sum;
  TokenId token = kNoToken;
  for (const Candidate& c : list) {
    const double r = residual(c);
    if (r <= 0) continue;
    token = c.id;
    target -= r;
    if (target < 0) break;
  }
  for (const TokenProb& each : drawn_from) q_of_[each.token] = 0;
  // p and q differ by rounding only: any draw from p will do.
  return token != kNoToken ? token : candidates_.pick(u);
}

TokenId Sampler::draw_draft(SamplerState& state, const SampleInput& input, TokenDistribution& from) {
  StepContext context = context_of(state, input);
  from.clear();
  if (!narrow(context)) return kNoToken;
  const std::span<const Candidate> list = candidates_.list();
  const double total = candidates_.total();
  for (const Candidate& c : list) {
    if (c.w > 0) from.push_back({c.id, static_cast<float>(c.w / total)});
  }
  return candidates_.pick(uniform_draw(state.spec->seed, context.n_output(), state.index, Draw::kDraft));
}

void Sampler::reserve(int vocab_size, int max_tokens) {
  raw_.reserve(vocab_size);
  block_max_.reserve(vocab_size / kScanBlock + 1);
  scratch_.match.reserve(max_tokens);
  scratch_.followers.reserve(max_tokens);
}

}  // namespace penstock
