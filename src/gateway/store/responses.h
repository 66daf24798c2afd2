// The responses of /v1/responses: what was asked and answered, a row of the database each.
//
// A response holds the whole conversation that led to it. So what goes on from it needs no other row: older ones may expire,
// be deleted or make room.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/store/store.h"

namespace penstock {

struct StoredResponse {
  std::string id, owner;
  std::string input;   // JSON: the items of the conversation, the oldest first
  std::string reply;   // JSON: the response object
  std::string events;  // of one that can be streamed again: its events, each with its end; else ""
  bool ended = true;   // false: it is being generated in the background
  int64_t created = 0, expires = 0;  // unix time, seconds
};

// What one owner may keep; what is over it makes room, the oldest first.
struct ResponseLimits {
  int64_t responses = 10000;
  int64_t bytes = int64_t{256} << 20;
  int64_t seconds = int64_t{30} * 86400;
};

// Any thread. Another owner's response is kNotFound like one that never was.
class StoredResponses {
 public:
  static constexpr int64_t kMostUnfinished = 100;  // of one owner

  // Those that a killed process was generating end as failed. Errors: of the store.
  static Result<std::unique_ptr<StoredResponses>> open(std::shared_ptr<Store> store, ResponseLimits limits);

  // Keeps it from now on. False: it alone is more than an owner may keep. Errors: kResourceExhausted, too many that have not
  // ended; kIo.
  Result<bool> add(StoredResponse response);
  // What one that was not `ended` came to. Nothing when it was deleted meanwhile.
  Status end(const StoredResponse& response);
  Result<StoredResponse> find(const std::string& owner, const std::string& id);
  Status remove(const std::string& owner, const std::string& id);

 private:
  StoredResponses(std::shared_ptr<Store> store, ResponseLimits limits)
      : store_(std::move(store)), limits_(limits) {}
  Database& database() { return store_->database(); }
  Status fail_unfinished();
  Status make_room(const std::string& owner);
  Status check_unfinished(const std::string& owner);

  std::shared_ptr<Store> store_;
  const ResponseLimits limits_;
};

}  // namespace penstock
