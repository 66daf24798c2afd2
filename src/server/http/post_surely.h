// Posts work from threads that have no caller to report out-of-memory to.
#pragma once
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace penstock {

namespace net = boost::asio;

// Posts `work` to an executor and retries while memory is exhausted; blocks meanwhile. The captures
// of `work` are released by the thread that runs it.
template <class Executor, class Function>
void post_surely(const Executor& executor, Function work) {
  std::shared_ptr<Function> kept;
  for (;;) {
    try {
      if (kept == nullptr) kept = std::make_shared<Function>(std::move(work));
      net::post(executor, [kept] {
        Function own = std::move(*kept);
        own();
      });
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace penstock
