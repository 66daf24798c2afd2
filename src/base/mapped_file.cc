#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    return errorf(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path.string(),
                  std::strerror(error));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return errorf(ErrorCode::kIo, "{}: not a regular file", path.string());
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  file.stamp_ = {static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_ino),
                 int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
  if (file.size_ > 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (data == MAP_FAILED) {
      file.size_ = 0;
      return errorf(ErrorCode::kIo, "{}: mmap: {}", path.string(), std::strerror(error));
    }
    file.data_ = static_cast<std::byte*>(data);
  } else {
    ::close(fd);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

void MappedFile::drop(std::span<const std::byte> part) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + part.size()) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::expect_parts() const {
  if (size_ > 0) madvise(data_, size_, MADV_RANDOM);
}

// Of more than its window the system reads the beginning only, so it is asked for less at a time.
void MappedFile::read_ahead(const ByteLines& lines) const {
  constexpr size_t kAtOnce = size_t{128} << 10;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(lines.first.data() - data_);
  if (lines.first.empty()) return;
  const auto begin_of = [&](size_t line) { return (offset + line * lines.stride) / page * page; };
  const auto end_of = [&](size_t line) {
    return std::min(size_, (offset + line * lines.stride + lines.first.size() + page - 1) / page * page);
  };
  for (size_t line = 0; line < lines.count;) {
    const size_t begin = begin_of(line);
    size_t end = end_of(line);
    for (++line; line < lines.count && begin_of(line) <= end; ++line) end = end_of(line);
    for (size_t at = begin; at < end; at += kAtOnce)
      madvise(data_ + at, std::min(kAtOnce, end - at), MADV_WILLNEED);
  }
}

void MappedFile::populate(std::span<const std::byte> part) const {
#ifdef MADV_POPULATE_READ  // Linux 5.14; a kernel without it maps pages as they are touched
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(part.data() - data_) / page * page;
  const size_t end = static_cast<size_t>(part.data() - data_) + part.size();
  if (begin < end) madvise(data_ + begin, end - begin, MADV_POPULATE_READ);
#else
  (void)part;
#endif
}

}  // namespace penstock
