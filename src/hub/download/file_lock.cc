#include "hub/download/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {

Result<std::optional<FileLock>> FileLock::try_lock(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  // O_NOFOLLOW: in a cache that others can write to, a link could make this create any file.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0664);
  if (fd < 0) return errorf(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 ||
      (errno != EWOULDBLOCK && errno != EACCES && errno != EINTR))
    return lock;
  return std::nullopt;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace penstock
