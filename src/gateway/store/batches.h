// The batches of /v1/batches: a row of the database each, and while one runs two files that its results are appended to.
//
// A result is synced before it is counted. Killed at any moment, the next process finds every result that was acknowledged, goes
// on with the lines that have none, and writes none twice: what it may do again is the work of lines that were under way.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gateway/store/files.h"

namespace penstock {

enum class BatchStatus : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,  // validation found errors
  kExpired,
  kCancelling,
  kCancelled,
};
inline constexpr int kNumBatchStatuses = 8;
const char* name_of(BatchStatus status);  // "in_progress", …

struct StoredBatch {
  std::string id, owner;
  std::string key,
      payer;  // ids of its API key: for what it may use ("" of one that may use all), for what it pays
  std::string endpoint, input_file;
  std::string window;                   // as the client said it: "24h"
  std::string metadata, errors;         // JSON texts, "" = none
  std::string output_file, error_file;  // ids, "" = none
  BatchStatus status = BatchStatus::kValidating;
  int64_t created = 0, expires = 0;                // unix time, seconds
  std::array<int64_t, kNumBatchStatuses> since{};  // when it came to each status, 0 = never
  int64_t total = 0, completed = 0, failed = 0;    // lines

  bool ended() const {
    return status == BatchStatus::kCompleted || status == BatchStatus::kFailed ||
           status == BatchStatus::kExpired || status == BatchStatus::kCancelled;
  }
};

// Of one batch that runs: lines of JSON. One thread.
class BatchResults {
 public:
  // Reads what there is already; half a line at an end is cut off. Both may be the same file, which one process has at a
  // time. Errors: kIo, kCorruptFile.
  static Result<std::unique_ptr<BatchResults>> open(const std::filesystem::path& completed,
                                                    const std::filesystem::path& failed);
  ~BatchResults();

  bool has(const std::string& custom_id) const { return done_.contains(custom_id); }
  const std::unordered_set<std::string>& done() const { return done_; }
  int64_t n_completed() const { return n_[0]; }
  int64_t n_failed() const { return n_[1]; }
  // line: without its end. A killed process leaves it, a power cut after sync() too. Errors: kIo; then nothing of it is
  // there.
  Status append(bool failed, const std::string& custom_id, std::string line);
  // All lines so far are on the disk when it returns. Error: kIo.
  Status sync();
  // Where the lines are: completed, failed.
  const std::filesystem::path& path(bool failed) const { return files_[failed ? last_ : 0].path; }

 private:
  struct File {
    std::filesystem::path path;
    int descriptor = -1;
    int64_t bytes = 0;
    bool dirty = false;
  };
  BatchResults() = default;
  Status read(File& file);
  Status take(const File& file, std::string_view line, size_t place);

  std::array<File, 2> files_;
  size_t last_ = 1;  // the file of those that failed
  std::array<int64_t, 2> n_{};
  std::unordered_set<std::string> done_;
};

// Any thread. Another owner's batch is kNotFound like one that never was.
class StoredBatches {
 public:
  static constexpr int64_t kMostUnfinished = 100;  // of one owner

  // Errors: of the store.
  static Result<std::unique_ptr<StoredBatches>> open(StoredFiles& files);

  // Errors: kNotFound, the input file; kResourceExhausted, too many unfinished ones.
  Result<StoredBatch> add(StoredBatch batch, int64_t window_seconds);
  Result<StoredBatch> find(const std::string& owner, const std::string& id);
  // At most `limit`, newest first. `after`: an id. Error: kNotFound, after.
  Result<std::vector<StoredBatch>> list(const std::string& owner, const std::string& after, int64_t limit,
                                        bool& more);
  // Those that have not ended, oldest first.
  Result<std::vector<StoredBatch>> unfinished();
  // From validating and in_progress to cancelling. Errors: kNotFound; kInvalidArgument, it has another status.
  Result<StoredBatch> cancel(const std::string& owner, const std::string& id);

  // The input as it was uploaded. Errors: kNotFound, kIo.
  Result<std::string> input_of(const StoredBatch& batch);
  Result<std::unique_ptr<BatchResults>> results_of(const StoredBatch& batch);
  // Writes status, counts and errors; `status` counts from now. From kCancelling only an end is taken: false when the batch
  // was cancelled meanwhile, and `batch` says so.
  Result<bool> update(StoredBatch& batch, BatchStatus status);
  // The same, of an end: what was written becomes the owner's output and error files.
  Status finish(StoredBatch& batch, BatchStatus status, BatchResults& results);

 private:
  explicit StoredBatches(StoredFiles& files) : files_(files) {}
  Database& database() { return files_.store().database(); }
  std::filesystem::path stem_of(const std::string& id) { return files_.store().folder() / "batches" / id; }
  Status clear(const std::filesystem::path& folder);
  Status write(const StoredBatch& batch);
  Status change(StoredBatch& batch, BatchStatus status, bool& taken);  // inside a transaction

  StoredFiles& files_;
};

}  // namespace penstock
