// Pictures that requests name by URL (--allow-image-urls): fetched before the request is read, and
// put into its body as data.
//
// A URL is https. Neither it nor a redirection of it reaches an address that is not public: every
// address is checked when it is connected to, after its name was resolved.
#pragma once
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "server/http/exchange.h"
#include "server/http/turn_threads.h"

namespace penstock {

struct Services;

// Whether an address is reachable for everybody: none of this host, of private networks, of links,
// for documentation, multicast or reserved, and none that stands for another one (6to4, NAT64).
bool is_public_address(const net::ip::address& address);

class ImageUrls {
 public:
  struct Limits {
    // Of all pictures of a request, a file as often as it is named.
    size_t bytes = size_t{32} << 20;
    size_t urls = 16;  // of a request
    int redirects = 3;
    std::chrono::milliseconds time{10'000};  // for each URL
    size_t threads = 8, threads_of_one = 2;  // of all clients; of one
    std::function<bool(const net::ip::address&)> may_reach = is_public_address;
    std::string authorities;  // file of certificate authorities; "": the system's
  };
  explicit ImageUrls(Limits limits);

  // Fetches the pictures that the body of a request names by URL and puts them into the body. Bodies
  // without such URLs stay as they are. Errors: kInvalidArgument, naming the part.
  net::awaitable<Status> resolve(Services& services, Exchange& exchange);
  // Fetches one, of at most so many bytes. Errors, which name no address: kInvalidArgument.
  Result<std::string> fetch(const std::string& url, size_t most_bytes,
                            const std::stop_token& stop) const;

 private:
  const Limits limits_;
  TurnThreads threads_;
};

}  // namespace penstock
