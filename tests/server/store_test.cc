#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/regular_file.h"
#include "server/old_stores.h"
#include "server/store/files.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  StoreTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("store-{}-{}", getpid(), counter_++)) {}
  ~StoreTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<StoredFiles> open(FileLimits limits = {}) {
    auto store = Store::open(folder_);
    EXPECT_TRUE(store) << store.error().message;
    auto files = StoredFiles::open(std::move(*store), limits);
    EXPECT_TRUE(files) << files.error().message;
    return std::move(*files);
  }
  Error open_error() {
    auto store = Store::open(folder_);
    EXPECT_FALSE(store);
    return store ? Error{} : store.error();
  }
  void sql(const char* text) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ / "penstock.db").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, text, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  size_t n_on_disk() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_ / "files"), {}));
  }

  const std::filesystem::path folder_;

 private:
  static inline int counter_ = 0;
};

std::vector<std::string> names(StoredFiles& files, const std::string& owner,
                               const FileQuery& query = {}) {
  bool more = false;
  const auto found = files.list(owner, query, more);
  EXPECT_TRUE(found) << found.error().message;
  std::vector<std::string> result;
  for (const StoredFile& file : *found) result.push_back(file.name);
  if (more) result.emplace_back("...");
  return result;
}

TEST_F(StoreTest, KeepsFilesBetweenRuns) {
  const std::string content("a\0b\n", 4);
  StoredFile made;
  {
    const auto files = open();
    made = *files->add("me", "in.jsonl", "batch", content);
  }
  const auto files = open();
  const auto found = files->find("me", made.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "in.jsonl");
  EXPECT_EQ(found->purpose, "batch");
  EXPECT_EQ(found->bytes, 4);
  EXPECT_EQ(found->created, made.created);
  EXPECT_EQ(*files->read(*found, 0, 100), content);
  EXPECT_EQ(*files->read(*found, 1, 2), content.substr(1, 2));
  EXPECT_EQ(*files->read(*found, 4, 10), "");
}

