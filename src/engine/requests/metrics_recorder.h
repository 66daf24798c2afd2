// The engine's metrics: filled on its thread, read by anybody as of the last finished step.
#pragma once
#include <mutex>

#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "parallel/communicator.h"
#include "penstock/metrics.h"

namespace penstock {

// Of the processes that share a model, by rank.
void set_ranks(std::span<const CommunicatorUse> ranks, Metrics& metrics);

class MetricsRecorder {
 public:
  Metrics* operator->() { return &metrics_; }

  void note_scheduled(const Running& sequence, double time);
  void note_first_token(const Running& sequence, double time);
  void note_token(Running& sequence, double time);
  void note_end(const Running& sequence, FinishReason reason, double time);
  void note_draft(int n_proposed, int n_accepted);
  // Published at once: events are delivered within a step, after publish(), so that who has one finds its token counted.
  void note_step(double seconds);

  void publish(const Scheduler& scheduler);
  Metrics published() const;  // any thread

 private:
  Metrics metrics_;
  mutable std::mutex mutex_;
  Metrics published_;
};

}  // namespace penstock
