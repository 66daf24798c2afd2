// A lock between processes, compatible with huggingface_hub's: flock on a file that is never
// removed.
#pragma once
#include <filesystem>
#include <optional>

#include "base/result.h"

namespace penstock {

class FileLock {
 public:
  // Takes the lock without waiting; returns nullopt when another process, or another FileLock of
  // this one, holds it. Creates the file and its folder. On a file system without flock it succeeds
  // without locking, since contents are verified anyway. Errors: kIo.
  static Result<std::optional<FileLock>> try_lock(const std::filesystem::path& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace penstock
