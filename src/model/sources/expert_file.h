// Experts' weights in a file without a name, from which they are mapped: the system keeps those in memory that are used and
// drops the others, so that a model may be larger than memory. It is gone with the last of them. One thread.
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
  // Error: as file_error(), no file can be made in the folder, which is created where it is not there.
  static Result<std::unique_ptr<ExpertFile>> create(const std::filesystem::path& folder);
  ~ExpertFile();
  ExpertFile(const ExpertFile&) = delete;
  ExpertFile& operator=(const ExpertFile&) = delete;

  // The same weight, but in the file; to be read after finish(). REQUIRES: ops.restores_in_place(). Errors: kIo, the disk fails;
  // kResourceExhausted, it is full, or there are no addresses for it.
  Result<std::unique_ptr<Weight>> move(std::unique_ptr<Weight> weight, Ops& ops);
  // All is on the disk, so that any page can be dropped. Error: as file_error().
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
  std::shared_ptr<const Map> map_;  // of the file from first_ on, as far as it may come
  int64_t first_ = 0;
  int64_t end_ = 0;               // of what is in the file and in the chunk behind it
  std::vector<std::byte> chunk_;  // not written yet
  int64_t written_ = 0;
  int64_t clean_ = 0;  // up to where the disk has it
};

// The folder for it: that of `packed_cache`, else the user's cache folder, as packed_cache_folder() says. Errors: likewise.
Result<std::filesystem::path> expert_folder(const std::string& packed_cache);

}  // namespace penstock
