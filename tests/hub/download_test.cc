// The parts of a download that need no server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "formats/temp_dir.h"
#include "hub/download/digest.h"
#include "hub/download/file_lock.h"
#include "hub/download/http.h"
#include "hub/download/hub_api.h"
#include "hub/download/partial_blob.h"
#include "hub/download/range_set.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(RangeSet, JoinsWhatTouches) {
  RangeSet set;
  set.add({10, 20});
  set.add({30, 40});
  set.add({5, 5});
  EXPECT_EQ(set.prefix(), 0);
  EXPECT_THAT(set.gaps(50), ElementsAre(ByteRange{0, 10}, ByteRange{20, 30}, ByteRange{40, 50}));
  set.add({20, 30});
  EXPECT_THAT(set.ranges(), ElementsAre(ByteRange{10, 40}));
  set.add({0, 50});
  EXPECT_EQ(set.prefix(), 50);
  EXPECT_EQ(set.total(), 50);
  EXPECT_THAT(set.gaps(50), ElementsAre());
}

TEST(RangeSet, AgreesWithAFlagPerByte) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    constexpr int kSize = 40;
    std::array<bool, kSize> there{};
    RangeSet set;
    for (int i = 0; i < 8; ++i) {
      int begin = static_cast<int>(random() % kSize), end = static_cast<int>(random() % kSize);
      if (begin > end) std::swap(begin, end);
      set.add({begin, end});
      std::fill(there.begin() + begin, there.begin() + end, true);
    }
    EXPECT_EQ(set.total(), std::count(there.begin(), there.end(), true));
    EXPECT_EQ(set.prefix(), std::find(there.begin(), there.end(), false) - there.begin());
    int64_t missing = 0;
    for (const ByteRange& gap : set.gaps(kSize)) {
      EXPECT_GT(gap.size(), 0);
      for (int64_t i = gap.begin; i < gap.end; ++i) EXPECT_FALSE(there[static_cast<size_t>(i)]);
      missing += gap.size();
    }
    EXPECT_EQ(missing, kSize - set.total());
  }
}

// git hash-object and sha256sum of "hello\n".
constexpr const char* kHelloGit = "ce013625030ba8dba906f756967f9e9ca394464a";
constexpr const char* kHelloSha256 =
    "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

TEST(Digest, NamesOfContent) {
  for (const auto& [kind, hex] : {std::pair(Checksum::Kind::kGitBlob, kHelloGit),
                                  std::pair(Checksum::Kind::kSha256, kHelloSha256)}) {
    Digest digest(kind, 6);
    digest.update(bytes("hel"));
    digest.update(bytes("lo\n"));
    EXPECT_EQ(digest.hex(), hex);
  }
  EXPECT_EQ(checksum_of_etag(kHelloGit).kind, Checksum::Kind::kGitBlob);
  EXPECT_EQ(checksum_of_etag(kHelloSha256).kind, Checksum::Kind::kSha256);
  EXPECT_EQ(checksum_of_etag("abc").kind, Checksum::Kind::kNone);
  EXPECT_EQ(checksum_of_etag(std::string(64, 'g')).kind, Checksum::Kind::kNone);
}

