// The implementation of Engine, with its thread. A request passes through: Inbox -> Requests ->
// StepLoop (Scheduler, StepModel, StepDraws) -> Requests -> Outbox -> its sink.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "engine/compute/engine_clock.h"
#include "engine/compute/step_model.h"
#include "engine/requests/adapter_pool.h"
#include "engine/requests/inbox.h"
#include "engine/requests/metrics_recorder.h"
#include "engine/requests/requests.h"
#include "engine/schedule/scheduler.h"
#include "engine/steps/settling_ends.h"
#include "engine/steps/speculation.h"
#include "engine/steps/step_loop.h"
#include "engine/steps/stored_blocks.h"
#include "penstock/engine.h"

namespace penstock {

struct EngineParts {
  EngineConfig config;  // resolved
  EngineInfo info;
  std::unique_ptr<StepModel> model;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Speculation> speculation;  // null: no speculation
  // null: blocks are in memory only
  std::unique_ptr<KvStore> store;
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  uint64_t fingerprint = 0;  // as fingerprint_of()
  // For one of several engines that share a model: its first adapter slot, the shared counter of
  // request numbers (null: its own), and the CPUs that its thread stays on (empty: any).
  int first_adapter_slot = 0;
  std::shared_ptr<std::atomic<uint64_t>> next_request;
  std::vector<int> cpus;
};

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(EngineParts parts);
  ~EngineImpl() override;

  const EngineInfo& info() const override { return parts_.info; }
  const EngineConfig& config() const override { return parts_.config; }
  Status check(const Request& request) const override;
  Status status() const override;
  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) override {
    return Adapter::open(path, *parts_.model, parts_.config.max_lora_rank);
  }
  void cancel(RequestId request, FinishReason reason) override { cancel(request, -1, reason); }
  void cancel(RequestId request, int index, FinishReason reason) override {
    inbox_.cancel({request, index, reason});
  }
  bool step() override;
  void start() override;
  void stop() override;
  void end_by(Clock::time_point latest) override { end_by_ = latest.time_since_epoch(); }
  Status set_paused(bool paused) override;
  Metrics metrics() const override;
  void reset_prefix_cache() override { inbox_.reset_prefix_cache(); }
  Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                           const std::string& cache_salt) override;
  Result<SessionTokens> load_session(const std::string& path) override;

  Scheduler& scheduler() { return *parts_.scheduler; }
  StepModel& model() { return *parts_.model; }

 private:
  bool run_step();  // whether there was anything to do
  bool idle() const;
  bool awaits_loads_only() const;
  bool holds_ends() const { return settling_ && settling_->any(); }
  void store_blocks();
  Clock::time_point rests_until(bool ran) const;
  void take_inbox();
  void go_on_or_end();
  void end_all();
  void thread_main();

  const EngineParts parts_;
  const EngineClock clock_;
  Inbox inbox_;
  MetricsRecorder metrics_;
  AdapterPool adapters_;
  Requests requests_;
  StepLoop steps_;
  std::optional<StoredBlocks> stored_;
  std::optional<SettlingEnds> settling_;  // role prefill
  Inbox::Content arrived_;
  std::thread thread_;
  std::atomic<bool> ended_ = false;
  std::atomic<Clock::duration> end_by_{Clock::duration::max()};
  bool paused_ = false;  // used by the engine thread only
};

}  // namespace penstock
