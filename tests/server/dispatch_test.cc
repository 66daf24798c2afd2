#include "server/routes/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "server/http/unattended_exchange.h"
#include "server/routing/endpoint.h"
#include "server/server.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// A mistake of this program: it asks a constant value for a member that is not there.
net::awaitable<void> ask_for_what_is_missing(Services&, Exchange& exchange) {
  const nlohmann::json body = {{"text", "x"}};
  HttpReply reply;
  reply.body = body["missing"].dump();
  co_await exchange.reply(std::move(reply));
}

TEST(Dispatch, AFailingAssertionOfTheJsonLibraryIsA500AndALineOfTheLog) {
  testing::internal::CaptureStderr();
  ServerConfig config;
  config.listens = false;
  auto server = Server::open(config);
  ASSERT_TRUE(server) << server.error().message;
  const Endpoint endpoint = {"POST", "/v1/none", Access::kOpen, ask_for_what_is_missing,
                             "",     nullptr,    nullptr};
  net::io_context context;
  HttpRequest request;
  request.method = "POST", request.path = "/v1/none", request.id = "req-1";
  UnattendedExchange exchange(context.get_executor(), std::move(request));
  net::co_spawn(context, answer((*server)->services(), endpoint, exchange), net::detached);
  context.run();
  EXPECT_EQ(exchange.status(), 500);
  EXPECT_THAT(exchange.body(), HasSubstr("internal error"));
  server->reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("req-1 POST /v1/none: JSON library: "));
  EXPECT_THAT(log, HasSubstr("does not hold at"));
}

}  // namespace
}  // namespace penstock
