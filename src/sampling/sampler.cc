#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"
#include "sampling/vocab_scan.h"

namespace penstock {
namespace {

double uniform(const StepContext& steps, Draw draw) {
  return uniform_draw(steps.state->spec->seed, steps.n_output(), steps.state->index, draw);
}

}  // namespace

float Sampler::log_sum(std::span<const float> logits) {
  const float max = scan_block_max(logits, block_max_);
  return max + static_cast<float>(std::log(scan_sum_exp(logits, max, 1.0f)));
}

int Sampler::top(std::span<const float> logits, float log_z, int n,
                 std::vector<TokenLogprob>& out) {
  if (n == 0 || !candidates_.view(logits, 1.0f)) return 0;
  int rank = 0;
  for (const Candidate& c : candidates_.peek_top(n < 0 ? static_cast<int>(logits.size()) : n)) {
    out.push_back({c.id, logits[c.id] - log_z, ++rank});
  }
  return rank;
}

int Sampler::logprobs(std::span<const float> logits, TokenId token, int n,
                      std::vector<TokenLogprob>& out) {
  const float log_z = log_sum(logits);
  out.push_back({token, logits[token] - log_z, 1 + scan_count_greater(logits, logits[token])});
  return 1 + top(logits, log_z, n, out);
}

// Reports of the unedited row are computed before the steps change it.
void Sampler::keep_raw(const SampleRow& row, std::span<const float> logits, int n_top,
                       std::vector<TokenLogprob>& alternatives, SampleResult& result) {
  if (row.likeliest) {
    const float max = scan_block_max(logits, block_max_);
    result.likeliest = static_cast<float>(1.0 / scan_sum_exp(logits, max, 1.0f));
  }
  if (row.report) raw_.assign(logits.begin(), logits.end());
  if (!row.report && n_top == 0) return;
  raw_log_sum_ = log_sum(logits);
  result.n_top = top(logits, raw_log_sum_, n_top, alternatives);
}

void Sampler::report_raw(const SampleRow& row, SampleResult& result) const {
  if (!row.report || result.token == kNoToken) return;
  result.logprob = raw_[result.token] - raw_log_sum_;
  result.rank = 1 + scan_count_greater(raw_, raw_[result.token]);
}

void Sampler::report(const StepContext& steps, std::vector<TokenLogprob>& alternatives,
                     SampleResult& result) {
  const SamplingParams& p = steps.params();
  if (p.processed_logprobs && p.logprobs)
    report_processed(steps, *p.logprobs, alternatives, result);
  else
    report_raw(*steps.row, result);
}

// REQUIRES: candidates_ holds the distribution, unless the draw is greedy.
void Sampler::report_processed(const StepContext& steps, int n_top,
                               std::vector<TokenLogprob>& alternatives, SampleResult& result) {
  if (result.token == kNoToken) return;
  result.logprob = 0, result.rank = 1;
  if (steps.row->temperature == 0 && steps.params().mirostat == 0) {  // it is certain
    if (n_top != 0) alternatives.push_back({result.token, 0, 1});
    result.n_top = n_top != 0 ? 1 : 0;
    return;
  }
  const auto log_total = static_cast<float>(candidates_.log_total());
  const float x = candidates_.x_of(result.token);
  result.logprob = x - log_total;
  for (const Candidate& c : candidates_.list()) result.rank += c.x > x ? 1 : 0;
  if (n_top == 0) return;
  const int n = n_top < 0 ? candidates_.size() : n_top;
  int rank = 0;
  for (const Candidate& c : candidates_.peek_top(n)) {
    if (c.w > 0) alternatives.push_back({c.id, c.x - log_total, ++rank});
  }
  result.n_top = rank;
}

bool Sampler::row_says_all(const SamplingSpec& spec) {
  const SamplingParams& p = spec.params;
  // These steps depend on the parameters only.
  SamplerState state;
  state.spec = {std::shared_ptr<const void>(), &spec};
  const SampleRow row{.min_p = p.min_p, .top_k = std::max(p.top_k, 0), .top_p = p.top_p};
  const StepContext context{.state = &state, .row = &row};
  const bool steps = std::ranges::none_of(filter_steps(), [&](const SamplerStep& step) {
    return step.host_only && step.active(context);
  });
  return p.mirostat == 0 && !p.processed_logprobs && spec.logits_processor == nullptr &&
         (spec.greedy() || steps) && !spec.completes() &&
         (!p.logprobs || (*p.logprobs >= 0 && *p.logprobs <= SampleRow::kMostTop));
}

bool Sampler::row_reads_tokens(SamplerState& state) {
  const StepContext context{.state = &state};
  return std::ranges::any_of(logit_steps(), [&](const SamplerStep& step) {
    return step.reads_tokens && step.active(context);
  });
}

// Top-k must be the first filter: filters before it would look at all tokens, while later ones look
// at k tokens only.
int Sampler::n_needed(const SampleContext& context) {
  const SamplingSpec& spec = *context.state.spec;
  const SamplingParams& p = spec.params;
  if (p.mirostat != 0 || p.logprobs || spec.logits_processor != nullptr || spec.completes())
    return 0;
  const SampleRow row{.min_p = p.min_p, .top_k = std::max(p.top_k, 0), .top_p = p.top_p};
  const StepContext steps{
      .state = &context.state, .tokens = context.tokens, .n_prompt = context.n_prompt, .row = &row};
  const auto is_active = [&](const SamplerStep& step) { return step.active(steps); };
  if (std::ranges::any_of(logit_steps(), is_active)) return 0;
  if (spec.greedy()) return 1;
  const auto first = std::ranges::find_if(filter_steps(), is_active);
  const bool by_rank = first != filter_steps().end() && first->name == std::string_view("top_k");
  return by_rank && p.top_k <= kMostNeeded ? p.top_k : 0;
}

StepContext Sampler::steps_of(const SampleContext& context, LogitEdits& edits) {
  return {.state = &context.state,
          .tokens = context.tokens,
          .n_prompt = context.n_prompt,
          .edits = &edits,
          .scratch = &scratch_,
          .candidates = &candidates_};
}

void Sampler::collect_edits(StepContext& steps, SampleRow& row) {
  LogitEdits& edits = *steps.edits;
  edits.clear();
  for (const SamplerStep& step : logit_steps()) {
    if (!step.active(steps)) continue;
    edits.next_phase();
    step.apply(steps);
  }
  row.mask = edits.mask().empty() ? nullptr : edits.mask().data();
  row.edits = edits.list().data();
  row.n_edits = static_cast<int32_t>(edits.list().size());
}

// Applies the request's own processor, then the edits.
void Sampler::edit(const SampleContext& context, const SampleRow& row,
                   std::span<float> logits) const {
  if (LogitsProcessor* const processor = context.state.spec->logits_processor.get())
    processor->process(context.tokens, context.n_prompt, logits);
  apply_edits(row, logits);
}

SampleRow Sampler::describe(const SampleContext& context, LogitEdits& edits) {
  StepContext steps = steps_of(context, edits);
  const SamplingSpec& spec = *context.state.spec;
  SampleRow row;
  collect_edits(steps, row);
  row.report = spec.params.logprobs.has_value();
  row.n_top = std::clamp(spec.params.logprobs.value_or(0), 0, SampleRow::kMostTop);
  if (spec.greedy()) return row;
  row.temperature = spec.params.temperature;
  row.min_p = spec.params.min_p;
  row.top_k = std::max(spec.params.top_k, 0);
  row.top_p = spec.params.top_p;
  row.u = uniform(steps, Draw::kToken);
  return row;
}

// Narrows the candidates by temperature and filters. Returns false if no token is possible.
bool Sampler::narrow(StepContext& steps, std::span<float> logits) {
  if (!candidates_.reset(logits, steps.row->temperature)) return false;
  for (const SamplerStep& step : filter_steps()) {
    if (step.active(steps)) step.apply(steps);
  }
  return true;
}

TokenId Sampler::pick(StepContext& steps, std::span<float> logits) {
  if (steps.state != nullptr && steps.params().mirostat != 0) {
    if (!candidates_.reset(logits, std::max(steps.params().temperature, 1e-5f))) return kNoToken;
    return mirostat_pick(steps, steps.row->u);
  }
  if (steps.row->temperature == 0) return scan_argmax(logits);
  return narrow(steps, logits) ? candidates_.pick(steps.row->u) : kNoToken;
}

// Excludes an allowed token after which max_tokens do not suffice to complete the text: the next
// best token is chosen, as if the mask had excluded it.
bool Sampler::exclude_unfit(const StepContext& steps, TokenId token, std::span<float> logits) {
  const SamplerState* const state = steps.state;
  if (token == kNoToken || !state->spec->completes() || !state->matcher ||
      state->matcher->may_take(token))
    return false;
  if (!state->matcher->failure().empty()) return false;  // the matcher has failed
  logits[token] = kImpossible;
  return true;
}

SampleResult Sampler::draw(const SampleRow& row, std::span<float> logits) {
  StepContext steps{.row = &row, .candidates = &candidates_};
  SampleResult result{.drawn = true};
  top_.clear();
  keep_raw(row, logits, row.n_top, top_, result);
  std::ranges::copy(top_, row.top);
  apply_edits(row, logits);
  result.token = pick(steps, logits);
  report_raw(row, result);
  return result;
}

namespace {

// Alternatives of the row as the model made it.
int n_raw(const SampleContext& context) {
  const SamplingParams& p = context.state.spec->params;
  return p.processed_logprobs ? 0 : p.logprobs.value_or(0);
}

}  // namespace

SampleResult Sampler::sample(const SampleContext& context, std::span<float> logits,
                             std::vector<TokenLogprob>& alternatives) {
  const SampleRow row = describe(context, edits_);
  StepContext steps = steps_of(context, edits_);
  steps.row = &row;
  SampleResult result{.drawn = true};
  keep_raw(row, logits, n_raw(context), alternatives, result);
  edit(context, row, logits);
  do {
    result.token = pick(steps, logits);
  } while (exclude_unfit(steps, result.token, logits));
  report(steps, alternatives, result);
  return result;
}

void Sampler::edit_logits(const SampleContext& context, std::span<float> logits) {
  StepContext steps = steps_of(context, edits_);
  SampleRow row;
  collect_edits(steps, row);
  edit(context, row, logits);
}

SampleResult Sampler::accept_or_resample(const SampleContext& context, std::span<float> logits,
                                         const DrawnToken& drawn, bool& accepted,
                                         std::vector<TokenLogprob>& alternatives) {
  const SampleRow row = describe(context, edits_);
  StepContext steps = steps_of(context, edits_);
  steps.row = &row;
  SampleResult result{.drawn = true};
  accepted = false;
  keep_raw(row, logits, n_raw(context), alternatives, result);
  edit(context, row, logits);
  exclude_unfit(steps, drawn.token, logits);
  if (!narrow(steps, logits)) return result;
  double p = 0, q = 0;
  for (const Candidate& c : candidates_.list()) {
    if (c.id == drawn.token) p = c.w / candidates_.total();
  }
  for (const TokenProb& each : drawn.from) {
    if (each.token == drawn.token) q = each.p;
  }
  accepted = uniform(steps, Draw::kAccept) * q < p;
  result.token =
      accepted ? drawn.token : pick_residual(drawn.from, uniform(steps, Draw::kResidual));
  while (exclude_unfit(steps, result.token, logits)) {
    const bool any = narrow(steps, logits);
    result.token = any ? pick_residual(drawn.from, uniform(steps, Draw::kResidual)) : kNoToken;
  }
  report(steps, alternatives, result);
  return result;
}

// REQUIRES: candidates_ holds the distribution p.
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
  // p and q differ by rounding errors only: any draw from p is valid.
  return token != kNoToken ? token : candidates_.pick(u);
}

TokenId Sampler::draw_draft(const SampleContext& context, std::span<float> logits,
                            TokenDistribution& from) {
  const SampleRow row = describe(context, edits_);
  StepContext steps = steps_of(context, edits_);
  steps.row = &row;
  from.clear();
  apply_edits(row, logits);
  if (!narrow(steps, logits)) return kNoToken;
  const std::span<const Candidate> list = candidates_.list();
  const double total = candidates_.total();
  for (const Candidate& c : list) {
    if (c.w > 0) from.push_back({c.id, static_cast<float>(c.w / total)});
  }
  return candidates_.pick(uniform(steps, Draw::kDraft));
}

void Sampler::reserve(int vocab_size, int max_tokens) {
  raw_.reserve(vocab_size);
  block_max_.reserve(vocab_size / kScanBlock + 1);
  constexpr int kEditsPerToken = 3;  // two penalties and DRY
  edits_.reserve(kEditsPerToken * max_tokens);
  scratch_.repeats.reserve(max_tokens, vocab_size);
  scratch_.last_tokens.reserve(max_tokens);
}

}  // namespace penstock
