// Posting what somebody waits for, on threads that have no caller to tell that memory has run out.
#pragma once
#include <boost/asio/post.hpp>
#include <chrono>
#include <new>
#include <thread>

namespace penstock {

namespace net = boost::asio;

// Posts a copy of `work` to an executor; while there is no memory for that, tries again. Blocks meanwhile.
template <class Executor, class Function>
void post_surely(const Executor& executor, const Function& work) {
  for (;;) {
    try {
      net::post(executor, work);
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace penstock
