// Compiling the grammars of requests: in turns between those who ask, quick ones never behind long
// ones.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "base/result.h"
#include "frontend/grammar_cache.h"
#include "server/http/turn_threads.h"

namespace penstock {

// Every compilation is begun with a few steps (CompileEffort), some ten milliseconds of work. Those
// that need more go on, from their beginning, on a thread for long ones. In both lanes whoever asks
// takes turns with the others who ask. Any thread may call.
class CompileQueue {
 public:
  static constexpr uint64_t kQuickSteps = 2'000'000;
  static constexpr size_t kMostLong = 16;  // that wait, of each who asks

  // n_threads: of the quick lane.
  explicit CompileQueue(size_t n_threads) : quick_(n_threads), long_(1) {}

  // Called on one of the threads with what it may do; once more where that ran out.
  using Attempt = std::function<void(CompileEffort& effort)>;
  // asker: whose turn it is. gone: set when nobody wants the result any longer; what waits is left
  // out then. Comes back to the caller's executor. Errors: kResourceExhausted, too many long ones
  // wait already. What `attempt` throws is thrown.
  net::awaitable<Status> run(std::string asker, const std::atomic<bool>& gone, Attempt attempt);
  // Waits for what is being compiled; what waits is never called.
  void stop();

 private:
  TurnThreads quick_, long_;
};

}  // namespace penstock
