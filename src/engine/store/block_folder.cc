#include "engine/store/block_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

#include "base/file_error.h"
#include "base/regular_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeastBlocks = 16;  // of the largest kind, for which a folder has room

// Part of the names of unfinished files: processes in containers of their own have equal numbers.
std::string random_part() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string hex(const BlockHash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Status write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int code = n < 0 ? errno : ENOSPC;
      return errorf(file_error(code), "{}: {}", path, std::strerror(code));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

// Removes a link, a special file or an empty folder in a block's place, so that the block can be
// written again.
void remove_strange(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) ::remove(path.c_str());
}

}  // namespace

BlockFolder::BlockFolder(fs::path root, int64_t max_bytes, BlockImages images)
    : root_(std::move(root)),
      own_(root_ / hex(images.fingerprint())),
      max_bytes_(max_bytes),
      images_(std::move(images)) {}

Result<BlockFolder> BlockFolder::open(const fs::path& path, int64_t max_bytes, BlockImages images) {
  int64_t largest = 0;
  for (int g = 0; g < images.n_groups(); ++g)
    largest = std::max(largest, disk_bytes(images.bytes(g)));
  if (max_bytes / kLeastBlocks < largest) {
    return errorf(ErrorCode::kInvalidArgument,
                  "kv_store {}: expected a size of at least {} bytes, {} blocks of this model, got "
                  "{}",
                  path.string(), kLeastBlocks * largest, kLeastBlocks, max_bytes);
  }
  BlockFolder folder(path / kBlockFolder, max_bytes, std::move(images));
  std::error_code error;
  fs::create_directories(path, error);
  for (const fs::path& each : {folder.root_, folder.own_}) {
    if (mkdir(each.c_str(), 0700) != 0 && errno != EEXIST) {
      return errorf(file_error(errno), "kv_store {}: cannot make the folder: {}", each.string(),
                    std::strerror(errno));
    }
  }
  if (!fs::is_directory(folder.own_, error) || access(folder.own_.c_str(), R_OK | W_OK | X_OK) != 0)
    return errorf(ErrorCode::kIo, "kv_store {}: expected a folder to read and write",
                  folder.own_.string());
  return folder;
}

fs::path BlockFolder::folder_of(const BlockKey& key) const {
  return own_ / fmt::format("{:02x}", key.hash.high >> 56);
}

std::string BlockFolder::path_of(const BlockKey& key) const {
  return (folder_of(key) / fmt::format("{}.{}", hex(key.hash), key.group)).string();
}

bool BlockFolder::contains(const BlockKey& key) const {
  return access(path_of(key).c_str(), F_OK) == 0;
}

bool BlockFolder::touch(const BlockKey& key) const {
  return utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, 0) == 0;
}

void BlockFolder::expect(const BlockKey& key) const {
  const auto file = open_regular_file(path_of(key));
  if (file) posix_fadvise(file->number(), 0, 0, POSIX_FADV_WILLNEED);
}

Status BlockFolder::read(const BlockKey& key, std::span<const TokenId> tokens,
                         BlockImage& image) const {
  const std::string path = path_of(key);
  const Result<FileDescriptor> opened = open_regular_file(path);
  if (!opened) {
    remove_strange(path);
    return tl::unexpected(opened.error());
  }
  const FileDescriptor& file = *opened;
  const auto damaged = [&](const char* how) {
    unlink(path.c_str());
    return errorf(ErrorCode::kCorruptFile, "{}: {}: it was removed", path, how);
  };
  image.resize(static_cast<size_t>(images_.bytes(key.group)));
  struct stat info{};
  if (fstat(file.number(), &info) != 0 || info.st_size != std::ssize(image))
    return damaged("the block has another size");
  for (size_t n_read = 0; n_read < image.size();) {
    const ssize_t n = ::read(file.number(), image.data() + n_read, image.size() - n_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errorf(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
    if (n == 0) return damaged("the block is cut off");
    n_read += static_cast<size_t>(n);
  }
  if (!images_.holds(image, key, tokens)) return damaged("the block is damaged");
  futimens(file.number(), nullptr);  // how recently a file was used is the time of its change
  return {};
}

Status BlockFolder::write(const BlockKey& key, const BlockImage& image) {
  if (touch(key)) return {};
  make_room(disk_bytes(std::ssize(image)));
  return write_file(key, image);
}

void BlockFolder::make_room(int64_t bytes) {
  // what others write is seen when this process has written as much
  const int64_t step = max_bytes_ / 64;
  const bool unknown = counted_ < 0 || written_ > step;
  if (!unknown && counted_ + written_ + bytes <= max_bytes_) return;
  // Room for more than the next file, since each count reads all names.
  counted_ = prune_block_files(root_, max_bytes_ - bytes, max_bytes_ - std::max(bytes, step));
  written_ = 0;
}

Status BlockFolder::write_file(const BlockKey& key, const BlockImage& image) {
  static std::atomic<uint64_t> number = 0;
  static const std::string random = random_part();
  const fs::path folder = folder_of(key);
  const std::string path =
      (folder / fmt::format("{}.{}.{}{}", getpid(), random, number++, kUnfinishedBlock)).string();
  const auto create = [&] {
    return FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  };
  FileDescriptor file = create();
  if (file.number() < 0 && errno == ENOENT) {
    // somebody has emptied the store
    for (const fs::path& each : {root_.parent_path(), root_, own_, folder})
      mkdir(each.c_str(), 0700);
    file = create();
  }
  if (file.number() < 0) return errorf(file_error(errno), "{}: {}", path, std::strerror(errno));
  Status written = write_all(file.number(), image, path);
  if (written && rename(path.c_str(), path_of(key).c_str()) != 0)
    written = errorf(file_error(errno), "{}: {}", path, std::strerror(errno));
  if (!written) unlink(path.c_str());
  if (written) written_ += disk_bytes(std::ssize(image));
  return written;
}

}  // namespace penstock
