// HTTP by libcurl: requests that run side by side on the calling thread.
//
// Redirects are followed here and not by libcurl, so that one rule decides what goes where: the token only to the hub's own
// origins, nothing from https to http, at most kMaxRedirects.
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
  int64_t begin = -1, end = -1;  // bytes [begin, end) of the content; -1 is all of it
  bool leave_origin = true;      // follow redirects to other hosts; those within the hub are always followed
  std::chrono::seconds silence{10};  // gives up after this long without a byte
};

struct HttpAnswer {
  enum class Failure : uint8_t {
    kNone,
    kConnect,  // no connection
    kBroken,   // cut off, or silent for too long: worth another try
    kStopped,  // by the receiver
    kFatal,    // certificates, redirects, protocol
  };
  int status = 0;
  std::string url;                                          // of the last request, after redirects
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  int64_t retry_after = 0;                                  // seconds that the server asks for
  Failure failure = Failure::kNone;
  std::string problem;  // in words, with a failure

  std::string_view header(std::string_view name) const;  // "" when there is none
};

// Called by HttpClient::poll. The first two run inside of libcurl: they may not start or cancel requests.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // Status and headers are there, of the last answer after redirects. False stops the request.
  virtual bool on_answer(const HttpAnswer& answer) = 0;
  virtual bool on_data(std::span<const std::byte> data) = 0;
  // The end, also of a request that failed; the request is no more.
  virtual void on_end(const HttpAnswer& answer) = 0;
};

// Of a hub at an https address every request is https; another one ends as kFatal, unsent.
class HttpClient {
 public:
  explicit HttpClient(const HubSettings& settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Id = uint64_t;
  // The receiver must live until its on_end or until cancel.
  Id start(HubRequest request, HttpReceiver& receiver);
  void cancel(Id id);  // without on_end
  size_t n_running() const;

  // Moves every request on, waiting up to that long for something to happen.
  void poll(std::chrono::milliseconds wait);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "https://host:443" of an address, in lower case; "" of what is none.
std::string origin_of(const std::string& url);
// The address without what must not be printed: user, password and query, which signs it.
std::string shown_url(const std::string& url);
// `location` as a redirect from `url` means it.
std::string redirect_target(const std::string& url, const std::string& location);
// Everything but letters, digits and -._~ as %XX; with `keep_slashes` also not those.
std::string escape_url(std::string_view text, bool keep_slashes);

}  // namespace penstock
