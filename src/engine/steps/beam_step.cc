#include "engine/steps/beam_step.h"

#include <algorithm>
#include <string>
#include <utility>

namespace penstock {
namespace {

// Explains why there are fewer beams than asked for.
Error error_of_too_few(const RequestState& state) {
  for (const auto& beam : state.sequences) {
    if (beam->sampler.matcher == nullptr) continue;
    if (std::string why = beam->sampler.matcher->failure(); !why.empty())
      return {ErrorCode::kInvalidArgument, std::move(why)};
  }
  return {ErrorCode::kInternal, "fewer than n beams have tokens of finite probability"};
}

}  // namespace

void BeamStep::offer(Running& beam, std::span<float> logits, Sampler& sampler, double time) {
  RequestState& state = *beam.request;
  if (beam.index >= state.beams->n_live()) return;
  // preempted meanwhile: it computed its last token again
  if (state.beams->has_offered(beam.index)) return;
  sampler.edit_logits({beam.sampler, beam.tokens, beam.n_prompt}, logits);
  candidates_.clear();
  const int n = std::min(state.beams->n_candidates(), static_cast<int>(logits.size()));
  sampler.logprobs(logits, 0, n, candidates_);
  state.beams->offer(beam.index, std::span<const TokenLogprob>(candidates_).subspan(1));
  if (state.beams->complete()) advance(state, time);
}

void BeamStep::advance(RequestState& state, double time) {
  BeamSearch& search = *state.beams;
  const int n_before = search.n_live();
  if (!search.advance()) return finish(state, time);
  Running& first = *state.sequences[0];
  const std::span<const TokenId> tokens = search.tokens();
  const std::span<const int> parents = search.parents();
  if (first.first_token < 0) {
    first.first_token = time;
    metrics_.note_first_token(first, time);
  }
  std::vector<SamplerState> states;
  for (int i = 0; i < search.n_live(); ++i) {
    states.push_back(state.sequences[parents[i]]->sampler.fork(i));
    states.back().append(tokens[i]);
  }
  // New beams fork first, while their parents have not advanced.
  for (int i = n_before; i < search.n_live(); ++i) {
    requests_.join(*state.sequences[i], first);
    state.sequences[i]->first_token = first.first_token;
    add_beam(*state.sequences[i], *state.sequences[parents[i]], tokens[i]);
  }
  std::vector<Sequence*> beams;
  for (int i = 0; i < n_before; ++i) beams.push_back(state.sequences[i].get());
  const size_t n = std::min(n_before, search.n_live());
  scheduler_.branch(beams, parents.first(n), tokens.first(n));
  for (int i = search.n_live(); i < n_before; ++i) scheduler_.finish(*state.sequences[i]);
  for (int i = 0; i < search.n_live(); ++i) state.sequences[i]->sampler = std::move(states[i]);
}

void BeamStep::add_beam(Running& beam, const Running& parent, TokenId token) {
  beam.tokens = parent.tokens;
  beam.tokens.push_back(token);
  beam.hashes.clear();
  beam.n_computed = 0;
  scheduler_.fork(parent, beam);
}

// Sends the n best beams, each with all its tokens at once.
void BeamStep::finish(RequestState& state, double time) {
  for (const auto& beam : state.sequences) {
    scheduler_.finish(*beam);
    beam->last_token = time;
    if (beam->first_scheduled < 0) beam->first_scheduled = state.sequences[0]->first_scheduled;
    if (beam->first_token < 0) beam->first_token = time;
  }
  const std::span<const EndedBeam> best = state.beams->ended();
  const Error too_few = error_of_too_few(state);
  for (const auto& each : state.sequences) {
    Running& beam = *each;
    beam.tokens.resize(beam.n_prompt);
    const bool wanted = beam.index < state.n;
    if (wanted && static_cast<size_t>(beam.index) < best.size()) {
      send(beam, best[beam.index]);
      continue;
    }
    if (wanted) beam.error = too_few;
    requests_.end(beam, wanted ? FinishReason::kError : FinishReason::kStop);
  }
}

void BeamStep::send(Running& beam, const EndedBeam& hypothesis) {
  beam.tokens.insert(beam.tokens.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
  beam.stats.beam_score = hypothesis.score;
  metrics_->generation_tokens.add(static_cast<double>(hypothesis.tokens.size()));
  for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
    TokenEvent event{
        .index = beam.index, .token = hypothesis.tokens[i], .logprob = hypothesis.logprobs[i]};
    if (i + 1 < hypothesis.tokens.size()) {
      requests_.push(*beam.request, event);
      continue;
    }
    if (hypothesis.ended) Requests::is_end(beam, hypothesis.tokens[i], event);
    requests_.end(beam, hypothesis.ended ? FinishReason::kStop : FinishReason::kLength, event);
  }
}

}  // namespace penstock
