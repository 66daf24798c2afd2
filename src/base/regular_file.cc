#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file_error.h"

namespace penstock {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a device";
}

Status check_mode(const std::filesystem::path& path, int failed, const struct stat& info) {
  if (failed != 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    return errorf(absent ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path.string(),
                  std::strerror(error));
  }
  if (S_ISREG(info.st_mode)) return {};
  return errorf(ErrorCode::kIo, "{}: expected a regular file, got {}", path.string(),
                kind_of(info.st_mode));
}

// Reads up to n bytes, fewer only at the end; -1 sets errno.
ssize_t read_some(int file, char* to, size_t n) {
  ssize_t got = 0;
  do {
    got = ::read(file, to, n);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

Status check_regular_file(const std::filesystem::path& path) {
  struct stat info{};
  return check_mode(path, ::stat(path.c_str(), &info), info);
}

Result<FileDescriptor> open_regular_file(const std::filesystem::path& path) {
  RETURN_IF_ERROR(check_regular_file(path));
  // O_NONBLOCK and a second check: the file may have been replaced meanwhile.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info{};
  const int failed = file.number() < 0 ? -1 : ::fstat(file.number(), &info);
  RETURN_IF_ERROR(check_mode(path, failed, info));
  return file;
}

Result<std::string> read_regular_file(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file, open_regular_file(path));
  struct stat info{};
  const size_t size = ::fstat(file.number(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
  const auto failed = [&] {
    return errorf(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
  };
  const auto too_long = [&](size_t bytes) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected at most {} bytes, got {}", path.string(),
                  max_bytes, bytes);
  };
  if (size > max_bytes) return too_long(size);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read_some(file.number(), text.data() + done, size - done);
    if (n < 0) return failed();
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  // The content counts, which may be longer than the file's size; more room is taken only then.
  for (std::array<char, 4096> piece;;) {
    const ssize_t n = read_some(file.number(), piece.data(), piece.size());
    if (n < 0) return failed();
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
    if (text.size() > max_bytes) return too_long(text.size());
  }
}

Result<FileDescriptor> create_fresh_file(const std::filesystem::path& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return errorf(ErrorCode::kIo,
                    "{}: expected nothing, or a file that an earlier run left, got {}",
                    path.string(), kind_of(info.st_mode));
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return errorf(file_error(errno), "{}: {}", path.string(), std::strerror(errno));
  }
  FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.number() < 0)
    return errorf(file_error(errno), "{}: {}", path.string(), std::strerror(errno));
  return file;
}

bool begins_with(const std::filesystem::path& path, std::string_view magic) {
  const auto file = open_regular_file(path);
  if (!file) return false;
  std::string first(magic.size(), '\0');
  const ssize_t n = read_some(file->number(), first.data(), first.size());
  return n == 0 || (n > 0 && first == magic);
}

std::streambuf::int_type FileStream::Buffer::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  const ssize_t n = read_some(file_.number(), bytes_.data(), bytes_.size());
  if (n <= 0) return traits_type::eof();
  end_ += n;
  setg(bytes_.data(), bytes_.data(), bytes_.data() + n);
  return traits_type::to_int_type(bytes_[0]);
}

std::streambuf::pos_type FileStream::Buffer::seekoff(off_type offset, std::ios_base::seekdir from,
                                                     std::ios_base::openmode which) {
  if (from == std::ios_base::beg) return seekpos(offset, which);
  if (from == std::ios_base::cur && offset == 0) return end_ - (egptr() - gptr());
  return off_type(-1);
}

std::streambuf::pos_type FileStream::Buffer::seekpos(pos_type place, std::ios_base::openmode) {
  end_ = ::lseek(file_.number(), place, SEEK_SET);
  setg(nullptr, nullptr, nullptr);
  return end_;
}

}  // namespace penstock
