#include "server/store/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "server/old_stores.h"
#include "server/services/stores.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ResponsesTest : public testing::Test {
 protected:
  ResponsesTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("responses-{}-{}", getpid(), counter_++)) {}
  ~ResponsesTest() override { std::filesystem::remove_all(folder_); }

  void open(ResponseLimits limits = {}) {
    stores_.reset();
    auto stores = Stores::open(folder_, {.files = {}, .responses = limits});
    ASSERT_TRUE(stores) << stores.error().message;
    stores_ = std::move(*stores);
  }
  StoredResponses& responses() { return *stores_->responses; }
  static StoredResponse response(const std::string& id, const std::string& owner = "me",
                                 size_t n_bytes = 0) {
    StoredResponse one;
    one.id = id, one.owner = owner;
    one.input = std::string(n_bytes, 'i');
    one.reply = R"({"id":")" + id + R"(","status":"queued"})";
    return one;
  }
  std::vector<std::string> there(std::initializer_list<const char*> ids) {
    std::vector<std::string> found;
    for (const char* id : ids) {
      if (responses().find("me", id)) found.emplace_back(id);
    }
    return found;
  }
  const std::filesystem::path folder_;
  std::unique_ptr<Stores> stores_;

 private:
  static inline int counter_ = 0;
};

TEST_F(ResponsesTest, IsThereInTheNextRunForItsOwnerOnly) {
  open();
  StoredResponse one = response("resp_1");
  one.input = "[1]", one.events = "event: a\n\n";
  ASSERT_TRUE(*responses().add(one));
  open();
  const auto found = responses().find("me", "resp_1");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->input, "[1]");
  EXPECT_EQ(found->reply, one.reply);
  EXPECT_EQ(found->events, one.events);
  EXPECT_TRUE(found->ended);
  EXPECT_EQ(found->expires - found->created, ResponseLimits().seconds);
  EXPECT_EQ(responses().find("you", "resp_1").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(responses().remove("you", "resp_1").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(responses().remove("me", "resp_1"));
  EXPECT_EQ(responses().find("me", "resp_1").error().code, ErrorCode::kNotFound);
}

TEST_F(ResponsesTest, TheOldestMakeRoom) {
  open({.responses = 3});
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(*responses().add(response(id)));
  ASSERT_TRUE(*responses().add(response("x", "you")));
  EXPECT_THAT(there({"a", "b", "c"}), ElementsAre("a", "b", "c"));
  ASSERT_TRUE(*responses().add(response("d")));
  EXPECT_THAT(there({"a", "b", "c", "d"}), ElementsAre("b", "c", "d"));
  EXPECT_TRUE(responses().find("you", "x"));

  open({.bytes = 1000});
  ASSERT_TRUE(*responses().add(response("e", "me", 700)));
  EXPECT_THAT(there({"b", "c", "d", "e"}), ElementsAre("b", "c", "d", "e"));
  ASSERT_TRUE(*responses().add(response("f", "me", 500)));
  EXPECT_THAT(there({"b", "c", "d", "e", "f"}), ElementsAre("f"));
  EXPECT_FALSE(*responses().add(response("g", "me", 1001)));
  EXPECT_THAT(there({"f", "g"}), ElementsAre("f"));
  StoredResponse grown = response("h");
  grown.ended = false;
  ASSERT_TRUE(*responses().add(grown));
  grown.reply.resize(900, ' ');
  ASSERT_TRUE(responses().end(grown));
  EXPECT_THAT(there({"f", "h"}), ElementsAre("h"));
}

TEST_F(ResponsesTest, Expire) {
  open({.seconds = 0});
  ASSERT_TRUE(*responses().add(response("a")));
  EXPECT_EQ(responses().find("me", "a").error().code, ErrorCode::kNotFound);
  StoredResponse runs = response("b");
  runs.ended = false;
  ASSERT_TRUE(*responses().add(runs));
  EXPECT_TRUE(responses().find("me", "b"));  // not while it is generated
}

TEST_F(ResponsesTest, OnesThatWereUnderWayAreFailedInTheNextRun) {
  open();
  StoredResponse one = response("a"), other = response("b");
  one.ended = other.ended = false;
  ASSERT_TRUE(*responses().add(one));
  ASSERT_TRUE(*responses().add(other));
  EXPECT_FALSE(responses().find("me", "a")->ended);
  other.reply = R"({"status":"completed"})";
  ASSERT_TRUE(responses().end(other));
  open();
  const auto found = responses().find("me", "a");
  ASSERT_TRUE(found->ended);
  const auto reply = nlohmann::json::parse(found->reply);
  EXPECT_EQ(reply["id"], "a");
  EXPECT_EQ(reply["status"], "failed");
  EXPECT_THAT(std::string(reply["error"]["message"]), HasSubstr("the server ended"));
  EXPECT_EQ(responses().find("me", "b")->reply, other.reply);
}

TEST_F(ResponsesTest, SoManyMayBeUnderWay) {
  open();
  for (int64_t i = 0; i < StoredResponses::kMostUnfinished; ++i) {
    StoredResponse one = response(std::to_string(i));
    one.ended = false;
    ASSERT_TRUE(*responses().add(one));
  }
  StoredResponse more = response("more");
  more.ended = false;
  EXPECT_EQ(responses().add(more).error().code, ErrorCode::kResourceExhausted);
  more.owner = "you";
  EXPECT_TRUE(*responses().add(more));
  EXPECT_TRUE(*responses().add(response("ended")));
}

TEST_F(ResponsesTest, StoresOfTheVersionBeforeAreBroughtUp) {
  sql_on(folder_, kStoreVersion1);
  sql_on(folder_, kStoreVersion2);
  sql_on(folder_,
         "INSERT INTO batches (id, owner, key, endpoint, input_file, window, metadata, created, "
         "expires) VALUES ('batch_1', 'me', '', '/v1/completions', 'file-1', '24h', '', 1, 2)");
  open();
  EXPECT_TRUE(stores_->batches->find("me", "batch_1"));
  EXPECT_TRUE(*responses().add(response("a")));
}

}  // namespace
}  // namespace penstock
