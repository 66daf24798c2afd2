// Whether the server accepts requests.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "server/http/exchange.h"
#include "server/services/served_models.h"

namespace penstock {

// Thread-safe.
class Readiness {
 public:
  using Clock = std::chrono::steady_clock;

  // REQUIRES: `models` outlives this object.
  explicit Readiness(const ServedModels& models) : models_(models) {}

  // Starts draining for at most `timeout`. false: it was already draining; the deadline is renewed.
  bool begin_drain(std::chrono::milliseconds timeout);
  Clock::time_point drain_end() const {
    return Clock::time_point(drain_end_.load());
  }  // REQUIRES: begin_drain()
  enum class State : uint8_t { kLoading, kReady, kDraining };
  State state() const;
  // Returns 503 with Retry-After while models are loading or the server drains; nullopt: ready.
  std::optional<HttpReply> not_ready(const HttpRequest& request) const;

 private:
  const ServedModels& models_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<bool> draining_{false};
  std::atomic<Clock::duration> drain_end_{};  // relative to the clock's epoch
};

}  // namespace penstock
