#include "formats/mapped_source.h"

#include <cstring>

#include "base/memory.h"
#include "base/regular_file.h"

namespace penstock {

namespace {

constexpr size_t kMaxSideFileBytes = size_t{1} << 30;
constexpr size_t kMaxCopiedBytes = size_t{16} << 30;

Status check_fetched(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (bytes.size() >= kPointer.size() && bytes.size() < 1024 &&
      std::memcmp(bytes.data(), kPointer.data(), kPointer.size()) == 0)
    return errorf(ErrorCode::kCorruptFile,
                  "{}: a pointer of Git LFS, not the file itself: fetch that with git lfs pull",
                  path.string());
  return {};
}

}  // namespace

const TensorInfo* WeightSource::find(std::string_view name) const {
  for (const TensorInfo& tensor : tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const TensorInfo* MappedSource::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::optional<std::string> MappedSource::side_file(std::string_view name) const {
  const bool leaves = name.starts_with('/') || name.find("..") != std::string_view::npos;
  if (side_directory_.empty() || leaves) return std::nullopt;
  const std::filesystem::path file = side_directory_ / name;
  auto content = read_regular_file(file, kMaxSideFileBytes);
  if (!content) return std::nullopt;
  return std::move(*content);
}

std::vector<SourceFile> MappedSource::files() const {
  std::vector<SourceFile> files;
  for (const auto& [path, file] : files_) files.push_back({path, file.stamp()});
  return files;
}

const MappedFile* MappedSource::file_of(const std::byte* at) const {
  for (const auto& [path, file] : files_) {
    const std::span<const std::byte> all = file.bytes();
    if (at >= all.data() && at < all.data() + all.size()) return &file;
  }
  return nullptr;
}

void MappedSource::expect_parts() const {
  for (const auto& [path, file] : files_) file.expect_parts();
}

void MappedSource::read_ahead(const ByteLines& part) const {
  if (const MappedFile* file = file_of(part.first.data())) file->read_ahead(part);
}

void MappedSource::drop(const TensorInfo& tensor) const {
  if (const MappedFile* file = file_of(tensor.bytes.data())) file->drop(tensor.bytes);
}

Status MappedSource::set_tensors(std::vector<TensorInfo> tensors) {
  tensors_ = std::move(tensors);
  index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {} appears twice, expected unique names",
                    path_.string(), quote_name(tensors_[i].name));
    }
  }
  return {};
}

Result<std::span<const std::byte>> MappedSource::add_file(const std::filesystem::path& path,
                                                          FileBytes how) {
  if (how == FileBytes::kMapped) {
    ASSIGN_OR_RETURN(MappedFile map, open_fetched(path));
    files_.push_back({path, std::move(map)});
    return files_.back().map.bytes();
  }
  std::error_code unknown;  // reading says what is wrong
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, unknown));
  if (const int64_t room = available_memory() / 2; !unknown && size > room) {
    return errorf(ErrorCode::kResourceExhausted,
                  "{}: {} bytes, expected at most half of the free memory, {} bytes", path.string(),
                  size, room);
  }
  ASSIGN_OR_RETURN(std::string content, read_regular_file(path, kMaxCopiedBytes));
  copies_.push_back(std::make_unique<const std::string>(std::move(content)));
  const auto bytes = std::as_bytes(std::span(*copies_.back()));
  RETURN_IF_ERROR(check_fetched(bytes, path));
  return bytes;
}

Result<MappedFile> open_fetched(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  RETURN_IF_ERROR(check_fetched(file.bytes(), path));
  return file;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t j = 1; j < length; ++j) {
      if ((static_cast<unsigned char>(text[i + j]) & 0xc0) != 0x80) return false;
    }
    const unsigned char second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

std::string quote_name(std::string_view name) {
  std::string text = "\"";
  for (const char c : name.substr(0, 80)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  text += name.size() > 80 ? "...\"" : "\"";
  return text;
}

Result<size_t> tensor_bytes(QuantType type, std::span<const int64_t> shape,
                            std::string_view where) {
  constexpr int64_t kMaxElements = int64_t{1} << 48;
  const QuantTypeInfo& info = quant_info(type);
  int64_t n = 1;
  bool too_large = false;
  for (const int64_t dim : shape) {
    if (dim < 0)
      return errorf(ErrorCode::kCorruptFile, "{}: dimension {}, expected at least 0", where, dim);
    too_large |= dim > kMaxElements || (dim > 0 && n > kMaxElements / dim);
    n = too_large ? n : n * dim;
  }
  if (too_large) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected at most 2^48 elements, got shape [{}]",
                  where, fmt::join(shape, ", "));
  }
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % info.block_size != 0) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: rows of {} elements, expected a multiple of {} for {}", where, cols,
                  info.block_size, info.name);
  }
  return quant_bytes(type, n);
}

}  // namespace penstock
