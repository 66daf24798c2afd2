// A thread that owns what it works with, so that its starter need not wait for it when it hangs in
// a call of the system.
#pragma once
#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace penstock {

// The time until a point, or 0.
inline std::chrono::milliseconds time_until(std::chrono::steady_clock::time_point point) {
  using namespace std::chrono;
  const auto now = steady_clock::now();
  return point <= now
             ? milliseconds(0)
             : ceil<milliseconds>(std::min(point - now, steady_clock::duration(hours(24))));
}

class LoneThread {
 public:
  // Calls work->run() on a thread, which holds `work` until its end.
  template <class Work>
  explicit LoneThread(std::shared_ptr<Work> work) {
    std::promise<void> end;
    end_ = end.get_future();
    thread_ = std::thread([work = std::move(work), end = std::move(end)]() mutable {
      work->run();
      end.set_value();
    });
  }
  LoneThread(const LoneThread&) = delete;
  LoneThread& operator=(const LoneThread&) = delete;
  // REQUIRES: end() was called.
  ~LoneThread() = default;

  // Waits for the end of the thread, which was asked for. false: it has not ended within the time
  // and goes on alone.
  bool end(std::chrono::milliseconds longest) {
    const bool ended = end_.wait_for(longest) == std::future_status::ready;
    ended ? thread_.join() : thread_.detach();
    return ended;
  }

 private:
  std::thread thread_;
  std::future<void> end_;
};

}  // namespace penstock
