#include "server/services/compile_queue.h"

namespace penstock {

void CompileQueue::stop() {
  quick_.stop();
  long_.stop();
}

net::awaitable<Status> CompileQueue::run(std::string asker, const std::atomic<bool>& gone,
                                         Attempt attempt) {
  CompileEffort effort{
      .cancelled = &gone, .max_steps = kQuickSteps, .waits = false, .owner = asker};
  const std::function<void()> work = [&] {
    if (!gone) attempt(effort);
  };
  co_await quick_.run(asker, work);
  if (!effort.ran_out) co_return Status();
  effort = {.cancelled = &gone, .owner = asker};
  if (co_await long_.run(asker, work, kMostLong)) co_return Status();
  co_return errorf(ErrorCode::kResourceExhausted, "{} large grammars wait to be compiled already",
                   kMostLong);
}

}  // namespace penstock
