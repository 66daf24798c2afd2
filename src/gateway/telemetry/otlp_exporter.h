// Sends spans to an OTLP/HTTP receiver, as JSON, from a thread of its own.
//
// Nobody waits for it: what finds the queue full is dropped and counted, and so is what the receiver does not take after
// some tries.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gateway/telemetry/otlp_config.h"

namespace penstock {

class OtlpExporter {
 public:
  // config.url is not empty. warn: told, from the thread, when sending begins to fail.
  OtlpExporter(OtlpConfig config, std::function<void(std::string_view)> warn);
  // Sends what waits, for at most one timeout.
  ~OtlpExporter();

  // Any thread; all spans of one request together, so that a trace is whole or not there.
  void add(std::vector<Span> spans);

  const OtlpConfig& config() const { return config_; }
  struct Counts {
    std::atomic<int64_t> exported{0};
    std::atomic<int64_t> dropped{0};
  };
  const Counts& counts() const { return counts_; }

 private:
  class Post;
  void run();
  std::vector<Span> take();
  // Tries until it is taken, or nothing more can be done.
  void send(Post& post, const std::vector<Span>& spans);
  bool wait_before_retry(std::chrono::milliseconds time);
  void drop(size_t n, const std::string& why);

  const OtlpConfig config_;
  const std::function<void(std::string_view)> warn_;
  Counts counts_;
  bool failing_ = false;  // of the thread: it has been told

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Span> waiting_;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point stop_at_;  // while stopping: what is under way then is cut
  std::thread thread_;
};

}  // namespace penstock
