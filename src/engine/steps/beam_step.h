// Beam search among the sequences of a step: one sequence per beam; the beams share the blocks of
// their common prefix.
//
// Engine thread only.
#pragma once
#include <span>
#include <vector>

#include "engine/requests/metrics_recorder.h"
#include "engine/requests/requests.h"
#include "engine/schedule/scheduler.h"
#include "sampling/sampler.h"

namespace penstock {

class BeamStep {
 public:
  BeamStep(Scheduler& scheduler, Requests& requests, MetricsRecorder& metrics)
      : scheduler_(scheduler), requests_(requests), metrics_(metrics) {}

  // Passes the logits after a beam's last token, which are overwritten. When all beams' were passed
  // the search advances, or ends and finishes its request.
  void offer(Running& beam, std::span<float> logits, Sampler& sampler, double time);

 private:
  void advance(RequestState& state, double time);
  void add_beam(Running& beam, const Running& parent, TokenId token);
  void finish(RequestState& state, double time);
  void send(Running& beam, const EndedBeam& hypothesis);

  Scheduler& scheduler_;
  Requests& requests_;
  MetricsRecorder& metrics_;
  std::vector<TokenLogprob> candidates_;
};

}  // namespace penstock
