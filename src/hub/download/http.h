// An HTTP client on libcurl: concurrent requests on the calling thread.
//
// Redirects are followed here and not by libcurl, so that one place enforces the rules: the token
// is sent only to the hub's own origins, https is never redirected to http, and there are at most
// kMaxRedirects.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/settings.h"

namespace penstock {

struct HubRequest {
  std::string url;
  bool head = false;
  // bytes [begin, end) of the content; -1: all of it
  int64_t begin = -1, end = -1;
  // follow redirects to other hosts; those within the hub are always followed
  bool leave_origin = true;
  std::chrono::seconds silence{10};  // timeout without a received byte
};

struct HttpAnswer {
  enum class Failure : uint8_t {
    kNone,
    kConnect,  // no connection
    kBroken,   // connection broken or timed out; may be retried
    kStopped,  // stopped by the receiver
    kFatal,    // certificates, redirects, protocol
  };
  int status = 0;
  // URL of the last request, after redirects
  std::string url;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  // delay in seconds that the server requests (Retry-After)
  int64_t retry_after = 0;
  Failure failure = Failure::kNone;
  std::string problem;  // description of a failure

  std::string_view header(std::string_view name) const;  // "" when there is none
};

// The callbacks of a request, called by HttpClient::poll(). on_answer() and on_data() run inside
// libcurl: they must not start or cancel requests.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // Called with status and headers of the final answer, after redirects. Returns false to stop the
  // request, as on_data().
  virtual bool on_answer(const HttpAnswer& answer) = 0;
  virtual bool on_data(std::span<const std::byte> data) = 0;
  // Called at the end of the request, failed or not; its id is invalid from then on.
  virtual void on_end(const HttpAnswer& answer) = 0;
};

// If the hub's endpoint is https, every request must be https; others end with kFatal without being
// sent.
class HttpClient {
 public:
  explicit HttpClient(const HubSettings& settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Id = uint64_t;
  // Starts a request. REQUIRES: the receiver lives until on_end() or cancel().
  Id start(HubRequest request, HttpReceiver& receiver);
  void cancel(Id id);  // ends the request without on_end()
  size_t n_running() const;

  // Advances all requests; waits at most `wait` for events.
  void poll(std::chrono::milliseconds wait);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the origin of a URL, "https://host:443", in lower case; "" for an invalid URL.
std::string origin_of(const std::string& url);
// Returns the URL without its secrets: user, password and query (which may be a signature).
std::string shown_url(const std::string& url);
// Returns the absolute URL of a redirect from `url` to `location`, which may be relative.
std::string redirect_target(const std::string& url, const std::string& location);
// Escapes everything but letters, digits, -._~ and, with keep_slashes, '/' as %XX.
std::string escape_url(std::string_view text, bool keep_slashes);

}  // namespace penstock
