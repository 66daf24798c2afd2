// Where a Redis or Valkey is, and how it is spoken to, as a URL gives it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct RedisHost {
  std::string host;
  int port = 6379;
  // HOST:PORT, as messages name it
  std::string name() const;
  bool operator==(const RedisHost&) const = default;
};

// How a connection is encrypted: TLS 1.2 or later, and the server's certificate has to be for the
// host's name, or its address. Names of files in PEM.
struct RedisTls {
  std::string authorities;       // trusted certificates; "": the system's
  std::string certificate, key;  // of the client; "": none
};

// redis[s]://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]]...[/DATABASE][?ca=FILE&cert=FILE&key=FILE]
struct RedisAddress {
  std::string host;
  int port = 6379;
  int database = 0;
  std::string user, password;  // "": none
  std::vector<RedisHost>
      others;  // further nodes of a cluster, asked where the first one is not there
  bool encrypted = false;
  RedisTls tls;  // with `encrypted`

  std::string name() const { return at().name(); }
  RedisHost at() const { return {host, port}; }
  // Returns this address with another host and port: user, password, TLS and database stay.
  RedisAddress at(const RedisHost& other) const;
};

inline constexpr std::string_view kRedisScheme = "redis://", kRedisTlsScheme = "rediss://";

// Where the URL of a Redis begins in a list with commas, at 0 or behind the first comma before one;
// npos: there is none.
size_t find_redis(std::string_view text);

// Parses HOST[:PORT]; an IPv6 address stands in brackets. Errors: kInvalidArgument.
Result<RedisHost> parse_redis_host(std::string_view text);

// Parses a URL; what is encoded by %XX in the user's name, the password and the names of files is
// decoded. password: where the URL has none. Errors: kInvalidArgument, which do not name the password.
Result<RedisAddress> parse_redis(const std::string& url, const std::string& password = {});

}  // namespace penstock
