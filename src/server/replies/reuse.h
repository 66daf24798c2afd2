// Replies that were kept, given again: which calls may be answered so, what they are found by, and
// how clients hear of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "server/replies/cache/kept_replies.h"
#include "server/services/services.h"

namespace penstock {

// What a request says about the cache, in its headers.
struct ReuseWish {
  // x-penstock-cache: off; Cache-Control: no-store
  bool off = false;
  bool asked = false;       // x-penstock-cache: on, exact
  bool exact_only = false;  // x-penstock-cache: exact
  // x-penstock-cache: refresh; Cache-Control: no-cache: it is kept, and not answered
  bool refresh = false;
  int64_t max_age = INT64_MAX;  // Cache-Control: max-age=SECONDS
};
// Error: kInvalidArgument, a value of x-penstock-cache that there is none of.
Result<ReuseWish> read_reuse_wish(const HttpRequest& request);

// Of one call, from before it is computed until it has been.
class Reuse {
 public:
  Reuse(Services& services, Exchange& exchange, GenerationCall& call)
      : services_(services), replies_(*services.replies), exchange_(exchange), call_(call) {}

  // Gives the call the reply that was kept for it, if there is one; else the call records its own,
  // if it may be kept. Says which in the reply's headers: Cache-Status (RFC 9211), and Age of a
  // hit. Error: kInvalidArgument, headers of the request.
  net::awaitable<Status> look_up();
  // When the call is through without an error.
  void keep(const Generation& generation);

 private:
  void make_keys();
  Bypass bypass() const;
  Bypass near_bypass() const;
  void give(CachedReplyRef reply, const char* by);
  // The same for a reply to a question that means the same.
  net::awaitable<void> look_for_meaning();
  net::awaitable<Bypass> embed();
  // By a part of Cache-Status each, in the order in which they were looked at.
  void say(std::string status);

  Services& services_;
  KeptReplies& replies_;
  Exchange& exchange_;
  GenerationCall& call_;
  ReuseWish wish_;
  std::string said_;
  std::string key_, scope_;
  std::vector<float> meaning_;  // of the question, of length 1
};

}  // namespace penstock
