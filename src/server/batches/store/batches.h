// The batches of /v1/batches: a database row for each, and two files of results for each running
// batch.
//
// A result is synced before it is counted. After a crash at any moment the next process finds every
// acknowledged result, continues with the lines that have none and writes no result twice: only the
// work of unfinished lines is repeated.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_hash.h"
#include "server/store/files.h"

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
      // Key: id of the API key whose permissions apply ("": all are granted); payer: name under
      // which use is counted.
      payer;
  std::string endpoint, input_file;
  // completion window as the client wrote it: "24h"
  std::string window;
  std::string metadata, errors;         // JSON texts, "" = none
  std::string output_file, error_file;  // ids of files, "" = none
  BatchStatus status = BatchStatus::kValidating;
  int64_t created = 0, expires = 0;  // unix time, seconds
  // unix time at which each status was entered, 0 = never
  std::array<int64_t, kNumBatchStatuses> since{};
  int64_t total = 0, completed = 0, failed = 0;  // numbers of lines

  bool ended() const {
    return status == BatchStatus::kCompleted || status == BatchStatus::kFailed ||
           status == BatchStatus::kExpired || status == BatchStatus::kCancelled;
  }
};

// The results of one running batch: lines of JSON. Not thread-safe.
class BatchResults {
 public:
  // Opens the files, which this process then has alone, and reads their results; an incomplete last
  // line is cut off, and so are NUL bytes behind the last. `completed` and `failed` may be the same file. Errors: kIo (also when another
  // process has them open), kCorruptFile.
  static Result<std::unique_ptr<BatchResults>> open(const std::filesystem::path& completed,
                                                    const std::filesystem::path& failed);
  ~BatchResults();

  bool has(const std::string& custom_id) const { return done_.contains(custom_id); }
  const TextSet& done() const { return done_; }
  int64_t n_completed() const { return n_[0]; }
  int64_t n_failed() const { return n_[1]; }
  // Appends a line, given without its line end. It survives the end of the process, and a power
  // failure after sync(). Errors: kIo; nothing of the line is written then.
  Status append(bool failed, const std::string& custom_id, std::string line);
  // Syncs all lines to disk. Errors: kIo.
  Status sync();
  // Path of the file of completed or of failed lines.
  const std::filesystem::path& path(bool failed) const { return files_[failed ? last_ : 0].path; }
  int64_t n_bytes() const { return files_[0].bytes + files_[1].bytes; }

 private:
  struct File {
    std::filesystem::path path;
    int descriptor = -1;
    int64_t bytes = 0;
    bool dirty = false;
    bool ragged = false;  // behind the last line is the beginning of one, which trim() cuts off
  };
  BatchResults() = default;
  Status read(File& file);
  bool may_begin_result(const File& file, std::string_view line) const;
  static Status trim(File& file);
  Status take(const File& file, std::string_view line, size_t place);

  std::array<File, 2> files_;
  // index into files_ of the file for failed lines
  size_t last_ = 1;
  std::array<int64_t, 2> n_{};
  TextSet done_;
};

// Batches of one owner.
struct BatchLimits {
  int64_t unfinished = 100;
  int64_t ended = 1000;  // the oldest make room for new ones; their files stay
};

// Thread-safe. Another owner's batch is kNotFound, like one that does not exist.
class StoredBatches {
 public:
  // Errors: those of the store.
  static Result<std::unique_ptr<StoredBatches>> open(StoredFiles& files, BatchLimits limits = {});

  // Errors: kNotFound (the input file); kInvalidArgument (the owner's files have no room for
  // results); kResourceExhausted (the owner has too many unfinished batches).
  Result<StoredBatch> add(StoredBatch batch, int64_t window_seconds);
  Result<StoredBatch> find(const std::string& owner, const std::string& id);
  // Returns at most `limit` batches, newest first, starting after the id `after`; `more`: there are
  // further ones. Errors: kNotFound (after).
  Result<std::vector<StoredBatch>> list(const std::string& owner, const std::string& after,
                                        int64_t limit, bool& more);
  // Returns all batches that have not ended, oldest first.
  Result<std::vector<StoredBatch>> unfinished();
  // Moves a batch from validating or in_progress to cancelling. Errors: kNotFound;
  // kInvalidArgument, when it has another status.
  Result<StoredBatch> cancel(const std::string& owner, const std::string& id);

  // Returns the input file as it was uploaded. Errors: kNotFound, kIo.
  Result<std::string> input_of(const StoredBatch& batch);
  Result<std::unique_ptr<BatchResults>> results_of(const StoredBatch& batch);
  // Bytes that results of the owner's batches may have, by the limit of its files.
  Result<int64_t> room_of(const std::string& owner) { return files_.left_of(owner); }
  // Writes the batch's counts and errors and moves it to `status` now. Returns false when the batch
  // has been cancelled meanwhile and `status` is no end: `batch` then has the status kCancelling.
  Result<bool> update(StoredBatch& batch, BatchStatus status);
  // Moves a batch to a final status and makes the results the owner's output and error files.
  Status finish(StoredBatch& batch, BatchStatus status, BatchResults& results);

 private:
  StoredBatches(StoredFiles& files, BatchLimits limits) : files_(files), limits_(limits) {}
  Status check_room(const std::string& owner);
  Database& database() { return files_.store().database(); }
  std::filesystem::path stem_of(const std::string& id) {
    return files_.store().folder() / "batches" / id;
  }
  Status clear(const std::filesystem::path& folder);
  Status write(const StoredBatch& batch);
  Status change(StoredBatch& batch, BatchStatus status, bool& taken);  // REQUIRES: a transaction

  StoredFiles& files_;
  const BatchLimits limits_;
};

}  // namespace penstock
