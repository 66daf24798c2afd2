#include "server/keys/ledger/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Files are looked at twice a second; a busy machine may be late by any time.
template <class F>
bool comes_true(F condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

class KeyFile : public testing::Test {
 protected:
  KeyFile()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("keys-{}-{}.json", getpid(), counter_++)) {}
  ~KeyFile() override { std::filesystem::remove(path_); }

  std::string add(const std::string& scopes, double requests = 0, double tokens = 0) {
    auto made = make_api_key("someone", *parse_scopes(scopes), requests, tokens);
    EXPECT_TRUE(made);
    records_.push_back(made->record);
    EXPECT_TRUE(write_key_file(path_, records_));
    return made->key;
  }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }

  static inline int counter_ = 0;
  std::string path_;
  std::vector<ApiKeyRecord> records_;
};

TEST_F(KeyFile, HoldsNoKeyAndOnlyItsOwnerReadsIt) {
  const std::string key = add("inference");
  EXPECT_EQ(text().find(key), std::string::npos);
  EXPECT_EQ(text().find(key.substr(key.rfind('-') + 1)), std::string::npos);
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// The hash is SHA-256(salt + key): checked with numbers from `printf … | sha256sum`.
TEST_F(KeyFile, HashIsSaltedSha256) {
  ApiKeyRecord record;
  record.id = "0123456789ab";
  record.salt = "30313233343536373839616263646566";  // "0123456789abcdef"
  const std::string key = "pst-0123456789ab-secret";
  const std::string command = "printf '%s' '0123456789abcdef" + key + "' | sha256sum";
  std::FILE* pipe = popen(command.c_str(), "r");
  char digest[65] = "";
  ASSERT_EQ(std::fread(digest, 1, 64, pipe), 64u);
  pclose(pipe);
  record.hash = digest;
  EXPECT_TRUE(ApiKey(record).matches(key));
  EXPECT_FALSE(ApiKey(record).matches(key + "x"));
}

TEST_F(KeyFile, FindsKeysAndNothingElse) {
  const std::string first = add("inference"), second = add("metrics");
  const auto keys = ApiKeys::open(path_, {"plain one", "plain two"});
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_TRUE((*keys)->required());
  ASSERT_NE((*keys)->find(first), nullptr);
  EXPECT_TRUE((*keys)->find(first)->may(Scope::kInference));
  EXPECT_FALSE((*keys)->find(first)->may(Scope::kMetrics));
  EXPECT_TRUE((*keys)->find(second)->may(Scope::kMetrics));
  EXPECT_FALSE((*keys)->find(second)->may(Scope::kInference));
  EXPECT_TRUE((*keys)->find("plain two")->may(Scope::kAdmin));
  for (std::string wrong : {std::string(), std::string("plain"), first.substr(0, first.size() - 1),
                            first + "0", std::string("pst-000000000000-0"),
                            std::string("plain one\0", 10), std::string(100000, 'a')}) {
    EXPECT_EQ((*keys)->find(wrong), nullptr) << wrong.substr(0, 80);
  }
  // The id of one key with the secret of another.
  const std::string mixed = first.substr(0, first.rfind('-')) + second.substr(second.rfind('-'));
  EXPECT_EQ((*keys)->find(mixed), nullptr);
}

TEST_F(KeyFile, WithoutKeysNothingIsRequiredButAnEmptyFileIs) {
  EXPECT_FALSE((*ApiKeys::open("", {}))->required());
  write(R"({"keys": []})");
  const auto keys = ApiKeys::open(path_, {});
  ASSERT_TRUE(keys);
  EXPECT_TRUE((*keys)->required());
  EXPECT_EQ((*keys)->find("anything"), nullptr);
}

TEST_F(KeyFile, BadFilesAreRefused) {
  EXPECT_EQ(ApiKeys::open(path_ + ".none", {}).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(ApiKeys::open("", {""}));
  const std::string good =
      R"({"id":"0123456789ab","salt":"30313233343536373839616263646566",)"
      R"("hash":"30313233343536373839616263646566303132333435363738396162636465aa","scopes":"inference")";
  write("{\"keys\": [" + good + "}]}");
  EXPECT_TRUE(ApiKeys::open(path_, {}));
  for (const std::string& bad :
       {std::string("secret\n"), std::string("{}"), std::string(R"({"keys": 1})"),
        std::string(R"({"keys": [1]})"), std::string(R"({"keys": [{"id":"0123456789ab"}]})"),
        "{\"keys\": [" + good + ",\"requests_per_minute\":-1}]}",
        "{\"keys\": [" + good + ",\"tokens_per_minute\":\"many\"}]}",
        "{\"keys\": [" + good + ",\"scopes\":\"root\"}]}"}) {
    write(bad);
    const auto keys = ApiKeys::open(path_, {});
    ASSERT_FALSE(keys) << bad;
    EXPECT_EQ(keys.error().code, ErrorCode::kCorruptFile);
    EXPECT_NE(keys.error().message.find(path_), std::string::npos);
  }
}

TEST_F(KeyFile, ChangesAreTakenUpAndBalancesKept) {
  const std::string first = add("inference", 2), second = add("inference");
  auto keys = *ApiKeys::open(path_, {});
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(keys->find(first)->admit(now));
  EXPECT_FALSE(keys->find(first)->admit(now));
  EXPECT_TRUE(keys->find(first)->admit(now));
  std::erase_if(records_,
                [&](const auto& record) { return second.find(record.id) != std::string::npos; });
  const std::string third = add("metrics");
  EXPECT_TRUE(comes_true([&] { return keys->find(third) != nullptr; }));
  EXPECT_EQ(keys->find(second), nullptr);
  EXPECT_TRUE(keys->find(first)->admit(now));  // still spent
  write("broken");
  std::string warning;
  EXPECT_TRUE(comes_true([&] { return !(warning = keys->warning()).empty(); }));
  EXPECT_NE(warning.find(path_), std::string::npos);
  EXPECT_NE(keys->find(third), nullptr);
  EXPECT_EQ(keys->warning(), "");
}

// A request that runs while the file changes gives back what it held, and what it takes counts.
TEST_F(KeyFile, RunningRequestsKeepTheirQuotaWhenTheFileChanges) {
  const std::string key = add("inference", 0, 1000);
  auto keys = *ApiKeys::open(path_, {});
  const auto now = std::chrono::steady_clock::now();
  const auto before = keys->find(key);
  const auto expect_left = [&](const ApiKey& one, double expected) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - now;
    const double left = one.left(now).tokens;
    EXPECT_GE(left, expected - 1);
    EXPECT_LE(left, expected + 1 + passed.count() * 1000 / 60) << "what a change refills";
  };
  double held = 0;
  ASSERT_FALSE(before->hold_tokens(900, false, now, held));
  add("metrics");
  ASSERT_TRUE(comes_true([&] { return keys->find(key) != before; }));
  const auto after = keys->find(key);
  expect_left(*after, 100);
  before->charge_tokens(-held, now);
  EXPECT_NEAR(after->left(now).tokens, 1000, 1);
  before->charge_tokens(600, now);
  expect_left(*after, 400);
  // A lower rate holds for what is there, too.
  records_[0].tokens_per_minute = 300;
  ASSERT_TRUE(write_key_file(path_, records_));
  ASSERT_TRUE(comes_true([&] { return keys->find(key) != after; }));
  EXPECT_NEAR(keys->find(key)->left(now).tokens, 300, 1);
}

// Programs that copy, unpack and mount files may give all versions one time.
TEST_F(KeyFile, AVersionOfTheSameTimeAndSizeIsTakenUp) {
  const std::string first = add("inference"), second = add("inference");
  const std::vector<ApiKeyRecord> both = records_;
  const auto write_at_no_time = [&](const ApiKeyRecord& record) {
    ASSERT_TRUE(write_key_file(path_ + ".new", {record}));
    std::filesystem::last_write_time(path_ + ".new", std::filesystem::file_time_type{});
    std::filesystem::rename(path_ + ".new", path_);
  };
  write_at_no_time(both[0]);
  auto keys = *ApiKeys::open(path_, {});
  EXPECT_NE(keys->find(first), nullptr);
  const auto size = std::filesystem::file_size(path_);
  write_at_no_time(both[1]);
  ASSERT_EQ(std::filesystem::file_size(path_), size);
  EXPECT_TRUE(comes_true([&] { return keys->find(second) != nullptr; }));
  EXPECT_EQ(keys->find(first), nullptr);
}

TEST(Scopes, AreNamed) {
  EXPECT_EQ(scope_names(*parse_scopes("admin,inference")), "inference,admin");
  EXPECT_FALSE(parse_scopes(""));
  EXPECT_FALSE(parse_scopes("inference,,root"));
}

TEST(Limits, MustBeNumbers) {
  EXPECT_FALSE(make_api_key("x", 1, -1, 0));
  EXPECT_FALSE(make_api_key("x", 1, 0, std::numeric_limits<double>::quiet_NaN()));
}

TEST(Quota, RefillsUpToOneMinutesWorth) {
  Quota quota(60);
  Quota::Time now{seconds(1000)};
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(quota.has(1, now));
    quota.take(1, now);
  }
  EXPECT_FALSE(quota.has(1, now));
  EXPECT_DOUBLE_EQ(quota.wait_seconds(1, now), 1);
  EXPECT_DOUBLE_EQ(quota.wait_seconds(1, now + milliseconds(250)), 0.75);
  EXPECT_TRUE(quota.has(1, now + seconds(1)));
  EXPECT_DOUBLE_EQ(quota.left(now + seconds(3600)), 60);
}

