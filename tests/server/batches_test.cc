#include "server/batches/store/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "server/old_stores.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class BatchesTest : public testing::Test {
 protected:
  BatchesTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("batches-{}-{}", getpid(), counter_++)) {}
  ~BatchesTest() override { std::filesystem::remove_all(folder_); }

  void open() {
    batches_.reset();
    files_.reset();
    auto store = Store::open(folder_);
    ASSERT_TRUE(store) << store.error().message;
    files_ = StoredFiles::open(std::move(*store), file_limits_).value();
    auto batches = StoredBatches::open(*files_, limits_);
    ASSERT_TRUE(batches) << batches.error().message;
    batches_ = std::move(*batches);
  }
  StoredBatch add(const std::string& owner = "me") {
    StoredBatch batch;
    batch.owner = owner;
    batch.endpoint = "/v1/completions";
    batch.window = "24h";
    batch.input_file = files_->add(owner, "in.jsonl", "batch", "{}\n").value().id;
    return batches_->add(batch, 86400).value();
  }
  std::string content_of(const std::string& id) {
    const StoredFile file = files_->find("me", id).value();
    return files_->read(file, 0, file.bytes).value();
  }

  const std::filesystem::path folder_;
  std::unique_ptr<StoredFiles> files_;
  std::unique_ptr<StoredBatches> batches_;
  BatchLimits limits_;
  FileLimits file_limits_;

 private:
  static inline int counter_ = 0;
};

TEST_F(BatchesTest, WhatIsWrittenIsThereAfterwards) {
  open();
  StoredBatch batch = add();
  EXPECT_EQ(batch.expires, batch.created + 86400);
  batch.total = 7;
  ASSERT_TRUE(batches_->update(batch, BatchStatus::kInProgress).value());
  open();
  const StoredBatch found = batches_->find("me", batch.id).value();
  EXPECT_EQ(found.status, BatchStatus::kInProgress);
  EXPECT_EQ(found.total, 7);
  EXPECT_EQ(found.since, batch.since);
  EXPECT_EQ(found.endpoint, "/v1/completions");
  EXPECT_EQ(batches_->find("you", batch.id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(batches_->unfinished().value().size(), 1u);
}

TEST_F(BatchesTest, ResultsGoOnWhereTheyWereSynced) {
  open();
  const StoredBatch batch = add();
  {
    auto results = batches_->results_of(batch).value();
    ASSERT_TRUE(results->append(false, "a", R"({"custom_id":"a"})"));
    ASSERT_TRUE(results->append(true, "b", R"({"custom_id":"b"})"));
    std::ofstream(results->path(false), std::ios::app) << R"({"custom_id":"half)";
  }
  auto results = batches_->results_of(batch).value();
  EXPECT_TRUE(results->has("a"));
  EXPECT_TRUE(results->has("b"));
  EXPECT_FALSE(results->has("half"));
  EXPECT_EQ(results->n_completed(), 1);
  EXPECT_EQ(results->n_failed(), 1);
  ASSERT_TRUE(results->append(false, "c", R"({"custom_id":"c"})"));
  std::stringstream text;
  text << std::ifstream(results->path(false)).rdbuf();
  EXPECT_EQ(text.str(), "{\"custom_id\":\"a\"}\n{\"custom_id\":\"c\"}\n");
  EXPECT_EQ(batches_->results_of(batch).error().code, ErrorCode::kIo);  // one at a time
  std::ofstream(results->path(true), std::ios::app) << "what\n";
  results.reset();
  const auto damaged = batches_->results_of(batch);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(damaged.error().message, HasSubstr("byte 18"));
}

// A power failure may leave NUL bytes where a line was to be.
TEST_F(BatchesTest, BytesThatWereNotWrittenAreCutOff) {
  open();
  const StoredBatch batch = add();
  const std::string nuls(5000, '\0');
  for (const std::string& tail :
       {nuls, R"({"custom_id":"half)" + nuls, nuls + R"({"custom_id":"half)"}) {
    for (const char* head : {"", "{\"custom_id\":\"a\"}\n"}) {
      auto results = batches_->results_of(batch).value();
      const std::filesystem::path path = results->path(false);
      results.reset();
      std::ofstream(path, std::ios::binary) << head << tail;
      auto opened = batches_->results_of(batch);
      ASSERT_TRUE(opened) << opened.error().message;
      EXPECT_EQ((*opened)->has("a"), *head != '\0');
      ASSERT_TRUE((*opened)->append(false, "c", R"({"custom_id":"c"})"));
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      EXPECT_EQ(text.str(), head + std::string("{\"custom_id\":\"c\"}\n"));
    }
  }
}

TEST_F(BatchesTest, AnEndMakesFilesOfTheResults) {
  open();
  StoredBatch batch = add();
  auto results = batches_->results_of(batch).value();
  ASSERT_TRUE(results->append(false, "a", R"({"custom_id":"a"})"));
  ASSERT_TRUE(batches_->finish(batch, BatchStatus::kCompleted, *results));
  EXPECT_TRUE(batch.ended());
  EXPECT_EQ(batch.completed, 1);
  EXPECT_EQ(batch.error_file, "");
  EXPECT_EQ(content_of(batch.output_file), "{\"custom_id\":\"a\"}\n");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "batches"));
  EXPECT_TRUE(batches_->unfinished().value().empty());
  open();
  EXPECT_EQ(content_of(batches_->find("me", batch.id).value().output_file),
            "{\"custom_id\":\"a\"}\n");
}

