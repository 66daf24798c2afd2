// Configuration of the HTTP server: address and limits.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock {

using Milliseconds = std::chrono::milliseconds;

// Limits are per connection unless stated otherwise. Timeouts have a resolution of half a second.
struct HttpConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free port, see HttpServer::port()
  int io_threads = 1;
  std::string tls_certificate, tls_key;  // PEM files; both or none
  size_t max_header_bytes = 32 * 1024;
  size_t max_body_bytes = 32 * 1024 * 1024;
  size_t max_total_body_bytes = 256 * 1024 * 1024;  // all connections together, as received
  // all large replies that wait for slow readers
  size_t max_total_reply_bytes = 512 * 1024 * 1024;
  int max_connections = 16384;  // of the whole server
  // from the first byte of a request to its last header
  Milliseconds header_timeout{15000};
  Milliseconds body_timeout{60000};
  Milliseconds idle_timeout{75000};  // between two requests of a connection
  // a client that reads nothing for this long counts as gone
  Milliseconds write_timeout{30000};
};

}  // namespace penstock
