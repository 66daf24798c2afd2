// Compiles the grammars of requests fairly: clients take turns, and quick compilations never wait
// for long ones.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "base/result.h"
#include "frontend/grammar_cache.h"
#include "server/http/turn_threads.h"

namespace penstock {

// Every compilation starts in the quick lane with few steps (CompileEffort; about ten
// milliseconds). If they do not suffice, it starts again on the thread of the long lane. Askers
// take turns in both lanes. Thread-safe.
class CompileQueue {
 public:
  static constexpr uint64_t kQuickSteps = 2'000'000;
  static constexpr size_t kMostLong = 16;  // waiting long compilations per asker

  // n_threads: of the quick lane.
  explicit CompileQueue(size_t n_threads) : quick_(n_threads), long_(1) {}

  // Called on one of the threads with its limits; again with higher limits if they did not suffice.
  using Attempt = std::function<void(CompileEffort& effort)>;
  // Runs a compilation and resumes on the caller's executor. asker: the identity for turns. gone:
  // set when the result is no longer wanted; a waiting compilation is then skipped. Errors:
  // kResourceExhausted (too many long ones are waiting). Rethrows exceptions of `attempt`.
  net::awaitable<Status> run(std::string asker, const std::atomic<bool>& gone, Attempt attempt);
  // Waits for running compilations; waiting ones are never called.
  void stop();

 private:
  TurnThreads quick_, long_;
};

}  // namespace penstock
