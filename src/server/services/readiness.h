// Whether requests are answered now.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "server/http/exchange.h"
#include "server/services/served_models.h"

namespace penstock {

// Any thread.
class Readiness {
 public:
  using Clock = std::chrono::steady_clock;

  // models: outlives it.
  explicit Readiness(const ServedModels& models) : models_(models) {}

  // The server ends, at the latest after `timeout`. False: it was told before; the time counts
  // anew.
  bool begin_drain(std::chrono::milliseconds timeout);
  Clock::time_point drain_end() const {
    return Clock::time_point(drain_end_.load());
  }  // REQUIRES: begin_drain()
  enum class State : uint8_t { kLoading, kReady, kDraining };
  State state() const;
  // 503 with Retry-After while models are loaded and while the server drains; nothing when requests
  // are answered.
  std::optional<HttpReply> not_ready(const HttpRequest& request) const;

 private:
  const ServedModels& models_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<bool> draining_{false};
  std::atomic<Clock::duration> drain_end_{};  // from the clock's epoch
};

}  // namespace penstock
