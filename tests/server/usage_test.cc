#include "server/keys/ledger/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/keys/key_spending.h"
#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/budget.h"
#include "server/services/stores.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;

class UsageTest : public testing::Test {
 protected:
  UsageTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("usage-{}-{}", getpid(), counter_++)) {}
  ~UsageTest() override { std::filesystem::remove_all(folder_); }

  void open(bool kept = true) {
    usage_.reset();
    stores_.reset();
    if (kept) stores_ = Stores::open(folder_, {}).value();
    auto usage = Usage::open(
        kept ? stores_->store : nullptr, [this](const std::string& text) { warnings_ += text; },
        [this] { return now_.load(); });
    ASSERT_TRUE(usage) << usage.error().message;
    usage_ = std::move(*usage);
  }
  void set_day(const char* text) { now_ = *day_of_text(text) * 86400 + 3600; }
  static UseCounts use(int64_t input, int64_t output, int64_t nano_cost = 0) {
    UseCounts one;
    one.requests = 1, one.input_tokens = input, one.output_tokens = output,
    one.nano_cost = nano_cost;
    return one;
  }

  const std::filesystem::path folder_;
  std::atomic<int64_t> now_{0};
  std::string warnings_;
  std::unique_ptr<Stores> stores_;
  std::unique_ptr<Usage> usage_;

 private:
  static inline int counter_ = 0;
};

TEST(Days, AreThoseOfTheCalendar) {
  for (const char* text : {"1970-01-01", "2000-02-29", "2024-02-29", "2026-11-25", "2100-12-31"})
    EXPECT_EQ(day_text(*day_of_text(text)), text);
  for (const char* text :
       {"", "2026-02-29", "2026-13-01", "2026-1-1", "26-01-01xx", "2026-01-01 ", "-026-01-01"})
    EXPECT_FALSE(day_of_text(text)) << text;
  EXPECT_EQ(*day_of_text("1970-01-02"), 1);
  EXPECT_EQ(day_text(first_day_of_month(*day_of_text("2024-02-29"))), "2024-02-01");
  EXPECT_EQ(day_text(first_day_of_next_month(*day_of_text("2026-12-31"))), "2027-01-01");
}

TEST(Prices, AreForAMillionTokens) {
  UseCounts one;
  one.input_tokens = 3000, one.cached_tokens = 1000, one.output_tokens = 500;
  EXPECT_EQ(nano_cost_of({.input = 0.15, .output = 0.6}, one), 450'000 + 300'000);
  EXPECT_EQ(nano_cost_of({.input = 0.15, .output = 0.6, .cached_input = 0.05}, one),
            300'000 + 50'000 + 300'000);
  EXPECT_EQ(nano_cost_of({}, one), 0);
  one.output_tokens = INT64_MAX;
  EXPECT_GT(nano_cost_of({.output = 1e9}, one), 0);
}

TEST_F(UsageTest, AddsUpByDayKeyAndModel) {
  set_day("2026-11-24");
  open();
  usage_->note("a", "small", use(10, 2));
  usage_->note("a", "small", use(20, 3));
  usage_->note("b", "small", use(1, 1));
  set_day("2026-11-25");
  usage_->note("a", "large", use(5, 5, 7));
  open();  // the next run
  usage_->note("a", "large", use(1, 0, 1));
  const auto rows = usage_->rows({}).value();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].key + rows[0].model, "asmall");
  EXPECT_EQ(rows[0].use.requests, 2);
  EXPECT_EQ(rows[0].use.input_tokens, 30);
  EXPECT_EQ(rows[1].key, "b");
  EXPECT_EQ(rows[2].use.nano_cost, 8);
  const int64_t last = *day_of_text("2026-11-25");
  EXPECT_EQ(usage_->rows({.first_day = last, .last_day = last, .key = {}}).value().size(), 1u);
  EXPECT_EQ(usage_->rows({.key = "b", .all_keys = false}).value().size(), 1u);
  EXPECT_EQ(warnings_, "");
}

TEST_F(UsageTest, WhatIsSpentIsOfThisDayAndThisMonth) {
  set_day("2026-10-31");
  open();
  usage_->note("a", "m", use(1000, 0));
  set_day("2026-11-01");
  EXPECT_EQ(usage_->spent("a").month.tokens(), 0);
  usage_->note("a", "m", use(10, 1));
  set_day("2026-11-02");
  usage_->note("a", "m", use(20, 2));
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(usage_->spent("a").today.tokens(), 22);
    EXPECT_EQ(usage_->spent("a").month.tokens(), 33);
    EXPECT_EQ(usage_->spent("b").month.tokens(), 0);
    open();
  }
}

