#include "server/services/image_urls.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/json_text.h"
#include "base/system_certificates.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

struct Network {
  const char* address;
  unsigned short length;
};

constexpr Network kNotPublic4[] = {{"0.0.0.0", 8},      {"10.0.0.0", 8},     {"100.64.0.0", 10},
                                   {"127.0.0.0", 8},    {"169.254.0.0", 16}, {"172.16.0.0", 12},
                                   {"192.0.0.0", 24},   {"192.0.2.0", 24},   {"192.88.99.0", 24},
                                   {"192.168.0.0", 16}, {"198.18.0.0", 15},  {"198.51.100.0", 24},
                                   {"203.0.113.0", 24}, {"224.0.0.0", 4},    {"240.0.0.0", 4}};
// Of 2000::/3, outside of which nothing is public.
constexpr Network kNotPublic6[] = {
    {"2001::", 23}, {"2001:db8::", 32}, {"2002::", 16}, {"3ffe::", 16}, {"3fff::", 20}};

template <class Address>
bool begins_with(const Address& address, const Network& network) {
  const auto own = address.to_bytes();
  const auto other = net::ip::make_address(network.address);
  std::array<unsigned char, 16> wanted{};
  if constexpr (std::is_same_v<Address, net::ip::address_v4>) {
    std::ranges::copy(other.to_v4().to_bytes(), wanted.begin());
  } else {
    std::ranges::copy(other.to_v6().to_bytes(), wanted.begin());
  }
  for (unsigned bit = 0; bit < network.length; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if ((own[bit / 8] & mask) != (wanted[bit / 8] & mask)) return false;
  }
  return true;
}

// What a transfer may do and has done.
struct Transfer {
  const ImageUrls::Limits& limits;
  const std::stop_token& stop;
  size_t most_bytes;
  std::string bytes;
  bool too_many = false, forbidden = false;
};

std::optional<net::ip::address> address_of(const sockaddr& address, size_t size) {
  if (address.sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    const auto& own = reinterpret_cast<const sockaddr_in&>(address);
    return net::ip::address_v4(ntohl(own.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    const auto& own = reinterpret_cast<const sockaddr_in6&>(address);
    net::ip::address_v6::bytes_type bytes;
    std::copy_n(own.sin6_addr.s6_addr, bytes.size(), bytes.begin());
    return net::ip::address_v6(bytes);
  }
  return {};
}

// Called for each address that is about to be connected to.
curl_socket_t open_socket(void* data, curlsocktype purpose, curl_sockaddr* where) {
  auto& transfer = *static_cast<Transfer*>(data);
  const auto address = address_of(where->addr, where->addrlen);
  if (purpose != CURLSOCKTYPE_IPCXN || !address || !transfer.limits.may_reach(*address)) {
    transfer.forbidden = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(where->family, where->socktype | SOCK_CLOEXEC, where->protocol);
}

size_t take_bytes(char* data, size_t, size_t n, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.too_many = transfer.bytes.size() + n > transfer.most_bytes;
  if (transfer.too_many) return 0;
  try {
    transfer.bytes.append(data, n);
  } catch (const std::bad_alloc&) {  // no exception passes through curl
    return 0;
  }
  return n;
}

int gives_up(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const Transfer*>(data)->stop.stop_requested() ? 1 : 0;
}

// Bounds the memory that the values of a body take by its size: more of them than any route reads.
size_t most_values(std::string_view body) {
  constexpr size_t kLeast = 100'000, kBytesOfValue = 24;
  return kLeast + body.size() / kBytesOfValue;
}

// A URL of a body: where it stands, and what takes its place.
struct Named {
  std::string where;
  Json* place;  // the string with the URL, or Anthropic's source
  std::string url;
  bool is_source;
};

bool is_url(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.starts_with("https://") || text.starts_with("http://");
}

Json* member(Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? &*found : nullptr;
}

// Collects the URLs of parts that are pictures.
void collect(Json& value, const std::string& where, std::vector<Named>& out) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i)
      collect(value[i], fmt::format("{}[{}]", where, i), out);
    return;
  }
  if (!value.is_object()) return;
  const Json* const type = member(value, "type");
  if (type != nullptr && (*type == "image_url" || *type == "input_image")) {
    Json* url = member(value, "image_url");
    if (url != nullptr && url->is_object()) url = member(*url, "url");
    if (url != nullptr && is_url(*url)) out.push_back({where, url, url->get<std::string>(), false});
    return;
  }
  if (type != nullptr && *type == "image") {
    Json* const source = member(value, "source");
    Json* const url = source != nullptr ? member(*source, "url") : nullptr;
    if (url != nullptr && is_url(*url))
      out.push_back({where, source, url->get<std::string>(), true});
    return;
  }
  for (const char* name : {"messages", "input", "content", "output"}) {
    if (Json* const inner = member(value, name))
      collect(*inner, where.empty() ? name : where + "." + name, out);
  }
}

// The type of a file by its first bytes; the picture's decoder does not go by it.
const char* media_type(std::string_view file) {
  if (file.starts_with("\xFF\xD8")) return "image/jpeg";
  if (file.starts_with("GIF8")) return "image/gif";
  if (file.starts_with("RIFF")) return "image/webp";
  return "image/png";
}