TEST(Quota, DebtIsPaidFirst) {
  Quota quota(60);
  Quota::Time now{seconds(1000)};
  quota.take(90, now);
  EXPECT_DOUBLE_EQ(quota.wait_seconds(1, now), 31);
  EXPECT_FALSE(quota.has(1, now + seconds(30)));
  EXPECT_TRUE(quota.has(1, now + seconds(31)));
}

TEST(Quota, ZeroIsNoLimit) {
  Quota quota(0);
  quota.take(1e9, Quota::Time{seconds(5)});
  EXPECT_TRUE(quota.has(1e9, Quota::Time{seconds(5)}));
}

TEST(ApiKeyTest, TokensHoldBackLaterRequests) {
  ApiKeyRecord record;
  record.tokens_per_minute = 100;
  ApiKey key(record);
  Quota::Time now{seconds(50)};
  EXPECT_FALSE(key.admit(now));
  key.charge_tokens(130, now);
  const auto refused = key.admit(now);
  ASSERT_TRUE(refused);
  EXPECT_STREQ(refused->what, "tokens");
  EXPECT_NEAR(refused->retry_seconds, 31 * 0.6, 1e-9);
  EXPECT_EQ(key.left(now).tokens, 0);
  EXPECT_FALSE(key.admit(now + seconds(19)));
}

