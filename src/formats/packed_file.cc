#include "formats/packed_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "formats/byte_reader.h"
#include "formats/packed_head.h"

namespace penstock {
namespace {

tl::unexpected<Error> corrupt(const std::string& where, std::string_view what) {
  return errorf(ErrorCode::kCorruptFile, "{}: {}", where, what);
}

// Checks the sizes at the start against the file's, then returns the whole head.
Result<std::span<const std::byte>> checked_head(std::span<const std::byte> bytes,
                                                const std::string& where) {
  if (bytes.size() < sizeof(PackedHead))
    return corrupt(where, "shorter than the head of packed weights");
  PackedHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kPackedMagic, sizeof kPackedMagic) != 0)
    return corrupt(where, "not a file of packed weights");
  if (head.version != kPackedVersion) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected version {} of packed weights, got {}",
                  where, kPackedVersion, head.version);
  }
  if (head.file_bytes != bytes.size()) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes, got {}", where, head.file_bytes,
                  bytes.size());
  }
  if (head.head_bytes < sizeof head || head.head_bytes > bytes.size())
    return corrupt(where, "the head goes beyond the file");
  const auto whole = bytes.first(head.head_bytes);
  if (checksum64(whole.subspan(kPackedSumEnd)) != head.checksum)
    return corrupt(where, "the head is damaged");
  return whole;
}

std::string read_text(ByteReader& reader) { return std::string(reader.read_string()); }

}  // namespace

Result<PackedFile> PackedFile::parse(std::span<const std::byte> bytes, const std::string& where) {
  ASSIGN_OR_RETURN(const auto whole, checked_head(bytes, where));
  PackedFile file;
  file.bytes_ = bytes;
  ByteReader reader(whole);
  const auto head = reader.read<PackedHead>();
  file.origin_.source = read_text(reader);
  file.origin_.form = read_text(reader);
  file.data_begin_ = (whole.size() + kAlignment - 1) / kAlignment * kAlignment;
  for (uint64_t i = 0; i < head.n_parts && reader.ok(); ++i) {
    const std::string_view name = reader.read_string(), description = reader.read_string();
    const auto offset = reader.read<uint64_t>(), size = reader.read<uint64_t>();
    if (!reader.ok()) break;
    if (offset % 64 != 0 || offset < file.data_begin_ || offset > bytes.size() ||
        size > bytes.size() - offset)
      return corrupt(where, "a part goes beyond the file");
    if (!file.index_.emplace(name, file.parts_.size()).second)
      return corrupt(where, "two parts have one name");
    file.parts_.push_back({name, description, bytes.subspan(offset, size)});
  }
  for (size_t i = 0; i < (bytes.size() + kChunk - 1) / kChunk && reader.ok(); ++i)
    file.sums_.push_back(reader.read<uint64_t>());
  if (!reader.ok() || reader.remaining() != 0)
    return corrupt(where, "the head does not have its size");
  return file;
}

Result<PackedFile> PackedFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
#ifdef MADV_HUGEPAGE
  // On file systems with huge pages, large mappings begin at a multiple of one.
  if (!map.bytes().empty())
    madvise(const_cast<std::byte*>(map.bytes().data()), map.bytes().size(), MADV_HUGEPAGE);
#endif
  ASSIGN_OR_RETURN(PackedFile file, parse(map.bytes(), path.string()));
  file.map_ = std::move(map);
  return file;
}

Result<PackedOrigin> PackedFile::read_origin(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const PackedFile file, open(path));
  return file.origin();
}

const PackedPart* PackedFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parts_[found->second];
}

bool PackedFile::check_chunk(int i) const {
  const size_t first = static_cast<size_t>(i) * kChunk,
               end = std::min(first + kChunk, bytes_.size());
  const size_t begin = std::min(std::max(first, data_begin_), end);
  const auto chunk = bytes_.subspan(begin, end - begin);
  if (!map_.bytes().empty()) map_.populate(chunk);
  return checksum64(chunk) == sums_[static_cast<size_t>(i)];
}

}  // namespace penstock
