// A connection to Redis or Valkey by its protocol (RESP 2), with a deadline for each call.
//
// A server that cannot be reached, is late or closes the connection costs one call: the next ones
// fail at once for a while, and then it is connected to anew, on a thread beside: looking a name up and
// connecting hold a call for RedisTimes::longest_connecting at most. One thread at a time.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/store/redis_address.h"

namespace penstock {

struct RedisTimes {
  std::chrono::milliseconds longest_answer{1000};  // beside a second for every 8 MiB
  // that a call waits; connecting itself may take longest_answer
  std::chrono::milliseconds longest_connecting{100};
  // after a call that failed; doubled after each further one, up to 30 times this
  std::chrono::milliseconds rest{10000};
};

struct RedisReply {
  // kElsewhere: a cluster has the key elsewhere, as the text says (redis_cluster.h)
  enum class Kind : uint8_t { kNil, kNumber, kText, kElsewhere } kind = Kind::kNil;
  int64_t number = 0;
  std::string_view text;  // until the next call
};

class RedisLine;

class RedisConnection {
 public:
  // Connects at the first call.
  explicit RedisConnection(RedisAddress address, RedisTimes times = {});
  ~RedisConnection();

  // Sends a command and returns the answer, of which at most `most` bytes are received. Errors: kIo
  // (no answer, another than expected, or one that says what is wrong), kResourceExhausted (the
  // server has no memory left), kNotFound (the server is not asked: a call has failed, or it is being
  // connected to). What a server says of one command does not end the connection, and does not keep
  // from asking it the next, unless it has no memory left.
  Result<RedisReply> call(std::span<const std::string_view> command, int64_t most);
  const RedisAddress& address() const { return address_; }
  // Whether a call has failed, so that the server is not asked for a while.
  bool rests() const { return Clock::now() < rests_until_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Dial;  // a line that is being made, on a thread of its own
  Status connect();
  void rest(const Error& error);

  RedisAddress address_;
  RedisTimes times_;
  std::unique_ptr<RedisLine> line_;  // null: not connected
  std::shared_ptr<Dial> dial_;       // null: none
  std::chrono::milliseconds rest_;   // after the next failure
  Clock::time_point rests_until_{}, silent_until_{};
};

}  // namespace penstock
