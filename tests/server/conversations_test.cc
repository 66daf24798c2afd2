#include "server/store/conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/services/stores.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConversationsTest : public testing::Test {
 protected:
  ConversationsTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("conversations-{}-{}", getpid(), counter_++)) {}
  ~ConversationsTest() override { std::filesystem::remove_all(folder_); }

  void open(ResponseLimits limits = {}) {
    stores_.reset();
    auto stores = Stores::open(folder_, {.files = {}, .responses = limits});
    ASSERT_TRUE(stores) << stores.error().message;
    stores_ = std::move(*stores);
  }
  StoredConversations& kept() { return *stores_->conversations; }
  Status add(const std::string& id, std::initializer_list<const char*> items,
             const std::string& owner = "me") {
    return kept().add({.id = id, .owner = owner}, items_of(items));
  }
  static std::vector<ConversationItem> items_of(std::initializer_list<const char*> ids) {
    std::vector<ConversationItem> items;
    for (const char* id : ids) items.push_back({id, fmt::format(R"({{"id":"{}"}})", id)});
    return items;
  }
  std::vector<std::string> ids(const std::string& id, const ItemQuery& query = {}) {
    bool more = false;
    std::vector<std::string> found;
    const auto items = kept().items("me", id, query, more);
    if (!items) return {items.error().message};
    for (const ConversationItem& one : *items) found.push_back(one.id);
    if (more) found.emplace_back("more");
    return found;
  }
  int64_t bytes(const std::string& id) { return kept().find("me", id)->bytes; }

  const std::filesystem::path folder_;
  std::unique_ptr<Stores> stores_;

 private:
  static inline int counter_ = 0;
};

TEST_F(ConversationsTest, IsThereInTheNextRunForItsOwnerOnly) {
  open();
  ASSERT_TRUE(add("conv_1", {"a", "b"}));
  open();
  EXPECT_EQ(*kept().all_items("me", "conv_1", 10000), R"([{"id":"a"},{"id":"b"}])");
  EXPECT_EQ(kept().item("me", "conv_1", "b")->item, R"({"id":"b"})");
  bool more = false;
  EXPECT_EQ(kept().find("you", "conv_1").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().all_items("you", "conv_1", 10000).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().items("you", "conv_1", {}, more).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().item("you", "conv_1", "b").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().append("you", "conv_1", items_of({"c"})).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().set_metadata("you", "conv_1", "{}").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().remove_item("you", "conv_1", "a").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kept().remove("you", "conv_1").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(ids("conv_1", {.oldest_first = true}), ElementsAre("a", "b"));
}

TEST_F(ConversationsTest, PagesGoBothWays) {
  open();
  ASSERT_TRUE(add("conv_1", {"a", "b", "c", "d"}));
  ASSERT_TRUE(add("conv_2", {"a", "x"}));
  EXPECT_THAT(ids("conv_1", {.limit = 3}), ElementsAre("d", "c", "b", "more"));
  EXPECT_THAT(ids("conv_1", {.after = "b", .limit = 3}), ElementsAre("a"));
  EXPECT_THAT(ids("conv_1", {.after = "a", .limit = 2, .oldest_first = true}),
              ElementsAre("b", "c", "more"));
  EXPECT_THAT(ids("conv_1", {.after = "x"}), ElementsAre(HasSubstr("no item x")));
}

TEST_F(ConversationsTest, PagesHaveABoundOfBytes) {
  open();
  const auto item = [](const char* id, int64_t n_bytes) {
    return ConversationItem{id, std::string(static_cast<size_t>(n_bytes), 'x')};
  };
  constexpr int64_t kMost = StoredConversations::kMostPage;
  const std::vector<ConversationItem> items = {item("a", kMost / 2 - 100),
                                               item("b", kMost / 2 - 100), item("c", 1000),
                                               item("d", 2 * kMost)};
  ASSERT_TRUE(kept().add({.id = "conv_1", .owner = "me"}, items));
  EXPECT_THAT(ids("conv_1", {.limit = 100, .oldest_first = true}), ElementsAre("a", "b", "more"));
  EXPECT_THAT(ids("conv_1", {.after = "b", .limit = 100, .oldest_first = true}),
              ElementsAre("c", "more"));
  EXPECT_THAT(ids("conv_1", {.after = "c", .limit = 100, .oldest_first = true}), ElementsAre("d"));
  EXPECT_THAT(ids("conv_1", {.limit = 100}), ElementsAre("d", "more"));
}

TEST_F(ConversationsTest, AnIdIsThereOnce) {
  open();
  EXPECT_FALSE(add("conv_1", {"a", "a"}));
  EXPECT_EQ(kept().find("me", "conv_1").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(add("conv_1", {"a"}));
  const Status again = kept().append("me", "conv_1", items_of({"b", "a"}));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(ids("conv_1"), ElementsAre("a"));
}

TEST_F(ConversationsTest, BytesAreCountedAndGivenBack) {
  open({.bytes = 1000});
  ASSERT_TRUE(add("conv_1", {"a"}));
  const int64_t before = bytes("conv_1");
  ASSERT_TRUE(kept().append("me", "conv_1", items_of({"b"})));
  EXPECT_GT(bytes("conv_1"), before);
  ASSERT_TRUE(kept().remove_item("me", "conv_1", "b"));
  EXPECT_EQ(bytes("conv_1"), before);
  ASSERT_TRUE(kept().set_metadata("me", "conv_1", R"({"a":"b"})"));
  EXPECT_EQ(bytes("conv_1"), before + 7);
  const std::string long_item(1000, 'x');
  const Status more = kept().append("me", "conv_1", {{{"c", long_item}}});
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("at most 1000 bytes"));
  EXPECT_EQ(bytes("conv_1"), before + 7);
  EXPECT_THAT(kept().all_items("me", "conv_1", 10).error().message, HasSubstr("at most 10 bytes"));
}

TEST_F(ConversationsTest, WhatWasUsedLeastRecentlyMakesRoom) {
  open({.responses = 2});
  ASSERT_TRUE(add("conv_1", {"a"}));
  ASSERT_TRUE(add("conv_2", {"a"}));
  ASSERT_TRUE(add("conv_9", {"a"}, "you"));
  ASSERT_TRUE(kept().append("me", "conv_1", items_of({"b"})));
  ASSERT_TRUE(add("conv_3", {}));
  EXPECT_TRUE(kept().find("me", "conv_1"));
  EXPECT_FALSE(kept().find("me", "conv_2"));
  EXPECT_TRUE(kept().find("me", "conv_3"));
  EXPECT_TRUE(kept().find("you", "conv_9"));
  open({.responses = 0});
  EXPECT_FALSE(add("conv_4", {}));
}

TEST_F(ConversationsTest, WhatNobodyUsesExpires) {
  open({.seconds = 0});
  EXPECT_FALSE(add("conv_1", {"a"}));
  EXPECT_EQ(kept().find("me", "conv_1").error().code, ErrorCode::kNotFound);
}

TEST_F(ConversationsTest, ItemsHaveABound) {
  open();
  std::vector<ConversationItem> items;
  for (int i = 0; i < StoredConversations::kMostItems; ++i)
    items.push_back({fmt::format("msg_{}", i), "{}"});
  ASSERT_TRUE(kept().add({.id = "conv_1", .owner = "me"}, items));
  EXPECT_THAT(kept().append("me", "conv_1", items_of({"a"})).error().message,
              HasSubstr("at most 10000 items"));
}

}  // namespace
}  // namespace penstock