TEST_F(BatchesTest, ResultsOfNobodysBatchesArePutAside) {
  open();
  StoredBatch batch = add();
  const std::string ended = batch.id, running = add().id;
  auto results = batches_->results_of(batch).value();
  ASSERT_TRUE(batches_->finish(batch, BatchStatus::kCompleted, *results));
  for (const std::string& id : {ended, running, std::string("batch_unknown")})
    std::ofstream(folder_ / "batches" / (id + ".output.jsonl")) << id;
  open();
  // it is a file
  EXPECT_FALSE(std::filesystem::exists(folder_ / "batches" / (ended + ".output.jsonl")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "batches" / (running + ".output.jsonl")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "batches" / "batch_unknown.output.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "quarantine" / "batch_unknown.output.jsonl"));
}

TEST_F(BatchesTest, ACancelIsNotOvertaken) {
  open();
  StoredBatch batch = add();
  EXPECT_EQ(batches_->cancel("me", batch.id).value().status, BatchStatus::kCancelling);
  EXPECT_EQ(batches_->cancel("me", batch.id).value().status, BatchStatus::kCancelling);
  EXPECT_FALSE(batches_->update(batch, BatchStatus::kInProgress).value());
  EXPECT_EQ(batch.status, BatchStatus::kCancelling);
  auto results = batches_->results_of(batch).value();
  ASSERT_TRUE(batches_->finish(batch, BatchStatus::kCancelled, *results));
  EXPECT_EQ(batches_->cancel("me", batch.id).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(batches_->cancel("you", batch.id).error().code, ErrorCode::kNotFound);
}

TEST_F(BatchesTest, SoManyAtATime) {
  open();
  for (int i = 0; i < limits_.unfinished; ++i) add();
  StoredBatch one_more;
  one_more.owner = "me";
  one_more.input_file = files_->add("me", "in", "batch", "{}").value().id;
  EXPECT_EQ(batches_->add(one_more, 60).error().code, ErrorCode::kResourceExhausted);
  // Results are no input: they may be larger than uploads.
  one_more.input_file = files_->add("me", "out", "batch_output", "{}").value().id;
  EXPECT_EQ(batches_->add(one_more, 60).error().code, ErrorCode::kInvalidArgument);
  add("you");
}

// The tables as the first version made them.
TEST_F(BatchesTest, TheOldestThatHaveEndedMakeRoom) {
  limits_.ended = 3;
  open();
  const StoredBatch runs = add(), of_another = add("you");
  std::vector<std::string> ids;
  for (int i = 0; i < 6; ++i) {
    StoredBatch batch = add();
    ids.push_back(batch.id);
    ASSERT_TRUE(batches_->update(batch, BatchStatus::kFailed).value());
  }
  const StoredBatch last = add();
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(batches_->find("me", ids[i]).has_value(), i >= 3) << i;
  EXPECT_TRUE(batches_->find("me", runs.id));
  EXPECT_TRUE(batches_->find("me", last.id));
  EXPECT_TRUE(batches_->find("you", of_another.id));
}

TEST_F(BatchesTest, ResultsNeedRoomAmongTheFiles) {
  file_limits_.bytes = 10;
  open();
  const StoredBatch batch = add();  // of 3 bytes
  EXPECT_EQ(batches_->room_of("me").value(), 7);
  ASSERT_TRUE(files_->add("me", "more", "batch", "1234567"));
  EXPECT_EQ(batches_->room_of("me").value(), 0);
  auto results = batches_->results_of(batch).value();
  ASSERT_TRUE(results->append(false, "a", R"({"custom_id":"a"})"));
  EXPECT_EQ(results->n_bytes(), 18);
  StoredBatch done = batch;
  ASSERT_TRUE(batches_->finish(done, BatchStatus::kFailed, *results));
  const auto next = batches_->add(batch, 60);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(next.error().message, HasSubstr("no room for results"));
}

TEST_F(BatchesTest, AStoreWithoutBatchesIsBroughtUp) {
  sql_on(folder_, kStoreVersion1);
  sql_on(folder_, "INSERT INTO files VALUES (1, 'file-1', 'me', 'in.jsonl', 'batch', 3, 1)");
  std::ofstream(folder_ / "files" / "file-1") << "{}\n";
  open();
  EXPECT_TRUE(files_->find("me", "file-1"));
  EXPECT_EQ(batches_->find("me", add().id).value().status, BatchStatus::kValidating);
}

}  // namespace
}  // namespace penstock
