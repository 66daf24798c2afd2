#include "server/http/origins.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// A request whose answer nobody waits for.
class HeadOnly final : public Exchange {
 public:
  HeadOnly(std::string method, std::map<std::string, std::string> headers) {
    request_.method = std::move(method);
    request_.path = "/v1/completions";
    request_.headers = std::move(headers);
  }
  net::any_io_executor executor() override { return {}; }
  net::awaitable<void> reply(HttpReply) override { co_return; }
  net::awaitable<bool> begin_stream(HttpReply) override { co_return false; }
  void put(std::string_view) override {}
  bool all_sent() const override { return true; }
  net::awaitable<bool> flush() override { co_return false; }
  net::awaitable<void> end_stream() override { co_return; }
  void break_off() override {}
  void cut() override {}
};

OriginConfig on_loopback() {
  OriginConfig config;
  config.host_check = HostCheck::kEverybody;
  config.listening_host = "127.0.0.1";
  return config;
}

// The status that a request is answered with at once; 0: it may go on.
int status_of(const OriginConfig& config, std::map<std::string, std::string> headers,
              const std::string& method = "POST") {
  headers.emplace("host", "127.0.0.1:8000");
  HeadOnly exchange(method, std::move(headers));
  const Origins origins = Origins::open(config).value();
  if (const auto refusal = origins.check(exchange)) return refusal->status;
  const auto reply = origins.preflight(exchange.request());
  return reply ? reply->status : 0;
}

TEST(Origins, OnlyTheServersOwnPagesMayCallIt) {
  const OriginConfig config = on_loopback();
  EXPECT_EQ(status_of(config, {}), 0);
  for (const char* own : {"http://127.0.0.1:8000", "HTTP://127.0.0.1:8000"})
    EXPECT_EQ(status_of(config, {{"origin", own}}), 0) << own;
  for (const char* other : {"http://127.0.0.1:3000", "http://127.0.0.1", "http://localhost:8000",
                            "https://evil.example", "http://evil.example:8000", "null",
                            "127.0.0.1:8000", "http://127.0.0.1:8000.evil.example"}) {
    for (const char* method : {"POST", "GET", "OPTIONS"})
      EXPECT_EQ(status_of(config, {{"origin", other}}, method), 403) << method << " " << other;
  }
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(status_of(config, {{"sec-fetch-site", site}}), 403) << site;
    EXPECT_EQ(status_of(config, {{"sec-fetch-site", site}}, "GET"), 0)
        << "a link to the page: " << site;
    EXPECT_EQ(
        status_of(config, {{"sec-fetch-site", site}, {"origin", "http://127.0.0.1:3000"}}, "GET"),
        403);
  }
  EXPECT_EQ(status_of(config, {{"sec-fetch-site", "none"}}), 0);
}

TEST(Origins, AreTheSameBehindAProxy) {
  OriginConfig config = on_loopback();
  config.allowed_hosts = {"llm.example.org"};
  // The proxy hands the name on, and takes the encryption off.
  EXPECT_EQ(status_of(config, {{"host", "llm.example.org"}, {"origin", "https://llm.example.org"}}),
            0);
  EXPECT_EQ(
      status_of(config, {{"host", "LLM.example.org.:443"}, {"origin", "https://llm.example.org"}}),
      0);
  EXPECT_EQ(
      status_of(config, {{"host", "llm.example.org"}, {"origin", "http://llm.example.org:8080"}}),
      403);
  // It does not; the browser says so.
  EXPECT_EQ(
      status_of(config, {{"origin", "https://llm.example.org"}, {"sec-fetch-site", "same-origin"}}),
      0);
  EXPECT_EQ(status_of(config, {{"origin", "https://llm.example.org"}}), 403);
}

TEST(Origins, NamedOnesGetTheHeadersTheirBrowsersWant) {
  OriginConfig config = on_loopback();
  config.allowed_origins = {"https://app.example", "null"};
  EXPECT_EQ(
      status_of(config, {{"origin", "https://app.example"}, {"sec-fetch-site", "cross-site"}}), 0);
  EXPECT_EQ(status_of(config, {{"origin", "null"}}), 0);
  EXPECT_EQ(status_of(config, {{"origin", "https://app.example:444"}}), 403);
  EXPECT_EQ(
      status_of(config,
                {{"origin", "https://app.example"}, {"access-control-request-method", "POST"}},
                "OPTIONS"),
      204);
  config.allowed_origins = {"*"};
  EXPECT_EQ(
      status_of(config, {{"origin", "https://any.example"}, {"sec-fetch-site", "cross-site"}}), 0);
  EXPECT_EQ(status_of(config, {{"sec-fetch-site", "cross-site"}}), 0);
}

TEST(Origins, HostsThatSomebodyElsePointsHereAreRefused) {
  OriginConfig config = on_loopback();
  for (const char* ours : {"localhost", "localhost:8000", "penstock.localhost:8000", "127.0.0.1",
                           "10.1.2.3:8000", "[::1]:8000", "workstation", "workstation:8000", ""})
    EXPECT_EQ(status_of(config, {{"host", ours}}), 0) << ours;
  for (const char* method : {"GET", "POST"}) {
    for (const char* other : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example:8000",
                              "localhost.evil.example"}) {
      EXPECT_EQ(status_of(config, {{"host", other}}, method), 403) << other;
      EXPECT_EQ(
          status_of(config, {{"host", other}, {"origin", std::string("http://") + other}}, method),
          403)
          << other;
    }
  }
  config.allowed_hosts = {"LLM.example.org"};
  EXPECT_EQ(status_of(config, {{"host", "llm.example.org:8000"}}), 0);
  config.allowed_hosts = {"*"};
  EXPECT_EQ(status_of(config, {{"host", "evil.example"}}), 0);
  config = on_loopback();
  config.host_check = HostCheck::kPages;
  EXPECT_EQ(status_of(config, {{"host", "llm.default.svc.cluster.local"}}), 0);
  EXPECT_EQ(status_of(config, {{"host", "10.1.2.3:8000"}, {"origin", "http://10.1.2.3:8000"}}), 0);
  EXPECT_EQ(status_of(config, {{"host", "evil.example"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status_of(config, {{"host", "evil.example"}, {"sec-fetch-site", "same-origin"}}, "GET"),
            403);
  config.host_check = HostCheck::kNobody;
  EXPECT_EQ(status_of(config, {{"host", "evil.example"}, {"origin", "http://evil.example"}}), 0);
}

TEST(Origins, WhatFormsSendIsRefused) {
  const OriginConfig config = on_loopback();
  for (const char* json :
       {"application/json", "application/json; charset=utf-8", "application/vnd.api+json", ""})
    EXPECT_EQ(status_of(config, {{"content-type", json}}), 0) << json;
  for (const char* form :
       {"application/x-www-form-urlencoded", "text/plain", "text/plain;charset=UTF-8", "Text/Plain",
        "multipart/form-data; boundary=x", "TEXT/html"})
    EXPECT_EQ(status_of(config, {{"content-type", form}}), 415) << form;
}

TEST(Origins, Forms) {
  for (const char* good : {"*", "null", "https://example.org", "http://localhost:3000"})
    EXPECT_TRUE(check_cors_origin(good)) << good;
  for (const char* bad : {"", "example.org", "https://", "https://a/b", "https://a b", "://x"})
    EXPECT_FALSE(check_cors_origin(bad)) << bad;
}

}  // namespace
}  // namespace penstock
