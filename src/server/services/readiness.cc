#include "server/services/readiness.h"

#include "server/routing/errors.h"

namespace penstock {

bool Readiness::begin_drain(std::chrono::milliseconds timeout) {
  drain_end_.store((Clock::now() + timeout).time_since_epoch());
  return !draining_.exchange(true);
}

Readiness::State Readiness::state() const {
  if (!models_.ready()) return State::kLoading;
  return draining_.load() ? State::kDraining : State::kReady;
}

std::optional<HttpReply> Readiness::not_ready(const HttpRequest& request) const {
  const State now_is = state();
  if (now_is == State::kReady) return std::nullopt;
  const bool loading = now_is == State::kLoading;
  HttpReply reply =
      error_reply(request, 503, loading ? "the model is being loaded" : "shutting down");
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  // progress is unknown: estimate the elapsed time again
  if (loading) {
    set_retry_after(reply,
                    std::chrono::duration<double>(now - started_.time_since_epoch()).count());
  } else {
    set_retry_after(reply, std::chrono::duration<double>(drain_end_.load() - now).count());
  }
  return reply;
}

}  // namespace penstock