class Blob : public ::testing::Test {
 protected:
  Result<PartialBlob> open(int64_t size = 6) {
    return PartialBlob::open(dir_ / "blob", size, checksum_of_etag(kHelloSha256));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  TempDir dir_;
};

TEST_F(Blob, PartsInAnyOrderBecomeTheFile) {
  auto blob = open();
  ASSERT_TRUE(blob) << blob.error().message;
  EXPECT_FALSE(blob->resumed());
  ASSERT_TRUE(blob->write(3, bytes("lo\n")));
  EXPECT_TRUE(*blob->hash_some(100));  // nothing from the start yet
  ASSERT_TRUE(blob->write(0, bytes("hel")));
  EXPECT_TRUE(blob->complete());
  EXPECT_FALSE(*blob->hash_some(2));
  EXPECT_TRUE(*blob->hash_some(100));
  ASSERT_TRUE(blob->finish());
  EXPECT_THAT(names(), ElementsAre("blob"));
}

TEST_F(Blob, AnotherRunGoesOn) {
  {
    ASSERT_TRUE(open()->write(2, bytes("llo")));
  }
  EXPECT_THAT(names(), ElementsAre("blob.penstock.incomplete", "blob.penstock.ranges"));
  auto blob = open();
  EXPECT_TRUE(blob->resumed());
  EXPECT_THAT(blob->received().gaps(6), ElementsAre(ByteRange{0, 2}, ByteRange{5, 6}));
  ASSERT_TRUE(blob->write(0, bytes("he")));
  ASSERT_TRUE(blob->write(5, bytes("\n")));
  EXPECT_TRUE(*blob->hash_some(100));
  EXPECT_TRUE(blob->finish());
}

TEST_F(Blob, WrongContentIsForgotten) {
  auto blob = open();
  ASSERT_TRUE(blob->write(0, bytes("hellO\n")));
  EXPECT_TRUE(*blob->hash_some(100));
  const Status finished = blob->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(finished.error().message, HasSubstr(kHelloSha256));
  EXPECT_EQ(blob->received().total(), 0);
  ASSERT_TRUE(blob->write(0, bytes("hello\n")));
  EXPECT_TRUE(*blob->hash_some(100));
  EXPECT_TRUE(blob->finish());
}

TEST_F(Blob, AnotherSizeIsAnotherFile) {
  {
    ASSERT_TRUE(open()->write(0, bytes("hel")));
  }
  EXPECT_FALSE(open(7)->resumed());
}

TEST_F(Blob, LinksAreNotWrittenThrough) {
  write_bytes(dir_ / "victim", "keep me");
  fs::create_symlink(dir_ / "victim", dir_ / "blob.penstock.incomplete");
  EXPECT_FALSE(open());
  fs::remove(dir_ / "blob.penstock.incomplete");
  fs::create_symlink(dir_ / "victim", dir_ / "blob.penstock.ranges.tmp");
  fs::create_symlink(dir_ / "victim", dir_ / "blob");
  {
    auto blob = open();
    ASSERT_TRUE(blob->write(0, bytes("hello\n")));
    EXPECT_TRUE(*blob->hash_some(100));
    blob->keep(true);
    ASSERT_TRUE(blob->finish());
  }
  EXPECT_FALSE(fs::is_symlink(dir_ / "blob"));
  EXPECT_EQ(fs::file_size(dir_ / "victim"), 7u);
}

TEST(FileLock, OneHolderAtATime) {
  const TempDir dir;
  auto first = FileLock::try_lock(dir / "a/b.lock");
  ASSERT_TRUE(first && *first);
  EXPECT_FALSE(FileLock::try_lock(dir / "a/b.lock")->has_value());
  first->reset();
  EXPECT_TRUE(FileLock::try_lock(dir / "a/b.lock")->has_value());
  EXPECT_TRUE(fs::exists(dir / "a/b.lock"));  // taking it away would part those who wait
  fs::create_symlink(dir / "elsewhere", dir / "link.lock");
  EXPECT_FALSE(FileLock::try_lock(dir / "link.lock"));
  EXPECT_FALSE(fs::exists(dir / "elsewhere"));
}

TEST(HubProtocol, ListOfFiles) {
  const auto files = parse_tree(R"([{"type": "directory", "path": "a"},
      {"type": "file", "path": "a/config.json", "size": 5, "oid": "11"},
      {"type": "file", "path": "m.gguf", "size": 130, "oid": "22", "lfs": {"oid": "33", "size": 4000000000}, "xetHash": "44"}])",
                                "x");
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].path, "a/config.json");
  EXPECT_EQ((*files)[0].blob_id, "11");
  EXPECT_EQ((*files)[1].size, 4000000000);
  EXPECT_EQ((*files)[1].lfs_sha256, "33");
  EXPECT_EQ((*files)[1].xet_hash, "44");
  EXPECT_FALSE(parse_tree(R"([{"type": "file", "path": "../x"}])", "x"));
}

// Lengths are added up.
TEST(HubProtocol, WhatIsNoLengthIsUnknown) {
  for (const char* size : {"-5", "1.5", "9223372036854775807", "18446744073709551615", "\"5\""}) {
    const auto files = parse_tree(fmt::format(R"([{{"type": "file", "path": "a", "size": {}}},
        {{"type": "file", "path": "b", "size": 5, "lfs": {{"oid": "33", "size": {}}}}}])",
                                              size, size),
                                  "x");
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ((*files)[0].size, -1) << size;
    EXPECT_EQ((*files)[1].size, 5) << size;
    EXPECT_EQ((*files)[1].lfs_size, -1) << size;
  }
}

TEST(HubProtocol, NextPage) {
  EXPECT_EQ(next_link(R"(<https://h/a?cursor=x>; rel="next")"), "https://h/a?cursor=x");
  EXPECT_EQ(next_link(R"(<https://h/1>; rel="prev", </2>; rel="next")"), "/2");
  for (const char* text : {"", "<", "<a", "<a>", R"(<a>; rel="last")", R"(a; rel="next")"})
    EXPECT_EQ(next_link(text), "") << text;
}

HttpAnswer answer(int status, std::map<std::string, std::string, std::less<>> headers) {
  return {.status = status,
          .url = "https://h/org/name/resolve/c/m.gguf",
          .headers = std::move(headers)};
}

