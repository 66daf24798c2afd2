// The HTTP server: listening, HTTP/1.1 with keep-alive, TLS, limits, draining. Independent of
// endpoints.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/exchange.h"
#include "server/http/http_config.h"

namespace penstock {

// Answers one exchange. Must not throw.
using HttpAnswer = std::function<net::awaitable<void>(Exchange&)>;
struct HttpPlan {
  HttpAnswer answer;
  // false: answer before the body arrives, which is then discarded
  bool reads_body = true;
  size_t most_body = SIZE_MAX;  // bytes; HttpConfig's limit applies as well
};
// Decides from the head of a request, before its body is read, how it is answered. Must not throw.
using HttpHandler = std::function<HttpPlan(Exchange&)>;
// Renders an error of the HTTP layer (malformed or oversized request) in the form of the API that
// `target` belongs to; target "": unknown.
using HttpErrorBody =
    std::function<std::string(std::string_view target, int status, std::string_view message)>;

// Counters of the socket side; read from any thread.
struct HttpCounters {
  std::atomic<int> connections{0};     // open now
  std::atomic<int> exchanges{0};       // requests being answered now
  std::atomic<int64_t> body_bytes{0};  // of request bodies held now
  // bytes of large replies that wait for slow readers
  std::atomic<int64_t> reply_bytes{0};
  // connections; turned away: over max_connections
  std::atomic<uint64_t> accepted{0}, turned_away{0};
  std::atomic<uint64_t> malformed{0}, timed_out{0};  // requests that never reached a handler
  // clients that left before their answer was complete
  std::atomic<uint64_t> disconnects{0};
};

class HttpServer {
 public:
  // Binds and listens. Errors: kIo (address in use, …), kInvalidArgument (host, certificate).
  static Result<std::unique_ptr<HttpServer>> open(const HttpConfig& config, HttpHandler handler,
                                                  HttpErrorBody error_body);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // Starts serving on own io threads.
  virtual void start() = 0;
  // Waits until stop() has finished.
  virtual void wait() = 0;
  // Starts to shut down. Thread-safe; REQUIRES: called once. Connections close after their current
  // exchange; new connections are still answered (the handler refuses what it must). The server
  // closes when no exchange is left or after `timeout`. `at_timeout` is called on an io thread if
  // exchanges remain then and should make them end; those that have not ended 0.4 seconds later are
  // cut.
  virtual void stop(Milliseconds timeout, std::function<void()> at_timeout) = 0;
  virtual const HttpCounters& counters() const = 0;
};

}  // namespace penstock