TEST(ApiKeyTest, TokensAreHeldBeforeTheyAreUsed) {
  ApiKeyRecord record;
  record.tokens_per_minute = 100;
  ApiKey key(record);
  const Quota::Time now{std::chrono::hours(1)};
  double held = 0;
  EXPECT_FALSE(key.hold_tokens(60, false, now, held));
  EXPECT_EQ(held, 60);
  const auto refused = key.hold_tokens(60, false, now, held);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(refused->retry_seconds, 12, 1e-6);
  EXPECT_EQ(held, 60);
  double rest = 0;
  EXPECT_FALSE(key.hold_tokens(60, true, now, rest));  // what is there
  EXPECT_EQ(rest, 40);
  EXPECT_TRUE(key.hold_tokens(1, true, now, rest));
  key.charge_tokens(-100, now);
  EXPECT_EQ(key.left(now).tokens, 100);
  EXPECT_FALSE(key.hold_tokens(500, false, now, held));  // more than ever is there, when all is
  EXPECT_TRUE(key.hold_tokens(500, false, now, held));
}

TEST(ApiKeyTest, TenantsAreTheSameInEveryRun) {
  ApiKeyRecord of_file;
  of_file.id = "0123456789ab";
  EXPECT_EQ(ApiKey(of_file).tenant(), of_file.id);
  const ApiKey first(*record_of_plain_key("secret")), again(*record_of_plain_key("secret")),
      other(*record_of_plain_key("secrets"));
  EXPECT_EQ(first.tenant(), again.tenant());
  EXPECT_NE(first.tenant(), other.tenant());
  EXPECT_NE(first.record().id, first.tenant());
}

TEST(ApiKeyTest, LessThanOneRequestAMinute) {
  ApiKeyRecord record;
  record.requests_per_minute = 0.5;
  ApiKey key(record);
  Quota::Time now{seconds(50)};
  EXPECT_FALSE(key.admit(now));
  EXPECT_TRUE(key.admit(now + seconds(60)));
  EXPECT_FALSE(key.admit(now + seconds(121)));
}

}  // namespace
}  // namespace penstock
