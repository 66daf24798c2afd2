#include "server/services/image_urls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include "server/http/http_server.h"
#include "server/http/unattended_exchange.h"
#include "server/server.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::HasSubstr;

TEST(ImageUrls, PublicAddresses) {
  for (const char* address :
       {"8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.128.0.1", "169.253.0.1",
        "2606:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888"})
    EXPECT_TRUE(is_public_address(net::ip::make_address(address))) << address;
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.0.9",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.0.0.8",
                              "192.168.1.1",
                              "198.18.0.1",
                              "198.51.100.7",
                              "203.0.113.9",
                              "224.0.0.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:127.0.0.1",
                              "::ffff:8.8.8.8",
                              "64:ff9b::7f00:1",
                              "fe80::1",
                              "fc00::1",
                              "fd00:ec2::254",
                              "ff02::1",
                              "2001:db8::1",
                              "2001::1",
                              "2002:7f00:1::",
                              "3fff::1"})
    EXPECT_FALSE(is_public_address(net::ip::make_address(address))) << address;
}

HttpReply reply_of(const std::string& path, uint16_t port) {
  HttpReply reply;
  reply.body = "picture";
  if (path == "/long") reply.body = std::string(2000, 'x');
  if (path == "/gone") reply.status = 404;
  const auto go = [&](std::string where) {
    reply.status = 302;
    reply.headers = {{"Location", std::move(where)}};
  };
  if (path == "/there") go("/picture");
  if (path == "/round") go("/round");
  if (path == "/plain") go(fmt::format("http://localhost:{}/picture", port));
  if (path == "/file") go("file:///etc/passwd");
  if (path == "/inside") go(fmt::format("https://127.0.0.2:{}/picture", port));
  return reply;
}

class ImageFetching : public testing::Test {
 protected:
  void SetUp() override {
    const std::string tls = (tests_dir() / "e2e" / "tls").string();
    HttpConfig config;
    config.port = 0;
    config.tls_certificate = tls + "/cert.pem", config.tls_key = tls + "/key.pem";
    auto opened = HttpServer::open(
        config,
        [this](Exchange&) -> HttpPlan {
          return {[this](Exchange& exchange) -> net::awaitable<void> {
                    ++n_asked_;
                    co_await exchange.reply(reply_of(exchange.request().path, server_->port()));
                  },
                  true, SIZE_MAX};
        },
        [](std::string_view, int, std::string_view message) { return std::string(message); });
    ASSERT_TRUE(opened) << opened.error().message;
    server_ = std::move(*opened);
    server_->start();
    // As if the address of this test were a public one.
    limits_.may_reach = [](const net::ip::address& address) {
      return address == net::ip::make_address("127.0.0.1");
    };
    limits_.authorities = tls + "/cert.pem";
    limits_.time = std::chrono::milliseconds(5000);
  }
  void TearDown() override {
    server_->stop(std::chrono::milliseconds(100), {});
    server_->wait();
  }
  std::string fetched(const std::string& path, size_t most = 1000) const {
    return fetched_from(fmt::format("https://127.0.0.1:{}{}", server_->port(), path), most);
  }
  std::string fetched_from(const std::string& url, size_t most = 1000) const {
    const auto got = ImageUrls(limits_).fetch(url, most, {});
    return got ? *got : "error: " + got.error().message;
  }

  std::unique_ptr<HttpServer> server_;
  ImageUrls::Limits limits_;
  std::atomic<int> n_asked_{0};
};

TEST_F(ImageFetching, FollowsRedirectionsWithinBounds) {
  EXPECT_EQ(fetched("/picture"), "picture");
  EXPECT_EQ(fetched("/there"), "picture");
  EXPECT_EQ(fetched("/long", 2000), std::string(2000, 'x'));
  EXPECT_THAT(fetched("/long", 1999), HasSubstr("at most"));
  EXPECT_THAT(fetched("/gone"), HasSubstr("status 404"));
  EXPECT_THAT(fetched("/round"), HasSubstr("error: the URL cannot be read"));
  EXPECT_THAT(fetched("/plain"), HasSubstr("error: the URL cannot be read"));
  EXPECT_THAT(fetched("/file"), HasSubstr("error: the URL cannot be read"));
  const int n = n_asked_;
  EXPECT_THAT(fetched("/inside"), HasSubstr("not public"));
  EXPECT_EQ(n_asked_, n + 1);
}

// Whatever name an address has.
TEST_F(ImageFetching, ConnectsToPublicAddressesOnly) {
  limits_.may_reach = is_public_address;
  const std::string port = std::to_string(server_->port());
  for (const std::string host : {"127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "0",
                                 "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"})
    EXPECT_THAT(fetched_from("https://" + host + ":" + port + "/picture"),
                testing::AnyOf(HasSubstr("not public"), HasSubstr("the URL cannot be read")))
        << host;
  EXPECT_EQ(n_asked_, 0);
  for (const char* url : {"http://127.0.0.1/", "file:///etc/passwd", "ftp://x/", "HTTPS://x/", ""})
    EXPECT_THAT(fetched_from(url), HasSubstr("expected a URL with scheme https"));
}

TEST_F(ImageFetching, EndsInTimeAndWhenTheClientLeaves) {
  limits_.authorities.clear();  // an unknown certificate
  EXPECT_THAT(fetched("/picture"), HasSubstr("error: the URL cannot be read"));
  std::stop_source stop;
  stop.request_stop();
  const auto got = ImageUrls(limits_).fetch("https://127.0.0.1:1/", 100, stop.get_token());
  EXPECT_FALSE(got);
}

// Counts what is held, within a bound.
class HoldingExchange final : public UnattendedExchange {
 public:
  HoldingExchange(net::any_io_executor executor, std::string body, size_t most)
      : UnattendedExchange(std::move(executor), {}), most_(most) {
    set_body(std::move(body));
  }
  bool hold_more(size_t bytes) override {
    if (held + bytes > most_) return false;
    held += bytes;
    return true;
  }
  size_t held = 0;

 private:
  const size_t most_;
};

// A file that is named three times is there three times.
TEST_F(ImageFetching, FilesCountAsOftenAsTheyAreNamed) {
  ServerConfig config;
  config.listens = false;
  const auto server = Server::open(config);
  ASSERT_TRUE(server) << server.error().message;
  net::thread_pool thread(1);
  const std::string url = fmt::format("https://127.0.0.1:{}/picture", server_->port());
  const std::string part = fmt::format(R"({{"type":"image_url","image_url":{{"url":"{}"}}}})", url);
  const std::string body = fmt::format(R"({{"messages":[{{"content":[{0},{0},{0}]}}]}})", part);
  const auto resolved = [&](size_t bytes, HoldingExchange& exchange) {
    limits_.bytes = bytes;
    ImageUrls urls(limits_);
    return net::co_spawn(thread, urls.resolve((*server)->services(), exchange), net::use_future)
        .get();
  };
  constexpr size_t kFile = 7, kBase64 = 12;  // bytes
  HoldingExchange fits(thread.get_executor(), body, 3 * kBase64);
  EXPECT_TRUE(resolved(3 * kFile, fits));
  EXPECT_EQ(fits.held, 3 * kBase64);
  EXPECT_EQ(fits.request().body.find("https://"), std::string::npos);
  HoldingExchange large(thread.get_executor(), body, 3 * kBase64);
  const Status refused = resolved(3 * kFile - 1, large);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the pictures of a request have at most 20 bytes"));
  HoldingExchange full(thread.get_executor(), body, 3 * kBase64 - 1);
  const Status later = resolved(3 * kFile, full);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace penstock
