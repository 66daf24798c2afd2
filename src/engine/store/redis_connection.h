// A connection to Redis or Valkey by its protocol (RESP 2), with a deadline for each call.
//
// A server that cannot be reached, is late or closes the connection costs one call: the next ones
// fail at once for a while, and then it is connected to anew. One thread at a time.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct redisContext;

namespace penstock {

// Address of a server, as redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] gives it.
struct RedisAddress {
  std::string host;
  int port = 6379;
  int database = 0;
  std::string user, password;  // "": none
  // HOST:PORT, as messages name it
  std::string name() const;
};

inline constexpr std::string_view kRedisScheme = "redis://";

// Parses a URL; what is encoded by %XX in the user's name and the password is decoded. Errors:
// kInvalidArgument, which do not name the password.
Result<RedisAddress> parse_redis(const std::string& url);

struct RedisTimes {
  std::chrono::milliseconds longest_answer{1000};  // beside a second for every 8 MiB
  // after a call that failed; doubled after each further one, up to 30 times this
  std::chrono::milliseconds rest{10000};
};

struct RedisReply {
  enum class Kind : uint8_t { kNil, kNumber, kText } kind = Kind::kNil;
  int64_t number = 0;
  std::string_view text;  // until the next call
};

class RedisConnection {
 public:
  // Connects at the first call.
  explicit RedisConnection(RedisAddress address, RedisTimes times = {});
  ~RedisConnection();

  // Sends a command and returns the answer, of which at most `most` bytes are received. Errors: kIo
  // (no answer, another than expected, or one that says what is wrong), kResourceExhausted (the
  // server has no memory left), kNotFound (the server is not asked: a call has failed).
  Result<RedisReply> call(std::span<const std::string_view> command, int64_t most);
  const RedisAddress& address() const { return address_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Close {
    void operator()(redisContext* context) const;
  };
  struct FreeReply {
    void operator()(void* reply) const;
  };
  Status connect();
  Status send(std::string_view bytes, Clock::time_point latest);
  // Fills reply_.
  Status receive(int64_t most, Clock::time_point latest);
  Result<RedisReply> exchange(std::span<const std::string_view> command, int64_t most);
  Status wait_for(short events, Clock::time_point latest) const;

  RedisAddress address_;
  RedisTimes times_;
  std::unique_ptr<redisContext, Close> context_;  // null: not connected
  std::unique_ptr<void, FreeReply> reply_;        // the last one
  bool closed_ = false;                           // the call failed before anything was answered
  std::chrono::milliseconds rest_;                // after the next failure
  Clock::time_point rests_until_{};
};

}  // namespace penstock
