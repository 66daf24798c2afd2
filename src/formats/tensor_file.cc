#include "formats/tensor_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_error.h"
#include "base/regular_file.h"

namespace penstock {

TensorFile::TensorFile(TensorFile&& other) noexcept { *this = std::move(other); }

TensorFile& TensorFile::operator=(TensorFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  std::swap(slots_, other.slots_);
  std::swap(index_, other.index_);
  return *this;
}

TensorFile::~TensorFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code error;
  std::filesystem::remove(partial_, error);
}

Result<TensorFile> TensorFile::create(const std::filesystem::path& path, std::string_view header,
                                      std::vector<Slot> slots, uint64_t file_size) {
  TensorFile file;
  file.path_ = path;
  file.partial_ = path;
  file.partial_ += ".partial";
  ASSIGN_OR_RETURN(FileDescriptor fresh, create_fresh_file(file.partial_));
  file.fd_ = fresh.release();
  if (::ftruncate(file.fd_, static_cast<off_t>(file_size)) != 0) {
    return errorf(file_error(errno), "{}: {} bytes: {}", file.partial_.string(), file_size,
                  std::strerror(errno));
  }
  RETURN_IF_ERROR(
      file.write_at(0, reinterpret_cast<const std::byte*>(header.data()), header.size()));
  file.slots_ = std::move(slots);
  for (size_t i = 0; i < file.slots_.size(); ++i) file.index_.emplace(file.slots_[i].name, i);
  return file;
}

Status TensorFile::write_at(uint64_t offset, const std::byte* data, size_t size) const {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd_, data, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return errorf(file_error(errno), "{}: write: {}", partial_.string(), std::strerror(errno));
    data += n;
    size -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status TensorFile::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto it = index_.find(std::string(name));
  if (it == index_.end())
    return errorf(ErrorCode::kInvalidArgument, "{}: no tensor {} is due", path_.string(), name);
  Slot& slot = slots_[it->second];
  if (bytes.size() > slot.size - slot.written) {
    return errorf(ErrorCode::kInvalidArgument, "{}: tensor {}: expected {} bytes in all, got {}",
                  path_.string(), name, slot.size, slot.written + bytes.size());
  }
  RETURN_IF_ERROR(write_at(slot.offset + slot.written, bytes.data(), bytes.size()));
  slot.written += bytes.size();
  return {};
}

Status TensorFile::finish() {
  for (const Slot& slot : slots_) {
    if (slot.written != slot.size) {
      return errorf(ErrorCode::kInvalidArgument, "{}: tensor {}: expected {} bytes, got {}",
                    path_.string(), slot.name, slot.size, slot.written);
    }
  }
  const int closed = ::close(std::exchange(fd_, -1));
  std::error_code error(closed != 0 ? errno : 0, std::generic_category());
  if (!error) std::filesystem::rename(partial_, path_, error);
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
  return errorf(file_error(error.value()), "{}: {}", path_.string(), error.message());
}

}  // namespace penstock
