// Sends spans to an OTLP/HTTP receiver, as JSON, from a thread of its own.
//
// Callers never block: spans that find the queue full are dropped and counted, and so are spans
// that the receiver does not accept after some retries.
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

#include "server/telemetry/otlp_config.h"

namespace penstock {

class OtlpExporter {
 public:
  // REQUIRES: config.url is not empty. warn: called on the exporter's thread when sending begins to
  // fail.
  OtlpExporter(OtlpConfig config, std::function<void(std::string_view)> warn);
  // Sends the waiting spans, for at most one timeout.
  ~OtlpExporter();

  // Adds all spans of one request, which are kept or dropped together. Thread-safe.
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
  // Retries until the receiver accepts the spans or a retry is pointless.
  void send(Post& post, const std::vector<Span>& spans);
  bool wait_before_retry(std::chrono::milliseconds time);
  void drop(size_t n, const std::string& why);
  bool drop_without_memory(size_t n);

  const OtlpConfig config_;
  const std::function<void(std::string_view)> warn_;
  Counts counts_;
  // used by thread_ only: the failure has been reported
  bool failing_ = false;

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Span> waiting_;
  bool stopping_ = false;
  // While stopping: time at which the running post is aborted.
  std::chrono::steady_clock::time_point stop_at_;
  std::thread thread_;
};

}  // namespace penstock