TEST_F(UsageTest, CountsWithoutAStore) {
  set_day("2026-11-02");
  open(false);
  usage_->note("a", "m", use(20, 2));
  EXPECT_EQ(usage_->spent("a").today.tokens(), 22);
  EXPECT_EQ(usage_->rows({}).value().size(), 1u);
}

// A store that cannot be written for a while loses nothing.
TEST_F(UsageTest, WaitsForAStoreThatCannotBeWritten) {
  set_day("2026-11-02");
  open();
  usage_->note("a", "m", use(1, 0));
  ASSERT_TRUE(usage_->rows({}));
  ASSERT_TRUE(stores_->store->database().run("ALTER TABLE usage RENAME TO elsewhere"));
  usage_->note("a", "m", use(2, 0));
  EXPECT_FALSE(usage_->rows({}));
  ASSERT_TRUE(stores_->store->database().run("ALTER TABLE elsewhere RENAME TO usage"));
  EXPECT_EQ(usage_->rows({}).value()[0].use.input_tokens, 3);
  EXPECT_EQ(usage_->rows({}).value()[0].use.requests, 2);
}

TEST_F(UsageTest, IsReadWhereTheDiskTakesNothing) {
  set_day("2026-11-02");
  open();
  usage_->note("a", "m", use(1, 0));
  ASSERT_TRUE(usage_->rows({}));
  ASSERT_TRUE(stores_->store->database().run("PRAGMA query_only = 1"));
  usage_->note("a", "m", use(2, 0));
  usage_->note("b", "m", use(4, 0));
  const auto rows = usage_->rows({});
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].use.input_tokens, 3);
  EXPECT_EQ((*rows)[1].use.input_tokens, 4);
  EXPECT_EQ(usage_->rows({.key = "b", .all_keys = false}).value().size(), 1u);
  ASSERT_TRUE(stores_->store->database().run("PRAGMA query_only = 0"));
  EXPECT_EQ(usage_->rows({}).value()[0].use.input_tokens, 3);
}

