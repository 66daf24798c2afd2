// Bytes to and from a Redis, with or without TLS, with a deadline for each call. One thread at a time.
#pragma once
#include <openssl/ssl.h>

#include <chrono>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/store/redis_address.h"

struct redisContext;
struct redisReader;

namespace penstock {

class RedisSocket {
 public:
  using Clock = std::chrono::steady_clock;
  // Looks the name up, which no deadline ends, connects, and agrees on a key. Errors: kIo,
  // kInvalidArgument (a file of certificates), kResourceExhausted.
  static Result<std::unique_ptr<RedisSocket>> open(const RedisAddress& address,
                                                   Clock::time_point latest);
  // Errors: kIo.
  Status send(std::string_view bytes, Clock::time_point latest);
  // Receives what there is, a byte at least; 0: the other side has closed. Errors: kIo.
  Result<size_t> receive(std::span<char> to, Clock::time_point latest);
  // Whether the last call has failed since the other side had closed.
  bool closed() const { return closed_; }
  // The parser of the answers on this connection; valid as long as the socket.
  redisReader& reader() const;

 private:
  RedisSocket() = default;
  Status encrypt(const RedisAddress& address, Clock::time_point latest);
  Status wait_for(short events, Clock::time_point latest) const;
  // Waits for what an operation of TLS, which returned `code`, needs to go on.
  Status go_on(int code, const char* what, Clock::time_point latest);
  int socket() const;

  struct Close {
    void operator()(redisContext* context) const;
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<redisContext, Close> context_;
  std::unique_ptr<SSL_CTX, Close> tls_context_;
  std::unique_ptr<SSL, Close> tls_;  // null: not encrypted
  bool closed_ = false;
};

}  // namespace penstock