TEST_F(StoreTest, AnotherOwnersFilesAreNotThere) {
  const auto files = open();
  const std::string id = files->add("me", "mine", "batch", "x")->id;
  EXPECT_EQ(files->find("you", id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(files->remove("you", id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(files->find("", id).error().message,
            files->find("", "file-none").error().message.replace(14, 9, id));
  EXPECT_THAT(names(*files, "you"), ElementsAre());
  bool more = false;
  EXPECT_EQ(files->list("you", {.after = id}, more).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(names(*files, "me"), ElementsAre("mine"));
}

TEST_F(StoreTest, ListsPageByPage) {
  const auto files = open();
  std::string third;
  for (const char* name : {"1", "2", "3", "4"}) {
    const std::string id = files->add("me", name, "batch", "x")->id;
    if (std::string_view(name) == "3") third = id;
  }
  EXPECT_THAT(names(*files, "me"), ElementsAre("4", "3", "2", "1"));
  EXPECT_THAT(names(*files, "me", {.limit = 2}), ElementsAre("4", "3", "..."));
  EXPECT_THAT(names(*files, "me", {.after = third, .limit = 2}), ElementsAre("2", "1"));
  EXPECT_THAT(names(*files, "me", {.after = third, .oldest_first = true}), ElementsAre("4"));
  EXPECT_THAT(names(*files, "me", {.purpose = "none"}), ElementsAre());
}

TEST_F(StoreTest, ARemovedFileIsGoneFromTheDisk) {
  const auto files = open();
  const std::string id = files->add("me", "a", "batch", "x")->id;
  EXPECT_EQ(n_on_disk(), 1);
  EXPECT_TRUE(files->remove("me", id));
  EXPECT_EQ(files->find("me", id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(n_on_disk(), 0);
}

TEST_F(StoreTest, BoundsHoldForEachOwner) {
  const auto files = open({.files = 2, .bytes = 10});
  EXPECT_THAT(files->add("me", "a", "batch", "12345678901").error().message,
              HasSubstr("at most 10 bytes"));
  ASSERT_TRUE(files->add("me", "a", "batch", "123456"));
  EXPECT_THAT(files->add("me", "b", "batch", "12345").error().message,
              HasSubstr("at most 4 bytes"));
  const auto second = files->add("me", "b", "batch", "1234");
  ASSERT_TRUE(second);
  const Error full = files->add("me", "c", "batch", "").error();
  EXPECT_EQ(full.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(full.message, HasSubstr("2 files"));
  EXPECT_TRUE(files->add("you", "a", "batch", "1234567890"));
  EXPECT_TRUE(files->remove("me", second->id));
  EXPECT_TRUE(files->add("me", "c", "batch", "1234"));
  EXPECT_EQ(n_on_disk(), 3);
}

TEST_F(StoreTest, WhatADiskCannotHoldIsNotKept) {
  const auto files = open();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const auto added = files->add("me", "a", "batch", std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kIo);
  EXPECT_EQ(n_on_disk(), 0);
  EXPECT_THAT(names(*files, "me"), ElementsAre());
  EXPECT_TRUE(files->add("me", "a", "batch", std::string(10000, 'x')));
}

TEST_F(StoreTest, ADatabaseThatCannotGrowKeepsNothing) {
  const auto files = open();
  ASSERT_TRUE(files->store().database().run("PRAGMA max_page_count = 1"));  // as many as it has
  Result<StoredFile> added;
  for (int i = 0; i < 2000 && added; ++i)
    added = files->add("me", std::string(500, 'n'), "batch", "x");
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kIo);
  EXPECT_EQ(n_on_disk(), names(*files, "me").size());
  ASSERT_TRUE(files->store().database().run("PRAGMA max_page_count = 100000"));
  EXPECT_TRUE(files->add("me", "a", "batch", "x"));
}

TEST_F(StoreTest, LeftoversOfAKilledProcessArePutAside) {
  const std::string id = open()->add("me", "a", "batch", "x")->id;
  for (const char* half : {"first", "second"}) {  // of one name: neither takes the other's place
    std::ofstream(folder_ / "files" / "file-0123") << half;
    const auto files = open();
    EXPECT_EQ(n_on_disk(), 1);
    EXPECT_TRUE(files->find("me", id));
  }
  EXPECT_EQ(*read_regular_file(folder_ / "quarantine" / "file-0123", 100), "first");
  EXPECT_EQ(*read_regular_file(folder_ / "quarantine" / "file-0123.1", 100), "second");
}

// Nothing is deleted for want of a database, whatever became of it.
TEST_F(StoreTest, FilesOutliveTheirDatabase) {
  const std::string id = open()->add("me", "a", "batch", "content")->id;
  const auto database = folder_ / "penstock.db", aside = folder_ / "quarantine" / id;
  const std::function<void()> losses[] = {
      [&] { std::filesystem::remove(database); }, [&] { std::ofstream(database, std::ios::trunc); },
      [&] { sql("DELETE FROM files"); },  // an older copy
  };
  for (const auto& lose : losses) {
    lose();
    testing::internal::CaptureStderr();
    EXPECT_EQ(open()->find("me", id).error().code, ErrorCode::kNotFound);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("moved to " + (folder_ / "quarantine").string()));
    EXPECT_EQ(n_on_disk(), 0);
    EXPECT_EQ(*read_regular_file(aside, 100), "content");
    std::filesystem::rename(aside, folder_ / "files" / id);
  }
}

TEST_F(StoreTest, TheLogOfAnEmptiedDatabaseIsKept) {
  open();
  std::ofstream(folder_ / "penstock.db", std::ios::trunc);
  std::ofstream(folder_ / "penstock.db-wal") << "the last changes";
  open();
  EXPECT_EQ(*read_regular_file(folder_ / "quarantine" / "penstock.db-wal", 100),
            "the last changes");
}

TEST_F(StoreTest, ADatabaseThatIsNoFileIsRefusedAtOnce) {
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(mkfifo((folder_ / "penstock.db").c_str(), 0600), 0);
  EXPECT_THAT(open_error().message, HasSubstr("expected a regular file, got a FIFO"));
}

TEST_F(StoreTest, AContentThatIsShorterThanItWasIsAnError) {
  const auto files = open();
  const StoredFile file = *files->add("me", "a", "batch", "abcdef");
  std::filesystem::resize_file(folder_ / "files" / file.id, 3);
  const Error error = files->read(file, 0, 100).error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
  EXPECT_THAT(error.message, HasSubstr("expected 6 bytes, got 3"));
}

TEST_F(StoreTest, OneProcessHasTheFolder) {
  const auto files = open();
  EXPECT_THAT(open_error().message, HasSubstr("another process"));
}

TEST_F(StoreTest, ANewerStoreIsRefusedAndLeftAlone) {
  open();
  const std::string version = sql_on(folder_, "PRAGMA user_version");
  sql("PRAGMA user_version = 99");
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("got 99"));
  sql_on(folder_, "PRAGMA user_version = " + version);
  open();
}

TEST_F(StoreTest, AnotherProgramsDatabaseIsRefused) {
  std::filesystem::create_directories(folder_);
  sql("CREATE TABLE bookmarks (id INTEGER)");
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
  EXPECT_THAT(error.message, HasSubstr("another program"));
}

TEST_F(StoreTest, DamageIsFoundAtTheStart) {
  {
    const auto files = open();
    for (int i = 0; i < 200; ++i)
      ASSERT_TRUE(files->add("me", std::string(300, 'n'), "batch", "x"));
  }
  const auto path = folder_ / "penstock.db";
  const auto size = std::filesystem::file_size(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(size - 8192, '\x5a');
  }
  EXPECT_EQ(open_error().code, ErrorCode::kCorruptFile);
  std::ofstream(path, std::ios::trunc) << std::string(5000, 'x');
  EXPECT_EQ(open_error().code, ErrorCode::kCorruptFile);
}

TEST_F(StoreTest, AnOlderStoreIsBroughtUp) {
  std::filesystem::create_directories(folder_);
  const auto path = folder_ / "two.db";
  const char* const schema[] = {"CREATE TABLE a (x INTEGER)",
                                "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7",
                                "CREATE TABLE broken (", "CREATE TABLE c (x INTEGER)"};
  {
    const auto first = Database::open(path, std::span(schema, 1));
    ASSERT_TRUE(first);
    ASSERT_TRUE((*first)->run("INSERT INTO a VALUES (?1)", {int64_t{5}}));
  }
  EXPECT_FALSE(Database::open(path, std::span(schema, 3)));  // and nothing of it has happened
  const auto second = Database::open(path, std::span(schema, 2));
  ASSERT_TRUE(second) << second.error().message;
  int64_t sum = 0;
  ASSERT_TRUE((*second)->run("SELECT x + y FROM a", {},
                             [&](const DatabaseRow& row) { sum = row.integer(0); }));
  EXPECT_EQ(sum, 12);
}

TEST_F(StoreTest, OwnersAreTheSameInEveryRunAndDoNotTellTheKey) {
  const std::string owner = open()->store().owner_of("sk-1");
  const auto files = open();
  EXPECT_EQ(files->store().owner_of("sk-1"), owner);
  EXPECT_NE(files->store().owner_of("sk-2"), owner);
  EXPECT_EQ(files->store().owner_of(""), "");
  EXPECT_EQ(owner.size(), 64);
}

}  // namespace
}  // namespace penstock
