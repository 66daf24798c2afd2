#include "engine/store/redis_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace penstock {
namespace {

constexpr size_t kMostHosts = 64;

tl::unexpected<Error> refuse(std::string_view what, std::string_view got) {
  return errorf(ErrorCode::kInvalidArgument, "redis: expected {}, got '{}'", what, got);
}

// Returns the number of `text`, all of which is one of 0 to `most`; -1: it is not.
int number_of(std::string_view text, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most ? number : -1;
}

// Decodes %XX; false: what follows a % is not two hexadecimal digits.
bool decode(std::string_view text, std::string& to) {
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = static_cast<unsigned char>(text[i]);
    if (byte == '%') {
      const std::string_view digits = text.substr(std::min(i + 1, text.size()), 2);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) return false;
      i += 2;
    }
    to += static_cast<char>(byte);
  }
  return true;
}

// Removes what stands in front of `mark`, and it, from `text` and returns it.
std::string_view take_until(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view first = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return first;
}

// Parses NAME=FILE&...
Status parse_files(std::string_view text, RedisAddress& address) {
  while (!text.empty()) {
    std::string_view value = take_until(text, '&');
    const std::string_view name = take_until(value, '=');
    std::string* const file = name == "ca"     ? &address.tls.authorities
                              : name == "cert" ? &address.tls.certificate
                              : name == "key"  ? &address.tls.key
                                               : nullptr;
    if (file == nullptr || !address.encrypted || !file->empty() || !decode(value, *file) ||
        file->empty())
      return refuse("rediss:// for ?ca=FILE&cert=FILE&key=FILE, and each once at most", name);
  }
  if (address.tls.certificate.empty() != address.tls.key.empty())
    return refuse("cert and key together", address.tls.key.empty() ? "cert" : "key");
  return {};
}

}  // namespace

std::string RedisHost::name() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port)
                                             : fmt::format("{}:{}", host, port);
}

RedisAddress RedisAddress::at(const RedisHost& other) const {
  RedisAddress address = *this;
  address.host = other.host, address.port = other.port;
  address.others.clear();
  return address;
}

size_t find_redis(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if ((at == 0 || text[at - 1] == ',') &&
        (rest.starts_with(kRedisScheme) || rest.starts_with(kRedisTlsScheme)))
      return at;
  }
  return std::string_view::npos;
}

// Stand-in for a refused part of a URL in errors: it may be a password in the wrong place.
constexpr std::string_view kHidden = "another";

Result<RedisHost> parse_redis_host(std::string_view text) {
  RedisHost at;
  const bool brackets = text.starts_with('[');  // an IPv6 address
  const size_t end = brackets ? text.find(']') : std::min(text.find(':'), text.size());
  if (end == std::string_view::npos) return refuse("a ] behind an IPv6 address", kHidden);
  at.host = text.substr(brackets, end - brackets);
  if (at.host.empty()) return refuse("a host", kHidden);
  text.remove_prefix(end + brackets);
  if (text.empty()) return at;
  at.port = text.starts_with(':') ? number_of(text.substr(1), 65535) : -1;
  if (at.port <= 0) return refuse("a port of 1 to 65535", kHidden);
  return at;
}

Result<RedisAddress> parse_redis(const std::string& url, const std::string& password) {
  RedisAddress address;
  std::string_view rest = url;
  address.encrypted = rest.starts_with(kRedisTlsScheme);
  if (!address.encrypted && !rest.starts_with(kRedisScheme))
    return errorf(ErrorCode::kInvalidArgument, "expected {}HOST:PORT", kRedisScheme);
  rest.remove_prefix((address.encrypted ? kRedisTlsScheme : kRedisScheme).size());
  const size_t at = rest.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const size_t colon = std::min(who.find(':'), who.size());
    const bool has_password = colon < who.size();
    if (!decode(who.substr(0, colon), address.user) ||
        (has_password && !decode(who.substr(colon + 1), address.password)) ||
        (has_password || password.empty() ? address.password : address.user).empty())
      return refuse("USER:PASSWORD@ or :PASSWORD@ with %XX for special characters", "another");
    rest.remove_prefix(at + 1);
  }
  if (address.password.empty()) address.password = password;
  std::string_view path = take_until(rest, '?');
  RETURN_IF_ERROR(parse_files(rest, address));
  std::string_view hosts = take_until(path, '/');
  if (!path.empty()) {
    address.database = number_of(path, 1 << 20);
    if (address.database < 0) return refuse("a number of a database", path);
  }
  do {
    ASSIGN_OR_RETURN(RedisHost one, parse_redis_host(take_until(hosts, ',')));
    if (address.host.empty()) {
      address.host = std::move(one.host), address.port = one.port;
    } else {
      address.others.push_back(std::move(one));
    }
    if (address.others.size() >= kMostHosts) return refuse("fewer hosts", "too many");
  } while (!hosts.empty());
  return address;
}

}  // namespace penstock
