// The responses of /v1/responses: a database row for each, with its input and reply.
//
// A response holds the whole conversation that led to it, so that a request which continues it
// needs no other row: older responses may expire, be deleted or be evicted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/store/store.h"

namespace penstock {

struct StoredResponse {
  std::string id, owner;
  // JSON: the items of the conversation, the oldest first
  std::string input;
  std::string reply;  // JSON: the response object
  // events of a response that can be streamed again, each with its terminator; else ""
  std::string events;
  // false: it is being generated in the background
  bool ended = true;
  int64_t created = 0, expires = 0;  // unix time, seconds
};

// The limits of one owner; the oldest responses above them are evicted.
struct ResponseLimits {
  int64_t responses = 10000;
  int64_t bytes = int64_t{256} << 20;
  int64_t seconds = int64_t{30} * 86400;
};

// Thread-safe. Another owner's response is kNotFound, like one that does not exist.
class StoredResponses {
 public:
  static constexpr int64_t kMostUnfinished = 100;  // per owner

  // Marks responses that a previous process did not finish as failed. Errors: those of the store.
  static Result<std::unique_ptr<StoredResponses>> open(std::shared_ptr<Store> store,
                                                       ResponseLimits limits);

  // Adds a response. Returns false, and keeps nothing, when it alone exceeds the owner's limit of
  // bytes. Errors: kResourceExhausted, when the owner has too many unfinished responses; kIo.
  Result<bool> add(StoredResponse response);
  // Stores the result of a response that was not `ended`. Does nothing when it has been deleted
  // meanwhile.
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
