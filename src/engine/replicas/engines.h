// Several engines behind one interface (data parallelism): each request is served by one engine
// from its start to its end.
//
// A request without a seed gets the request number, and so the random numbers, that a single engine
// would have given it. When one engine fails, all do: status() is the first error.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "engine/replicas/prefix_router.h"
#include "penstock/engine.h"

namespace penstock {

// Current load of an engine. Any thread.
struct EngineLoad {
  std::atomic<int64_t> prompt_tokens = 0, sequences = 0;  // as in PrefixRouter::Load
  PrefixRouter::Load now() const { return {prompt_tokens, sequences}; }
};

// Returns the metrics of all engines together: counters are added up, shares are averaged.
Metrics metrics_together(std::span<const Metrics> engines);

class Engines final : public Engine {
 public:
  // n_copies: copies of the weights in memory. REQUIRES: at least one engine, all of the same model
  // and configuration, with one shared counter of request numbers.
  Engines(std::vector<std::unique_ptr<Engine>> engines, int n_copies);
  ~Engines() override { stop(); }

  const EngineInfo& info() const override { return info_; }
  const EngineConfig& config() const override { return config_; }
  Status check(const Request& request) const override { return engines_.front()->check(request); }
  Status status() const override;
  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) override;
  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId request, FinishReason reason) override {
    for (const auto& engine : engines_) engine->cancel(request, reason);
  }
  void cancel(RequestId request, int index, FinishReason reason) override {
    for (const auto& engine : engines_) engine->cancel(request, index, reason);
  }
  bool step() override;
  void start() override;
  void stop() override;
  void end_by(Clock::time_point latest) override {
    for (const auto& engine : engines_) engine->end_by(latest);
  }
  Status set_paused(bool paused) override;
  Metrics metrics() const override;
  int n_engines() const override { return static_cast<int>(engines_.size()); }
  const Engine& engine_at(int index) const override {
    return *engines_[static_cast<size_t>(index)];
  }
  void reset_prefix_cache() override;
  // Saves from the engine whose cache has the most of `tokens`.
  Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                           const std::string& cache_salt) override;
  // Loads the session into the cache of every engine.
  Result<SessionTokens> load_session(const std::string& path) override;

 private:
  std::vector<PrefixRouter::Load> loads() const;

  std::vector<std::shared_ptr<EngineLoad>> loads_;
  const std::vector<std::unique_ptr<Engine>> engines_;
  EngineInfo info_;
  EngineConfig config_;
  PrefixRouter router_;
};

}  // namespace penstock
