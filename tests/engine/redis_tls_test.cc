// Blocks in a real Redis behind TLS, with a user and a password, and what is refused there.
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "engine/kept_block.h"
#include "engine/redis_server.h"
#include "engine/store/block_redis.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::string tls_file(const std::string& name) { return (tests_dir() / "e2e/tls" / name).string(); }

// A server with the certificate of the tests, which is its own authority.
std::vector<std::string> tls_options(const std::string& clients = "no") {
  return {"--tls-cert-file",    tls_file("cert.pem"), "--tls-key-file",     tls_file("key.pem"),
          "--tls-ca-cert-file", tls_file("cert.pem"), "--tls-auth-clients", clients};
}

RedisAddress trusting() {
  RedisAddress how;
  how.encrypted = true;
  how.tls.authorities = tls_file("cert.pem");
  return how;
}

TEST(RedisTls, GivesBackWhatWasWritten) {
  const RedisServer server(tls_options(), trusting());
  BlockRedis store(server.address(), redis_images());
  for (const Kept& block : {Kept(1), Kept(2, 1)}) {
    BlockImage image;
    EXPECT_EQ(code_of(store.read(block.key, block.tokens, image)), ErrorCode::kNotFound);
    ASSERT_TRUE(store.write(block.key, block.image));
    EXPECT_TRUE(store.contains(block.key));
    ASSERT_TRUE(store.read(block.key, block.tokens, image));
    EXPECT_EQ(image, block.image);
  }
}

// Larger than what the sockets hold, so that writing and reading have to wait for each other.
TEST(RedisTls, LargeValues) {
  const RedisServer server(tls_options(), trusting());
  RedisConnection connection(server.address(), {.longest_connecting = 5s});
  std::string value(20'000'000, ' ');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761U >> 13);
  const std::array<std::string_view, 3> set = {"SET", "x", value};
  ASSERT_TRUE(connection.call(set, 4096));
  const std::array<std::string_view, 2> get = {"GET", "x"};
  const auto got = connection.call(get, 30'000'000);
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->text == value);
}

std::string error_of(const RedisAddress& address) {
  RedisConnection connection(address, {.longest_connecting = 5s});
  const std::array<std::string_view, 1> ping = {"PING"};
  const auto reply = connection.call(ping, 4096);
  return reply ? "" : reply.error().message;
}

TEST(RedisTls, WhomItTrusts) {
  std::vector<std::string> options = tls_options();
  options.insert(options.end(), {"--bind", "127.0.0.1", "127.0.0.2"});
  const RedisServer server(options, trusting());
  EXPECT_EQ(error_of(server.address()), "");
  EXPECT_EQ(error_of(server.address().at({"localhost", server.address().port})), "");
  RedisAddress stranger = server.address();
  stranger.tls.authorities = "";  // the system's do not know it
  EXPECT_NE(error_of(stranger).find("certificate"), std::string::npos) << error_of(stranger);
  // the certificate names 127.0.0.1 and localhost only
  const std::string other = error_of(server.address().at({"127.0.0.2", server.address().port}));
  EXPECT_NE(other.find("mismatch"), std::string::npos) << other;
  RedisAddress missing = server.address();
  missing.tls.authorities = "/nowhere/ca.pem";
  EXPECT_NE(error_of(missing).find("/nowhere/ca.pem"), std::string::npos) << error_of(missing);
}

TEST(RedisTls, TheServerMayAskForACertificate) {
  RedisAddress how = trusting();
  how.tls.certificate = tls_file("cert.pem"), how.tls.key = tls_file("key.pem");
  const RedisServer server(tls_options("yes"), how);
  EXPECT_EQ(error_of(server.address()), "");
  RedisAddress nobody = server.address();
  nobody.tls.certificate = nobody.tls.key = "";
  EXPECT_NE(error_of(nobody), "");
  RedisAddress mixed = server.address();
  mixed.tls.key = tls_file("cert.pem");
  EXPECT_NE(error_of(mixed).find("no key"), std::string::npos) << error_of(mixed);
}

// Whoever speaks another protocol is refused in time, in both directions.
TEST(RedisTls, PlainAndEncrypted) {
  const RedisServer encrypted(tls_options(), trusting()), plain;
  RedisAddress one = encrypted.address(), other = plain.address();
  one.encrypted = false;
  other.encrypted = true, other.tls.authorities = tls_file("cert.pem");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_NE(error_of(one), "");
  EXPECT_NE(error_of(other), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
  const FakeRedis silent([](int connection) {
    std::array<char, 4096> bytes{};
    while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
    }
  });
  RedisAddress hangs = silent.address();
  hangs.encrypted = true;
  EXPECT_NE(error_of(hangs), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
}

TEST(RedisTls, GoesOnWhenTheServerIsBack) {
  RedisServer server(tls_options(), trusting());
  BlockRedis store(server.address(), redis_images(), kImpatient);
  const Kept block(1);
  ASSERT_TRUE(store.write(block.key, block.image));
  server.kill();
  BlockImage image;
  EXPECT_FALSE(store.read(block.key, block.tokens, image));
  EXPECT_FALSE(store.write(block.key, block.image));
  server.start();
  std::this_thread::sleep_for(kImpatient.rest);
  EXPECT_TRUE(store.write(block.key, block.image));
  for (int i = 0; i < 100 && !store.contains(block.key); ++i) usleep(20000);
  EXPECT_TRUE(store.read(block.key, block.tokens, image));
}

// A user who may do no more than is needed, and a password that no message tells.
TEST(RedisTls, UsersAndPasswords) {
  const RedisServer server(tls_options(), trusting());
  ASSERT_TRUE(
      ask(server.address(), {"ACL", "SETUSER", "blocks", "on", ">gehe!m@1", "~penstock-kv:*",
                             "+getrange", "+exists", "+touch", "+set", "+del", "+ping"}));
  RedisAddress address = server.address();
  address.user = "blocks", address.password = "gehe!m@1";
  BlockRedis store(address, redis_images());
  const Kept block(1);
  BlockImage image;
  ASSERT_TRUE(store.write(block.key, block.image));
  ASSERT_TRUE(store.read(block.key, block.tokens, image));
  address.password = "gehe!m@2";
  testing::internal::CaptureStderr();
  const std::string error = error_of(address);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("refused"), std::string::npos) << error;
  EXPECT_EQ(error.find("gehe"), std::string::npos) << error;
  EXPECT_NE(logged.find("refused"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("gehe"), std::string::npos) << logged;
}

}  // namespace
}  // namespace penstock
