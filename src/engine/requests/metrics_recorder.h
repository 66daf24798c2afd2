// The engine's metrics: filled in on the engine thread, read by any thread as of the last finished
// step.
#pragma once
#include <mutex>

#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/kv_store.h"
#include "parallel/communicator.h"
#include "penstock/metrics.h"

namespace penstock {

// Fills in the metrics per rank. ranks: [rank], of the processes that share a model.
void set_ranks(std::span<const CommunicatorUse> ranks, Metrics& metrics);

// Fills in what the store has counted.
void set_store(KvStore& store, Metrics& metrics);

class MetricsRecorder {
 public:
  Metrics* operator->() { return &metrics_; }

  void note_scheduled(const Running& sequence, double time);
  void note_first_token(const Running& sequence, double time);
  void note_token(Running& sequence, double time);
  void note_end(const Running& sequence, FinishReason reason, double time);
  void note_draft(int n_proposed, int n_accepted);
  // Adds a step and publishes that at once. (Events are delivered after publish(), so that a caller
  // who has received one finds its token counted.)
  void note_step(double seconds);

  void publish(const Scheduler& scheduler);
  Metrics published() const;  // any thread

 private:
  Metrics metrics_;
  mutable std::mutex mutex_;
  Metrics published_;
};

}  // namespace penstock
