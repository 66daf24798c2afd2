// The socket side of the server: listening, HTTP/1.1 with keep-alive, TLS, limits, drain. Knows no endpoint.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/exchange.h"

namespace penstock {

struct HttpConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free port, see HttpServer::port()
  int io_threads = 1;
  std::string tls_certificate, tls_key;  // PEM files; both or none
  size_t max_header_bytes = 32 * 1024;
  size_t max_body_bytes = 32 * 1024 * 1024;
  int max_connections = 16384;
  std::chrono::seconds header_timeout{15};  // from the first byte of a request to its last header
  std::chrono::seconds body_timeout{60};
  std::chrono::seconds idle_timeout{75};   // between two requests of a connection
  std::chrono::seconds write_timeout{30};  // a reader slower than this is gone
};

// Answers one exchange. Must not throw.
using HttpHandler = std::function<net::awaitable<void>(Exchange&)>;
// Renders an error the socket side found (a malformed or oversized request) in the API's own shape.
using HttpErrorBody = std::function<std::string(int status, std::string_view message)>;

class HttpServer {
 public:
  // Binds and listens. Errors: kIo (address in use, …), kInvalidArgument (host, certificate).
  static Result<std::unique_ptr<HttpServer>> open(const HttpConfig& config, HttpHandler handler, HttpErrorBody error_body);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // Serves until stop() has finished. Blocks.
  virtual void run() = 0;
  // From any thread: no new connections; idle ones close; exchanges under way may finish until the timeout, then their
  // connections are cut.
  virtual void stop(std::chrono::milliseconds timeout) = 0;
  virtual int n_connections() const = 0;
  virtual int n_exchanges() const = 0;  // requests being answered
  virtual net::any_io_executor executor() = 0;
};

}  // namespace penstock
