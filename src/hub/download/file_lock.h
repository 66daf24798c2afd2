// A lock that processes share, as the Hugging Face hub's tools take it: flock on a file that stays.
#pragma once
#include <filesystem>
#include <optional>

#include "base/result.h"

namespace penstock {

class FileLock {
 public:
  // Does not wait: nothing when another process (or another lock of this one) holds it. Makes the file and its folder. On a
  // file system without flock it holds nothing but succeeds: content is checked before it counts anyway. Errors: kIo.
  static Result<std::optional<FileLock>> try_lock(const std::filesystem::path& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace penstock
