#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/file_time.h"
#include "base/kept_map.h"
#include "base/regular_file.h"

namespace penstock {
namespace {

// The system reads only the start of requests beyond its window, so requests are small.
constexpr size_t kReadAtOnce = size_t{128} << 10;

struct Mapping {
  std::byte* data;
  size_t size;
  Mapping(std::byte* data, size_t size) : data(data), size(size) {}
  ~Mapping() { munmap(data, size); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

// All mappings of MappedFiles, by start address.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, std::shared_ptr<const Mapping>> all;
};

Mappings& mappings() {
  static auto* const of_process = new Mappings;  // never destroyed: files may be closed during exit
  return *of_process;
}

}  // namespace

std::shared_ptr<const void> keep_mapped(std::span<const std::byte> bytes) {
  Mappings& known = mappings();
  const std::lock_guard lock(known.mutex);
  auto found = known.all.upper_bound(bytes.data());
  if (found == known.all.begin()) return nullptr;
  const auto& mapping = (--found)->second;
  const bool inside = bytes.data() + bytes.size() <= mapping->data + mapping->size;
  return inside ? mapping : nullptr;
}

void drop_mapped(std::span<const std::byte> bytes) {
  static const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + bytes.size()) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const FileDescriptor opened, open_regular_file(path));
  struct stat info = {};
  if (fstat(opened.number(), &info) != 0)
    return errorf(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  file.stamp_ = {static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_ino),
                 nanoseconds_of(info.st_mtim)};
  if (file.size_ > 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, opened.number(), 0);
    const int error = errno;
    if (data == MAP_FAILED) {
      file.size_ = 0;
      return errorf(ErrorCode::kIo, "{}: mmap: {}", path.string(), std::strerror(error));
    }
    file.data_ = static_cast<std::byte*>(data);
    const std::lock_guard lock(mappings().mutex);
    mappings().all[file.data_] = std::make_shared<const Mapping>(file.data_, file.size_);
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
  if (data_ == nullptr) return;
  std::shared_ptr<const Mapping> last;  // destroyed, and unmapped, after the lock is released
  const std::lock_guard lock(mappings().mutex);
  last = std::move(mappings().all[data_]);
  mappings().all.erase(data_);
}

void MappedFile::drop(std::span<const std::byte> part) const { drop_mapped(part); }

void MappedFile::expect_parts() const {
  if (size_ > 0) madvise(data_, size_, MADV_RANDOM);
}

void MappedFile::read_ahead(const ByteLines& lines) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(lines.first.data() - data_);
  if (lines.first.empty()) return;
  const auto begin_of = [&](size_t line) { return (offset + line * lines.stride) / page * page; };
  const auto end_of = [&](size_t line) {
    return std::min(size_,
                    (offset + line * lines.stride + lines.first.size() + page - 1) / page * page);
  };
  for (size_t line = 0; line < lines.count;) {
    const size_t begin = begin_of(line);
    size_t end = end_of(line);
    for (++line; line < lines.count && begin_of(line) <= end; ++line) end = end_of(line);
    for (size_t at = begin; at < end; at += kReadAtOnce)
      madvise(data_ + at, std::min(kReadAtOnce, end - at), MADV_WILLNEED);
  }
}

int64_t read_missing(std::span<const std::byte> part) {
  constexpr size_t kAtOnce = 1024;  // pages
  static const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t end = (address + part.size() + kPage - 1) / kPage * kPage;
  unsigned char there[kAtOnce];
  int64_t missing = 0;
  for (uintptr_t at = address / kPage * kPage; at < end; at += kAtOnce * kPage) {
    const size_t n = std::min(kAtOnce, (end - at) / kPage);
    if (mincore(reinterpret_cast<void*>(at), n * kPage, there) != 0) return missing;
    for (size_t i = 0; i < n;) {
      const size_t first = i;
      if ((there[i++] & 1) != 0) continue;
      while (i < n && i - first < kReadAtOnce / kPage && (there[i] & 1) == 0) ++i;
      madvise(reinterpret_cast<void*>(at + first * kPage), (i - first) * kPage, MADV_WILLNEED);
      missing += static_cast<int64_t>((i - first) * kPage);
    }
  }
  return missing;
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