TEST(HubProtocol, DescriptionOfAFile) {
  const auto plain =
      read_remote_file(answer(200, {{"etag", "W/\"abc\""}, {"content-length", "5"}}));
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->etag, "abc");
  EXPECT_EQ(plain->size, 5);
  EXPECT_EQ(plain->location, "https://h/org/name/resolve/c/m.gguf");
  const auto linked = read_remote_file(answer(302, {{"etag", "\"x\""},
                                                    {"x-linked-etag", "\"def\""},
                                                    {"x-linked-size", "7"},
                                                    {"content-length", "99"},
                                                    {"location", "/other"}}));
  ASSERT_TRUE(linked) << linked.error().message;
  EXPECT_EQ(linked->etag, "def");
  EXPECT_EQ(linked->size, 7);
  EXPECT_EQ(linked->location, "https://h/other");
  EXPECT_EQ(read_remote_file(
                answer(302, {{"etag", "e"}, {"content-length", "99"}, {"location", "/other"}}))
                ->size,
            -1);
  for (const char* etag : {"", "\"\"", "../x", "a/b", ".", "a b", "\x01"})
    EXPECT_FALSE(read_remote_file(answer(200, {{"etag", etag}}))) << etag;
}

TEST(HubProtocol, AFileOfAnEncryptedHubIsEncrypted) {
  for (const char* location : {"http://h/other", "HTTP://h/other", "ftp://h/other"}) {
    const auto file = read_remote_file(answer(302, {{"etag", "e"}, {"location", location}}));
    ASSERT_FALSE(file) << location;
    EXPECT_EQ(file.error().code, ErrorCode::kIo);
    EXPECT_THAT(file.error().message, HasSubstr("redirected from https to "));
  }
  HttpAnswer plain = answer(302, {{"etag", "e"}, {"location", "http://h/other"}});
  plain.url = "http://h/m.gguf";
  EXPECT_EQ(read_remote_file(plain)->location, "http://h/other");
}

class KeptEnd : public HttpReceiver {
 public:
  bool on_answer(const HttpAnswer&) override { return true; }
  bool on_data(std::span<const std::byte>) override { return true; }
  void on_end(const HttpAnswer& answer) override { end = answer; }
  std::optional<HttpAnswer> end;
};

// Whoever gives the client an address: a list's next page, a description's location.
TEST(HubProtocol, AClientOfAnEncryptedHubSendsNothingElse) {
  HubSettings settings;
  settings.endpoint = "https://127.0.0.1:9";
  HttpClient client(settings);
  KeptEnd receiver;
  client.start({.url = "http://127.0.0.1:9/x"}, receiver);
  for (int i = 0; i < 100 && !receiver.end; ++i) client.poll(std::chrono::milliseconds(50));
  ASSERT_TRUE(receiver.end);
  EXPECT_EQ(receiver.end->failure, HttpAnswer::Failure::kFatal);
}

TEST(HubProtocol, WhatIsTriedAgain) {
  using Failure = HttpAnswer::Failure;
  EXPECT_TRUE(retry_delay({.status = 503}, 1));
  EXPECT_TRUE(retry_delay({.failure = Failure::kBroken}, 4));
  EXPECT_FALSE(retry_delay({.failure = Failure::kBroken}, 5));
  EXPECT_FALSE(retry_delay({.failure = Failure::kConnect}, 3));
  EXPECT_FALSE(retry_delay({.failure = Failure::kFatal}, 1));
  EXPECT_FALSE(retry_delay({.status = 404}, 1));
  EXPECT_EQ(retry_delay({.status = 429, .retry_after = 7}, 1)->count(), 7000);
  EXPECT_FALSE(retry_delay({.status = 429, .retry_after = 86400}, 1));
}

TEST(Addresses, OriginsAndRedirects) {
  EXPECT_EQ(origin_of("HTTPS://Host.Example/a"), "https://host.example:443");
  EXPECT_EQ(origin_of("http://h:8080"), "http://h:8080");
  EXPECT_EQ(origin_of("http://user@h:80/"), "http://h:80");
  EXPECT_NE(origin_of("http://h"), origin_of("https://h"));
  EXPECT_EQ(origin_of("nonsense"), origin_of("nonsense"));
  EXPECT_EQ(redirect_target("https://h/a/b", "c"), "https://h/a/c");
  EXPECT_EQ(redirect_target("https://h/a/b", "//other/c"), "https://other/c");
  EXPECT_EQ(redirect_target("https://h/a", "https://x/y?z=1"), "https://x/y?z=1");
  EXPECT_EQ(shown_url("https://user:word@h/a?signature=1#x"), "https://h/a");
  EXPECT_EQ(escape_url("a b/\xc3\xa9?", true), "a%20b/%C3%A9%3F");
  EXPECT_EQ(escape_url("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace penstock