TEST_F(UsageTest, IsReadBesideTheProcessThatWritesIt) {
  EXPECT_EQ(Store::open_database(folder_).error().code, ErrorCode::kNotFound);
  set_day("2026-11-02");
  open();
  usage_->note("a", "m", use(20, 2));
  ASSERT_TRUE(usage_->rows({}));
  const auto database = Store::open_database(folder_);
  ASSERT_TRUE(database) << database.error().message;
  EXPECT_EQ(read_use(**database, {}).value()[0].use.output_tokens, 2);
  ASSERT_TRUE((*database)->run("PRAGMA user_version = 3"));
  const auto older = Store::open_database(folder_);
  EXPECT_EQ(older.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(older.error().message, HasSubstr("got 3"));
}

TEST_F(UsageTest, Budgets) {
  set_day("2026-11-30");
  open();
  const Budget budget{
      .tokens_per_day = 100, .tokens_per_month = 150, .cost_per_day = 0, .cost_per_month = 2};
  const auto spent = [&] { return spent_budget(budget, usage_->spent("a"), now_); };
  EXPECT_FALSE(spent());
  usage_->note("a", "m", use(60, 40, 1'000'000'000));
  ASSERT_TRUE(spent());
  EXPECT_EQ(spent()->name, "tokens_per_day");
  EXPECT_EQ(day_text(day_of(spent()->resets_at)), "2026-12-01");
  EXPECT_EQ(budget_states(budget, usage_->spent("a"), now_).size(), 3u);
  set_day("2026-12-01");
  EXPECT_FALSE(spent());
  usage_->note("a", "m", use(50, 0, 2'000'000'000));
  EXPECT_EQ(spent()->name, "cost_per_month");
  EXPECT_DOUBLE_EQ(spent()->used, 2);
  EXPECT_EQ(day_text(day_of(spent()->resets_at)), "2027-01-01");
  usage_->note("a", "m", use(60, 0));
  EXPECT_EQ(spent()->name, "cost_per_month");  // not the day's: that comes back sooner
}

// As many as there are at once: what is reserved counts as spent until it is released.
TEST_F(UsageTest, ReservedRoomIsNobodyElses) {
  open(false);
  set_day("2026-11-25");
  Budget budget;
  budget.tokens_per_day = 100, budget.cost_per_month = 1;
  std::optional<BudgetState> short_of;
  const auto reserve = [&](const UseCounts& most) {
    const auto fits = [&](const Usage::Spent& spent, const UseCounts& reserved) {
      short_of = short_budget(budget, spent, reserved, most, usage_->now());
      return !short_of;
    };
    return usage_->reserve("a", fits, most);
  };
  EXPECT_TRUE(reserve(use(10, 30)));
  EXPECT_TRUE(reserve(use(10, 30)));
  EXPECT_FALSE(reserve(use(1, 20)));
  EXPECT_EQ(short_of->name, "tokens_per_day");
  EXPECT_EQ(short_of->used, 0);
  EXPECT_EQ(short_of->reserved, 80);
  EXPECT_EQ(short_of->wanted, 21);
  EXPECT_TRUE(reserve(use(10, 10)));  // to the last one
  usage_->note("a", "m", use(10, 5));
  usage_->release("a", use(10, 30));
  EXPECT_FALSE(reserve(use(0, 26)));
  EXPECT_EQ(short_of->used, 15);
  EXPECT_TRUE(reserve(use(0, 25)));
  EXPECT_FALSE(reserve(use(0, 0, 1'000'000'001)));
  EXPECT_EQ(short_of->name, "cost_per_month");
  EXPECT_EQ(short_of->resets_at, *day_of_text("2026-12-01") * 86400);
}

// A request of several calls, whose earlier ones have used up what the next one needs: nobody's end gives
// it back.
TEST_F(UsageTest, WhatARequestHasUsedItselfIsNotWaitedFor) {
  open(false);
  set_day("2026-11-25");
  ApiKeyRecord record;
  record.id = "a";
  record.budget.tokens_per_day = 303;
  const auto key = std::make_shared<ApiKey>(record);
  const auto spending = spending_of(key, *usage_, false), other = spending_of(key, *usage_, false);
  SpendingClaim first{.prompt_tokens = 150, .n_replies = 1, .max_tokens = 60};
  ASSERT_FALSE(spending->claim(first));
  spending->charge(150, 47);
  spending->settle();
  SpendingClaim next{.prompt_tokens = 200, .n_replies = 1, .max_tokens = 20};
  const auto refused = spending->claim(next);
  ASSERT_TRUE(refused);
  EXPECT_TRUE(refused->for_good);
  EXPECT_THAT(refused->reply.message, HasSubstr("197 are used"));
  // Nor does the end of this one to another: two that wait for each other would wait for ever.
  const auto other_refused = other->claim(next);
  ASSERT_TRUE(other_refused);
  EXPECT_TRUE(other_refused->for_good);
  SpendingClaim large{.prompt_tokens = 60, .n_replies = 1, .max_tokens = 40};
  ASSERT_FALSE(other->claim(large));
  const auto waits = spending->claim(large);  // until what is reserved is not needed
  ASSERT_TRUE(waits);
  EXPECT_FALSE(waits->for_good);
  other->charge(10, 0);
  other->settle();
  SpendingClaim small{.prompt_tokens = 90, .n_replies = 1, .max_tokens = 6};
  EXPECT_FALSE(spending->claim(small)) << "what is left";
}

// What a quota refuses holds nothing of the budget, however often it is asked for.
TEST_F(UsageTest, WhatTheQuotaRefusesIsNotReserved) {
  open(false);
  set_day("2026-11-25");
  ApiKeyRecord record;
  record.id = "a";
  record.budget.tokens_per_day = 1000;
  record.tokens_per_minute = 100;
  const auto key = std::make_shared<ApiKey>(record);
  const auto spending = spending_of(key, *usage_, true);
  SpendingClaim claim{.prompt_tokens = 50, .n_replies = 1, .max_tokens = 30};
  ASSERT_FALSE(spending->claim(claim));
  spending->charge(50, 30);
  spending->settle();
  for (int i = 0; i < 20; ++i) {
    const auto refused = spending->claim(claim);
    ASSERT_TRUE(refused) << i;
    EXPECT_FALSE(refused->for_good);
    EXPECT_THAT(refused->reply.message, Not(HasSubstr("budget"))) << i;
  }
  int64_t spent = -1, reserved = -1;
  const auto look = [&](const Usage::Spent& of_key, const UseCounts& of_all) {
    spent = of_key.today.tokens(), reserved = of_all.tokens();
    return false;
  };
  usage_->reserve("a", look, {});
  EXPECT_EQ(spent, 80);
  EXPECT_EQ(reserved, 0);
}

TEST_F(UsageTest, AuditLog) {
  open();
  AuditLog& log = *stores_->audit;
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(log.add({0, 0, "key", "::1", "POST /x", std::string(i == 5 ? 5000 : 1, 'x'), 200}));
  }
  const auto page = log.list(INT64_MAX, 2).value();
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].number, 5);
  EXPECT_EQ(page[0].about.size(), AuditLog::kLongestAbout + 3);
  EXPECT_EQ(page[0].status, 200);
  EXPECT_GT(page[0].time, 0);
  EXPECT_EQ(log.list(page[1].number, 100).value().size(), 3u);
}

}  // namespace
}  // namespace penstock
