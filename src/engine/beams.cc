// Beam search inside the engine: one sequence per beam, which share the blocks of what they have in common.
#include <algorithm>

#include "engine/engine_impl.h"

namespace penstock {

void EngineImpl::start_beams(RequestState& state) {
  const SamplingParams& params = state.request.sampling;
  BeamOptions options;
  options.width = params.beam_width;
  options.length_penalty = params.length_penalty;
  options.early_stopping = params.early_stopping;
  options.min_tokens = params.min_tokens;
  options.max_tokens = state.sequences[0]->max_len - state.sequences[0]->n_prompt;
  options.end_tokens = params.stop_token_ids;
  if (!params.ignore_eos) {
    options.end_tokens.insert(options.end_tokens.end(), state.request.eos_token_ids.begin(),
                              state.request.eos_token_ids.end());
  }
  std::ranges::sort(options.end_tokens);
  const auto repeated = std::ranges::unique(options.end_tokens);
  options.end_tokens.erase(repeated.begin(), repeated.end());
  state.beams = std::make_unique<BeamSearch>(std::move(options));
}

// The row of one beam. When the last one's is there the search goes on.
void EngineImpl::offer_beam(Running& beam, std::span<float> logits, double time) {
  RequestState& state = *beam.request;
  if (beam.index >= state.beams->n_live()) return;
  if (state.beams->has_offered(beam.index)) return;  // it was preempted and computed its last token again
  Sampler& sampler = draws_.host();
  sampler.edit_logits({beam.sampler, beam.tokens, beam.n_prompt}, logits);
  beam_candidates_.clear();
  const int n = std::min(state.beams->n_candidates(), static_cast<int>(logits.size()));
  sampler.logprobs(logits, 0, n, beam_candidates_);
  state.beams->offer(beam.index, std::span<const TokenLogprob>(beam_candidates_).subspan(1));
  if (state.beams->complete()) advance_beams(state, time);
}

void EngineImpl::advance_beams(RequestState& state, double time) {
  BeamSearch& search = *state.beams;
  const int n_before = search.n_live();
  if (!search.advance()) return end_beams(state, time);
  Running& first = *state.sequences[0];
  const std::span<const TokenId> tokens = search.tokens();
  if (first.first_token < 0) {
    first.first_token = time;
    metrics_.time_to_first_token_seconds.observe(time - state.submitted);
    metrics_.request_prefill_time_seconds.observe(time - first.first_scheduled);
  }
  const std::span<const int> parents = search.parents();
  std::vector<SamplerState> states;
  for (int i = 0; i < search.n_live(); ++i) {
    states.push_back(state.sequences[parents[i]]->sampler.fork(i));
    states.back().append(tokens[i]);
  }
  // New beams first, while their parents stand where they stood.
  for (int i = n_before; i < search.n_live(); ++i) {
    const Running& parent = *state.sequences[parents[i]];
    Running& beam = *state.sequences[i];
    beam.joined = true;
    beam.first_scheduled = first.first_scheduled;
    beam.first_token = first.first_token;
    beam.stats.cached_tokens = first.n_cached;
    beam.tokens = parent.tokens;
    beam.tokens.push_back(tokens[i]);
    beam.hashes.clear();
    beam.n_computed = 0;
    scheduler_->fork(parent, beam);
  }
  std::vector<Sequence*> beams;
  for (int i = 0; i < n_before; ++i) beams.push_back(state.sequences[i].get());
  const size_t n = std::min(n_before, search.n_live());
  scheduler_->branch(beams, parents.first(n), tokens.first(n));
  for (int i = search.n_live(); i < n_before; ++i) scheduler_->finish(*state.sequences[i]);
  for (int i = 0; i < search.n_live(); ++i) state.sequences[i]->sampler = std::move(states[i]);
}

// The n best, each with all its tokens at once.
void EngineImpl::end_beams(RequestState& state, double time) {
  for (const auto& beam : state.sequences) {
    scheduler_->finish(*beam);
    beam->last_token = time;
    if (beam->first_scheduled < 0) beam->first_scheduled = state.sequences[0]->first_scheduled;
    if (beam->first_token < 0) beam->first_token = time;
  }
  const std::span<const EndedBeam> best = state.beams->ended();
  for (const auto& each : state.sequences) {
    Running& beam = *each;
    beam.tokens.resize(beam.n_prompt);
    if (static_cast<size_t>(beam.index) >= best.size() || beam.index >= state.request.sampling.n) {
      if (beam.index < state.request.sampling.n)
        beam.error = {ErrorCode::kInternal, "fewer than n beams have tokens of finite probability"};
      end(beam, beam.index < state.request.sampling.n ? FinishReason::kError : FinishReason::kStop);
      continue;
    }
    const EndedBeam& hypothesis = best[beam.index];
    beam.tokens.insert(beam.tokens.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
    beam.stats.beam_score = hypothesis.score;
    metrics_.generation_tokens.add(static_cast<double>(hypothesis.tokens.size()));
    for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
      PendingEvent news;
      news.event = {.index = beam.index, .token = hypothesis.tokens[i], .logprob = hypothesis.logprobs[i]};
      if (i + 1 < hypothesis.tokens.size()) {
        push(state, news);
        continue;
      }
      if (hypothesis.ended) is_end(beam, hypothesis.tokens[i], news.event);
      end(beam, hypothesis.ended ? FinishReason::kStop : FinishReason::kLength, news);
    }
  }
}

}  // namespace penstock
