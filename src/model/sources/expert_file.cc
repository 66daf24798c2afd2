#include "model/sources/expert_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file_error.h"
#include "base/log.h"
#include "model/sources/packed_cache.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPage = 4096;
// Size of writes, aligned in file and map, so that file systems with large folios use huge pages
// (docs/design/kernels.md).
constexpr int64_t kChunk = int64_t{4} << 20;
constexpr int64_t kMapBytes = int64_t{1} << 30;     // of a map, unless a single weight is larger
constexpr int64_t kDirtyBytes = int64_t{64} << 20;  // written but not yet on the disk

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

tl::unexpected<Error> failed(const fs::path& folder, const std::string& what) {
  return errorf(file_error(errno), "experts_offload: folder {}: {}: {}", folder.string(), what,
                std::strerror(errno));
}

void warn_of_memory(int file, const fs::path& folder) {
  struct statfs system = {};
  if (fstatfs(file, &system) != 0) return;
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
    log().warn(
        "experts_offload: folder {} is in memory itself, so nothing is saved; packed_cache names "
        "another",
        folder.string());
  }
}

}  // namespace

struct ExpertFile::Map {
  Map(void* at, int64_t size) : begin(static_cast<std::byte*>(at)), bytes(size) {}
  ~Map() { munmap(begin, static_cast<size_t>(bytes)); }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  std::byte* begin;
  int64_t bytes;
};

Result<std::unique_ptr<ExpertFile>> ExpertFile::create(const fs::path& folder) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);  // the next call reports errors
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // fallback for file systems without unnamed files
  if (file < 0) {
    std::string name = (folder / "penstock-experts-XXXXXX").string();
    file = mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) unlink(name.c_str());
  }
  if (file < 0) return failed(folder, "no file can be made there");
  warn_of_memory(file, folder);
  return std::unique_ptr<ExpertFile>(new ExpertFile(file, folder));
}

ExpertFile::~ExpertFile() { close(file_); }

// Maps more than the current file: later writes become visible in the map.
Status ExpertFile::make_room(size_t bytes) {
  const auto n = static_cast<int64_t>(bytes);
  if (map_ != nullptr && end_ + n <= first_ + map_->bytes) return {};
  const std::vector<std::byte> to_chunk(static_cast<size_t>(round_up(end_, kChunk) - end_));
  RETURN_IF_ERROR(append(to_chunk));
  first_ = end_;
  const int64_t room = round_up(std::max(kMapBytes, n), kChunk);
  void* at = mmap(nullptr, static_cast<size_t>(room), PROT_READ, MAP_SHARED, file_, first_);
  if (at == MAP_FAILED) {
    return errorf(ErrorCode::kResourceExhausted, "experts_offload: mapping {} bytes: {}", room,
                  std::strerror(errno));
  }
  map_ = std::make_shared<const Map>(at, room);
#ifdef MADV_HUGEPAGE
  madvise(at, static_cast<size_t>(room), MADV_HUGEPAGE);
#endif
  return {};
}

Status ExpertFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), static_cast<size_t>(kChunk) - chunk_.size());
    chunk_.insert(chunk_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    end_ += static_cast<int64_t>(n);
    bytes = bytes.subspan(n);
    if (chunk_.size() == static_cast<size_t>(kChunk)) RETURN_IF_ERROR(write_chunk());
  }
  return {};
}

Status ExpertFile::write_chunk() {
  rlimit limit = {};  // exceeding RLIMIT_FSIZE would kill the process
  const auto end = static_cast<uint64_t>(written_) + chunk_.size();
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      end > limit.rlim_cur) {
    return errorf(
        ErrorCode::kResourceExhausted,
        "experts_offload: folder {}: {} bytes are more than this process may write to a file "
        "(limit {})",
        folder_.string(), end, limit.rlim_cur);
  }
  for (size_t done = 0; done < chunk_.size();) {
    const ssize_t n = pwrite(file_, chunk_.data() + done, chunk_.size() - done,
                             written_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ENOSPC;
      return failed(folder_,
                    fmt::format("writing experts, of which {} MiB are there", written_ >> 20));
    }
    done += static_cast<size_t>(n);
  }
  // Starts writeback while the next chunk is made, and waits for chunks older than kDirtyBytes,
  // since only clean pages can be dropped.
  sync_file_range(file_, written_, static_cast<off64_t>(chunk_.size()), SYNC_FILE_RANGE_WRITE);
  written_ += static_cast<int64_t>(chunk_.size());
  chunk_.clear();
#ifdef __GLIBC__
  // Returns fragmented heap memory: small objects may have split the freed memory of weights.
  if (written_ % kDirtyBytes == 0) malloc_trim(0);
#endif
  if (const int64_t old = written_ - kDirtyBytes; old > clean_) {
    sync_file_range(
        file_, clean_, old - clean_,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    clean_ = old;
  }
  return {};
}

Result<std::unique_ptr<Weight>> ExpertFile::move(std::unique_ptr<Weight> weight, Ops& ops) {
  const std::string description = ops.describe(*weight);
  const OwnedBytes stored = ops.store(*weight);
  const size_t n = stored.bytes.size();
  RETURN_IF_ERROR(make_room(n));
  const std::span<const std::byte> there(map_->begin + (end_ - first_), n);
  RETURN_IF_ERROR(append(stored.bytes));
  // Weights do not share pages.
  const std::vector<std::byte> to_page(static_cast<size_t>(round_up(end_, kPage) - end_));
  RETURN_IF_ERROR(append(to_page));
  return ops.restore({description, there}, map_);
}

Status ExpertFile::finish() {
  RETURN_IF_ERROR(write_chunk());
  chunk_.shrink_to_fit();
  if (fdatasync(file_) != 0)
    return failed(folder_, fmt::format("writing {} MiB of experts", end_ >> 20));
  return {};
}

Result<fs::path> expert_folder(const std::string& packed_cache) {
  ASSIGN_OR_RETURN(fs::path folder, packed_cache_folder(packed_cache));
  if (!folder.empty()) return folder;
  auto users = packed_cache_folder("on");
  if (users) return users;
  return make_error(
      ErrorCode::kInvalidArgument,
      "experts_offload: needs HOME or XDG_CACHE_HOME for its file; or name a folder with "
      "packed_cache");
}

}  // namespace penstock
