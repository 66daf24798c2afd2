// Reuse of cached replies: which calls may be answered from the cache, their keys, and the headers
// that tell clients.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "server/replies/cache/kept_replies.h"
#include "server/services/services.h"

namespace penstock {

// Cache directives in a request's headers.
struct ReuseWish {
  // x-penstock-cache: off; Cache-Control: no-store
  bool off = false;
  bool asked = false;       // x-penstock-cache: on, exact
  bool exact_only = false;  // x-penstock-cache: exact
  // x-penstock-cache: refresh; Cache-Control: no-cache: the cached reply is not used but replaced.
  bool refresh = false;
  int64_t max_age = INT64_MAX;  // Cache-Control: max-age=SECONDS
};
// Errors: kInvalidArgument (an unknown value of x-penstock-cache).
Result<ReuseWish> read_reuse_wish(const HttpRequest& request);

// The cache's handling of one call, before and after its generation.
class Reuse {
 public:
  Reuse(Services& services, Exchange& exchange, GenerationCall& call)
      : services_(services), replies_(*services.replies), exchange_(exchange), call_(call) {}

  // Looks up the call. On a hit, the call replays the cached reply; otherwise it records its own,
  // if that may be cached. Adds the reply headers Cache-Status (RFC 9211) and, on a hit, Age.
  // Errors: kInvalidArgument (invalid headers).
  net::awaitable<Status> look_up();
  // Stores the reply. REQUIRES: the generation finished without an error.
  void keep(const Generation& generation);

 private:
  void make_keys();
  Bypass bypass() const;
  Bypass near_bypass() const;
  net::awaitable<bool> fits(const CachedReplyRef& reply);
  void give(CachedReplyRef reply, const char* by);
  // Searches for a reply to a question of the same meaning.
  net::awaitable<void> look_for_meaning();
  net::awaitable<Bypass> embed();
  // Appends a part of Cache-Status; parts are in the order of the look-ups.
  void say(std::string status);

  Services& services_;
  KeptReplies& replies_;
  Exchange& exchange_;
  GenerationCall& call_;
  ReuseWish wish_;
  std::string said_;
  std::string key_, scope_;
  std::vector<float> meaning_;  // embedding of the question, normalized
};

}  // namespace penstock
