#include "hub/download/partial_blob.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/file_error.h"
#include "base/regular_file.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kContent = ".penstock.incomplete";
constexpr const char* kRanges = ".penstock.ranges";
constexpr size_t kMaxRangesBytes = size_t{1} << 20;

tl::unexpected<Error> system_error(const fs::path& path, const char* what, int error) {
  return errorf(file_error(error), "{}: {}: {}", path.string(), what, std::strerror(error));
}

int64_t size_of(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_size) : -1;
}

}  // namespace

PartialBlob::PartialBlob(fs::path blob, int64_t size, Checksum checksum)
    : blob_(std::move(blob)),
      size_(size),
      checksum_(std::move(checksum)),
      digest_(Digest(checksum_.kind, size)) {}

PartialBlob::PartialBlob(PartialBlob&& other) noexcept
    : blob_(std::move(other.blob_)),
      size_(other.size_),
      checksum_(std::move(other.checksum_)),
      fd_(std::exchange(other.fd_, -1)),
      received_(std::move(other.received_)),
      digest_(std::move(other.digest_)),
      n_hashed_(other.n_hashed_),
      resumed_(other.resumed_),
      n_kept_(other.n_kept_),
      kept_at_(other.kept_at_) {}

PartialBlob::~PartialBlob() {
  if (fd_ < 0) return;
  keep(true);
  ::close(fd_);
}

fs::path PartialBlob::with_suffix(const char* suffix) const {
  fs::path path = blob_;
  path += suffix;
  return path;
}

Result<PartialBlob> PartialBlob::open(const fs::path& path, int64_t size, Checksum checksum) {
  PartialBlob blob(path, size, std::move(checksum));
  const fs::path content = blob.with_suffix(kContent);
  std::error_code error;
  // A file of older hub tools, which has bytes from the start without gaps.
  const fs::path plain = blob.with_suffix(".incomplete");
  const bool adopted =
      !fs::exists(content, error) && fs::is_regular_file(fs::symlink_status(plain, error));
  if (adopted) fs::rename(plain, content, error);
  blob.fd_ = ::open(content.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (blob.fd_ < 0) return system_error(content, "open", errno);
  const int64_t length = size_of(blob.fd_);
  if (adopted && !error && length <= size) {
    blob.received_.add({0, length});
  } else if (length == size) {
    blob.read_ranges();
  }
  blob.resumed_ = blob.received_.total() > 0;
  if (!blob.resumed_ && ::ftruncate(blob.fd_, 0) != 0)
    return system_error(content, "truncate", errno);
  RETURN_IF_ERROR(blob.reserve_space());
  return blob;
}

Status PartialBlob::reserve_space() const {
  const fs::path content = with_suffix(kContent);
  if (size_ > 0 && ::fallocate(fd_, 0, 0, size_) != 0) {
    // Not supported by some file systems, on which a later write may find the disk full.
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
      const int error = errno;
      std::error_code ignored;
      const fs::space_info space = fs::space(content.parent_path(), ignored);
      return system_error(
          content, fmt::format("{} bytes, {} free", size_, ignored ? 0 : space.available).c_str(),
          error);
    }
  }
  if (::ftruncate(fd_, size_) != 0) return system_error(content, "truncate", errno);
  return {};
}

// Reads lines "SIZE" and "BEGIN END". Malformed content counts as no ranges.
void PartialBlob::read_ranges() {
  const auto text = read_regular_file(with_suffix(kRanges), kMaxRangesBytes);
  if (!text) return;
  std::istringstream lines(*text);
  int64_t size = 0;
  if (!(lines >> size) || size != size_) return;
  RangeSet ranges;
  for (ByteRange range; lines >> range.begin >> range.end;) {
    if (range.begin < 0 || range.begin > range.end || range.end > size_) return;
    ranges.add(range);
  }
  received_ = std::move(ranges);
}

void PartialBlob::keep(bool now) {
  const auto time = std::chrono::steady_clock::now();
  if (received_.total() == n_kept_ || (!now && time - kept_at_ < std::chrono::seconds(1))) return;
  kept_at_ = time;
  n_kept_ = received_.total();
  fs::path temporary = with_suffix(kRanges);
  temporary += ".tmp";
  std::error_code error;
  fs::remove(temporary, error);
  std::ofstream file(temporary);
  file << size_ << "\n";
  for (const ByteRange& range : received_.ranges()) file << range.begin << " " << range.end << "\n";
  file.close();
  if (file) fs::rename(temporary, with_suffix(kRanges), error);
}

Status PartialBlob::write(int64_t offset, std::span<const std::byte> data) {
  for (size_t done = 0; done < data.size();) {
    const ssize_t n = ::pwrite(fd_, data.data() + done, data.size() - done,
                               static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(with_suffix(kContent), "write", n < 0 ? errno : ENOSPC);
    received_.add({offset + static_cast<int64_t>(done), offset + static_cast<int64_t>(done) + n});
    done += static_cast<size_t>(n);
  }
  return {};
}

Status PartialBlob::restart() {
  received_ = RangeSet();
  digest_ = Digest(checksum_.kind, size_);
  n_hashed_ = 0;
  resumed_ = false;
  keep(true);
  return {};
}

void PartialBlob::discard() {
  ::close(std::exchange(fd_, -1));
  std::error_code ignored;
  fs::remove(with_suffix(kContent), ignored);
  fs::remove(with_suffix(kRanges), ignored);
}

Result<bool> PartialBlob::hash_some(int64_t max_bytes) {
  if (checksum_.kind == Checksum::Kind::kNone) return true;
  std::array<std::byte, 256 * 1024> buffer;
  for (const int64_t stop = std::min(received_.prefix(), n_hashed_ + max_bytes);
       n_hashed_ < stop;) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(stop - n_hashed_, buffer.size()));
    const ssize_t n = ::pread(fd_, buffer.data(), wanted, static_cast<off_t>(n_hashed_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(with_suffix(kContent), "read", n < 0 ? errno : EIO);
    digest_->update(std::span(buffer).first(static_cast<size_t>(n)));
    n_hashed_ += n;
  }
  return n_hashed_ == received_.prefix();
}

Status PartialBlob::finish() {
  const std::string hex = digest_->hex();
  const fs::path content = with_suffix(kContent);
  if (hex != checksum_.hex) {
    RETURN_IF_ERROR(restart());
    return errorf(ErrorCode::kCorruptFile, "expected {} {}, got {}",
                  checksum_.kind == Checksum::Kind::kSha256 ? "SHA-256" : "git's SHA-1",
                  checksum_.hex, hex);
  }
  // After a power failure, the final name must not exist without the content.
  if (::fdatasync(fd_) != 0) return system_error(content, "sync", errno);
  if (::rename(content.c_str(), blob_.c_str()) != 0) return system_error(blob_, "rename", errno);
  ::close(std::exchange(fd_, -1));
  std::error_code ignored;
  fs::remove(with_suffix(kRanges), ignored);
  return {};
}

}  // namespace penstock
