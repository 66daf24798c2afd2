// A nameless file from which experts are mapped: the system keeps those in memory that are used and
// drops others, so that a model may be larger than memory. The file is deleted with the last weight
// in it. Not thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "ops/ops.h"

namespace penstock {

class ExpertFile {
 public:
  // Creates the file, and the folder if it does not exist. Error: as file_error().
  static Result<std::unique_ptr<ExpertFile>> create(const std::filesystem::path& folder);
  ~ExpertFile();
  ExpertFile(const ExpertFile&) = delete;
  ExpertFile& operator=(const ExpertFile&) = delete;

  // Moves the weight's data to the file; it may be read after finish(). REQUIRES:
  // ops.restores_in_place(). Errors: kIo (the disk fails), kResourceExhausted (the disk is full, or
  // no address range is free).
  Result<std::unique_ptr<Weight>> move(std::unique_ptr<Weight> weight, Ops& ops);
  // Flushes the file to disk, so that every page can be dropped. Error: as file_error().
  Status finish();
  int64_t bytes() const { return end_; }

 private:
  ExpertFile(int file, std::filesystem::path folder) : file_(file), folder_(std::move(folder)) {}
  Status append(std::span<const std::byte> bytes);
  Status make_room(size_t bytes);
  Status write_chunk();

  struct Map;
  int file_;
  std::filesystem::path folder_;
  // of the file from first_ on, up to its largest size
  std::shared_ptr<const Map> map_;
  int64_t first_ = 0;
  int64_t end_ = 0;               // size of the file and of the pending chunk
  std::vector<std::byte> chunk_;  // not written yet
  int64_t written_ = 0;
  int64_t clean_ = 0;  // end of what has been flushed
};

// Returns the folder for the file: that of `packed_cache`, else the user's cache folder, as
// packed_cache_folder() does. Errors: likewise.
Result<std::filesystem::path> expert_folder(const std::string& packed_cache);

}  // namespace penstock
