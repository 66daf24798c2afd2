// Several engines behind one: each request is one engine's, from its beginning to its end.
//
// A request that names no seed gets the number that one engine would have given it, and with it the same random numbers. What one engine
// cannot do any more none does: status() is the first error.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "engine/replicas/prefix_router.h"
#include "penstock/engine.h"

namespace penstock {

// What an engine has to do now. Any thread.
struct EngineLoad {
  std::atomic<int64_t> prompt_tokens = 0, sequences = 0;  // as PrefixRouter::Load
  PrefixRouter::Load now() const { return {prompt_tokens, sequences}; }
};

// Of several engines: counters are sums, shares are means.
Metrics metrics_together(std::span<const Metrics> engines);

class Engines final : public Engine {
 public:
  // At least one, of the same model and configuration, that number their requests together. n_copies: of the weights.
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
  Status set_paused(bool paused) override;
  Metrics metrics() const override;
  int n_engines() const override { return static_cast<int>(engines_.size()); }
  const Engine& engine_at(int index) const override { return *engines_[static_cast<size_t>(index)]; }
  void reset_prefix_cache() override;
  // From the cache that has most of it.
  Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                           const std::string& cache_salt) override;
  // Into every cache.
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