size_t base64_bytes(size_t n) { return (n + 2) / 3 * 4; }

void put(const Named& named, const std::string& file) {
  const char* const type = media_type(file);
  std::string data = encode_base64(file);
  if (named.is_source) {
    *named.place = {{"type", "base64"}, {"media_type", type}, {"data", std::move(data)}};
  } else {
    *named.place = fmt::format("data:{};base64,{}", type, data);
  }
}

}  // namespace

bool is_public_address(const net::ip::address& address) {
  if (address.is_v4()) {
    return std::ranges::none_of(
        kNotPublic4, [&](const Network& network) { return begins_with(address.to_v4(), network); });
  }
  return begins_with(address.to_v6(), {"2000::", 3}) &&
         std::ranges::none_of(kNotPublic6, [&](const Network& network) {
           return begins_with(address.to_v6(), network);
         });
}

ImageUrls::ImageUrls(Limits limits)
    : limits_(std::move(limits)), threads_(limits_.threads, limits_.threads_of_one) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

Result<std::string> ImageUrls::fetch(const std::string& url, size_t most_bytes,
                                     const std::stop_token& stop) const {
  if (!url.starts_with("https://"))
    return make_error(ErrorCode::kInvalidArgument, "expected a URL with scheme https");
  Transfer transfer{limits_, stop, most_bytes, {}};
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, static_cast<long>(limits_.redirects));
  set(CURLOPT_PROXY, "");  // a proxy would be what is connected to
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(limits_.time.count()));
  set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(most_bytes));
  set(CURLOPT_USERAGENT, "penstock");
  const std::string authorities =
      limits_.authorities.empty() ? system_certificates() : limits_.authorities;
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  set(CURLOPT_OPENSOCKETFUNCTION, open_socket);
  set(CURLOPT_OPENSOCKETDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, take_bytes);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFODATA, &transfer);
  set(CURLOPT_XFERINFOFUNCTION, gives_up);
  const CURLcode done = curl_easy_perform(curl.get());
  if (done == CURLE_OK) return std::move(transfer.bytes);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (transfer.forbidden)
    return make_error(ErrorCode::kInvalidArgument,
                      "the URL leads to an address that is not public");
  if (transfer.too_many || done == CURLE_FILESIZE_EXCEEDED)
    return errorf(ErrorCode::kInvalidArgument, "the pictures of a request have at most {} bytes",
                  limits_.bytes);
  if (done == CURLE_OPERATION_TIMEDOUT)
    return errorf(ErrorCode::kInvalidArgument, "the URL was not read within {} ms",
                  limits_.time.count());
  if (done == CURLE_HTTP_RETURNED_ERROR)
    return errorf(ErrorCode::kInvalidArgument, "the URL answers with status {}", status);
  return errorf(ErrorCode::kInvalidArgument, "the URL cannot be read: {}",
                curl_easy_strerror(done));
}

net::awaitable<Status> ImageUrls::resolve(Services& services, Exchange& exchange) {
  const std::string& body = exchange.request().body;
  Json fields;
  std::vector<Named> named;
  co_await services.run_apart(exchange, [&] {
    if (body.find("http") == std::string::npos || body.find("image") == std::string::npos) return;
    if (count_values(body) > most_values(body)) return;  // its route refuses it
    fields = bounded_json<Json>(body);
    collect(fields, "", named);
  });
  if (named.empty()) co_return Status();
  if (named.size() > limits_.urls)
    co_return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} pictures by URL",
                     named.back().where, limits_.urls);
  std::map<std::string, size_t> n_places;  // by URL: each place gets a copy of the file
  for (const Named& one : named) ++n_places[one.url];
  const auto stop = std::make_shared<std::stop_source>();
  exchange.on_disconnect = [stop] { stop->request_stop(); };
  std::map<std::string, std::string> files;  // by URL
  size_t left = limits_.bytes;
  Status failed;
  for (const Named& one : named) {
    if (!failed || stop->stop_requested()) break;
    if (files.contains(one.url)) continue;
    const size_t n = n_places[one.url];
    Result<std::string> file = std::string();
    const std::function<void()> work = [&] { file = fetch(one.url, left / n, stop->get_token()); };
    co_await threads_.run(exchange.request().asker(), work);
    if (!file) {
      failed = errorf(file.error().code, "{}: {}", one.where, file.error().message);
    } else if (!exchange.hold_more(base64_bytes(file->size()) * n)) {
      failed = errorf(ErrorCode::kResourceExhausted,
                      "{}: bodies and pictures under way hold all that this server allows, or this "
                      "client three quarters of it: try again later",
                      one.where);
    } else {
      left -= file->size() * n;
      files[one.url] = *std::move(file);
    }
  }
  exchange.on_disconnect = nullptr;
  if (!failed) co_return failed;
  co_await services.run_apart(exchange, limits_.bytes - left, [&] {
    for (const Named& one : named) put(one, files[one.url]);
    exchange.set_body(fields.dump());
  });
  co_return Status();
}

}  // namespace penstock
