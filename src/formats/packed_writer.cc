// Writer of files of packed weights.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/file_error.h"
#include "formats/packed_file.h"
#include "formats/packed_head.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPartSuffix = ".part";

size_t round_up(size_t n) {
  return (n + PackedFile::kAlignment - 1) / PackedFile::kAlignment * PackedFile::kAlignment;
}

tl::unexpected<Error> failed(const std::string& where, const char* what) {
  return errorf(file_error(errno), "{}: {}: {}", where, what, std::strerror(errno));
}

Status write_all(int fd, const std::string& where, std::span<const std::byte> bytes,
                 size_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(where, "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
  return {};
}

// Writes bytes and padding from `begin` on in whole chunks of the file, and records the checksum of
// each.
class ChunkWriter {
 public:
  ChunkWriter(int fd, const std::string& where, size_t begin)
      : fd_(fd), where_(where), at_(begin), sums_(begin / PackedFile::kChunk, checksum64({})) {
    chunk_.reserve(PackedFile::kChunk);
  }

  // Appends `bytes`, then zeros up to the next multiple of kAlignment.
  Status add(std::span<const std::byte> bytes) {
    size_t zeros = round_up(bytes.size()) - bytes.size();
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), room()));
      chunk_.insert(chunk_.end(), part.begin(), part.end());
      bytes = bytes.subspan(part.size());
      if (room() == 0) RETURN_IF_ERROR(flush());
    }
    // chunks end at multiples of kAlignment, so there is room
    chunk_.insert(chunk_.end(), zeros, std::byte{});
    return room() == 0 ? flush() : Status();
  }
  Status flush() {
    if (chunk_.empty()) return {};
    sums_.push_back(checksum64(chunk_));
    RETURN_IF_ERROR(write_all(fd_, where_, chunk_, at_));
    at_ += chunk_.size();
    chunk_.clear();
    return {};
  }
  const std::vector<uint64_t>& sums() const { return sums_; }

 private:
  // Returns the bytes left in the chunk that contains at_.
  size_t room() const { return PackedFile::kChunk - at_ % PackedFile::kChunk - chunk_.size(); }

  int fd_;
  const std::string& where_;
  size_t at_;  // file offset of chunk_
  std::vector<std::byte> chunk_;
  std::vector<uint64_t> sums_;
};

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

size_t n_chunks_of(size_t file_bytes) {
  return (file_bytes + PackedFile::kChunk - 1) / PackedFile::kChunk;
}

// Returns the offset of the parts: after the head, whose size depends on the number of chunks of
// the whole file.
size_t data_begin_of(size_t head_bytes_without_sums, size_t data_bytes) {
  size_t n_chunks = 0;
  for (;;) {
    const size_t begin = round_up(head_bytes_without_sums + n_chunks * sizeof(uint64_t));
    const size_t needed = n_chunks_of(begin + data_bytes);
    if (needed == n_chunks) return begin;
    n_chunks = needed;
  }
}

// Reserves space for the whole file, so that a full disk is detected before writing; on file
// systems that cannot reserve, writes detect it. Checks RLIMIT_FSIZE, since exceeding it would kill
// the process.
Status reserve(int fd, const std::string& where, size_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return errorf(ErrorCode::kResourceExhausted,
                  "{}: {} bytes are more than this process may write to a file", where, bytes);
  }
  if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      file_error(errno) == ErrorCode::kResourceExhausted)
    return failed(where, "no room");
  return {};
}

// Creates a file beside `path` that is locked while the descriptor is open. Before it is locked,
// another process may remove it as abandoned; then another one is created.
Result<int> create_part(const fs::path& path, std::string& name) {
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries; ++i) {
    name = path.string() + ".XXXXXX" + kPartSuffix;
    const int fd = mkostemps(name.data(), static_cast<int>(std::strlen(kPartSuffix)), O_CLOEXEC);
    if (fd < 0) return failed(path.string(), "cannot be created");
    // On file systems without locks, no file is treated as abandoned.
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat status = {};
    if (fstat(fd, &status) != 0 || status.st_nlink > 0) return fd;
    close(fd);
  }
  return errorf(ErrorCode::kIo, "{}: what is begun beside it was removed {} times", path.string(),
                kMostTries);
}

}  // namespace

std::vector<PartToWrite> parts_to_write(std::span<const PackedPart> parts) {
  std::vector<PartToWrite> result;
  for (const PackedPart& part : parts) {
    result.push_back({part.name, part.description, part.bytes.size(),
                      [bytes = part.bytes] { return OwnedBytes{bytes, nullptr}; }});
  }
  return result;
}

Status write_packed_parts(int fd, const std::string& where, const PackedOrigin& origin,
                          std::span<const PartToWrite> parts) {
  std::string text;
  put_text(text, origin.source);
  put_text(text, origin.form);
  size_t head_bytes = sizeof(PackedHead) + text.size(), data_bytes = 0;
  for (const PartToWrite& part : parts) {
    head_bytes += 4 * sizeof(uint64_t) + part.name.size() + part.description.size();
    data_bytes += round_up(part.n_bytes);
  }
  const size_t data_begin = data_begin_of(head_bytes, data_bytes);
  RETURN_IF_ERROR(reserve(fd, where, data_begin + data_bytes));

  ChunkWriter writer(fd, where, data_begin);
  size_t offset = data_begin;
  for (const PartToWrite& part : parts) {
    const OwnedBytes content = part.content();
    PENSTOCK_CHECK(content.bytes.size() == part.n_bytes);
    put_text(text, part.name);
    put_text(text, part.description);
    put(text, uint64_t{offset});
    put(text, uint64_t{part.n_bytes});
    offset += round_up(part.n_bytes);
    RETURN_IF_ERROR(writer.add(content.bytes));
  }
  RETURN_IF_ERROR(writer.flush());
  std::vector<uint64_t> sums = writer.sums();
  sums.resize(n_chunks_of(data_begin + data_bytes),
              checksum64({}));  // one more if there are no parts
  for (const uint64_t sum : sums) put(text, sum);
  head_bytes += sums.size() * sizeof(uint64_t);

  PackedHead head = {};
  std::memcpy(head.magic, kPackedMagic, sizeof head.magic);
  head.version = kPackedVersion;
  head.n_parts = parts.size();
  head.file_bytes = data_begin + data_bytes;
  head.head_bytes = head_bytes;
  std::string whole;
  put(whole, head);
  whole += text;
  head.checksum = checksum64(std::as_bytes(std::span(whole)).subspan(kPackedSumEnd));
  std::memcpy(whole.data(), &head, sizeof head);
  whole.resize(data_begin);
  return write_all(fd, where, std::as_bytes(std::span(whole)), 0);
}

Status write_packed_file(const fs::path& path, const PackedOrigin& origin,
                         std::span<const PackedPart> parts) {
  return write_packed_file(path, origin, parts_to_write(parts));
}

Status write_packed_file(const fs::path& path, const PackedOrigin& origin,
                         std::span<const PartToWrite> parts) {
  std::string name;
  ASSIGN_OR_RETURN(const int fd, create_part(path, name));
  Status status = write_packed_parts(fd, name, origin, parts);
  if (status && fsync(fd) != 0) status = failed(name, "fsync");
  if (status && rename(name.c_str(), path.c_str()) != 0) status = failed(name, "rename");
  if (!status) unlink(name.c_str());
  close(fd);
  if (!status) return status;
  const int folder = ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return status;
}

void remove_abandoned_parts(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != kPartSuffix || path.stem().stem().extension() != kPackedSuffix)
      continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());  // unlocked: its writer has ended
    close(fd);
  }
}

}  // namespace penstock
