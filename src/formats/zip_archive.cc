#include "formats/zip_archive.h"

#include <algorithm>
#include <optional>

#include "formats/byte_reader.h"
#include "formats/mapped_source.h"

namespace penstock {

namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kEntryMark = 0x02014b50, kEndMark = 0x06054b50,
                   kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr size_t kEndBytes = 22, kLocator64Bytes = 20, kMostComment = 65535;
constexpr uint64_t kMostEntries = 1 << 21;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the zip64 record

struct Directory {
  uint64_t n_entries = 0, size = 0, offset = 0;
};

uint32_t mark_at(std::span<const std::byte> bytes, size_t at) {
  return ByteReader(bytes.subspan(at)).read<uint32_t>();
}

std::optional<Directory> read_end64(std::span<const std::byte> bytes, size_t end) {
  if (end < kLocator64Bytes || mark_at(bytes, end - kLocator64Bytes) != kLocator64Mark)
    return std::nullopt;
  ByteReader locator(bytes.subspan(end - kLocator64Bytes + 8));
  const auto at = locator.read<uint64_t>();
  if (at > bytes.size()) return std::nullopt;
  ByteReader in(bytes.subspan(static_cast<size_t>(at)));
  if (in.read<uint32_t>() != kEnd64Mark) return std::nullopt;
  in.take(28);  // size, versions, disks, entries on this disk
  Directory directory;
  directory.n_entries = in.read<uint64_t>(), directory.size = in.read<uint64_t>(),
  directory.offset = in.read<uint64_t>();
  return in.ok() ? std::optional(directory) : std::nullopt;
}

std::optional<Directory> read_end(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t first = bytes.size() - std::min(bytes.size(), kEndBytes + kMostComment);
  for (size_t at = bytes.size() - kEndBytes + 1; at-- > first;) {
    if (mark_at(bytes, at) != kEndMark) continue;
    ByteReader in(bytes.subspan(at + 10));  // skips the numbers of disks
    Directory directory;
    directory.n_entries = in.read<uint16_t>(), directory.size = in.read<uint32_t>(),
    directory.offset = in.read<uint32_t>();
    // only a comment that looks like an end record
    if (in.read<uint16_t>() != bytes.size() - at - kEndBytes) continue;
    const auto larger = read_end64(bytes, at);
    return larger ? larger : directory;
  }
  return std::nullopt;
}

// Sizes and offset of an entry; those that need 64 bits are in zip64's extra field, in this
// order.
struct Sizes {
  uint64_t raw = 0, stored = 0, offset = 0;
};

bool read_extra(ByteReader extra, Sizes& sizes) {
  if (sizes.raw != kIn64 && sizes.stored != kIn64 && sizes.offset != kIn64) return true;
  while (extra.remaining() >= 4) {
    const auto id = extra.read<uint16_t>(), length = extra.read<uint16_t>();
    const std::byte* at = extra.take(length);
    if (at == nullptr) return false;
    if (id != 1) continue;
    ByteReader in({at, length});
    for (uint64_t* size : {&sizes.raw, &sizes.stored, &sizes.offset}) {
      if (*size == kIn64) *size = in.read<uint64_t>();
    }
    return in.ok();
  }
  return true;  // a size that equals the marker value
}

// Returns the bytes after the entry's local header, which repeats its name.
std::optional<std::span<const std::byte>> stored_bytes(std::span<const std::byte> bytes,
                                                       const Sizes& sizes) {
  if (sizes.offset > bytes.size()) return std::nullopt;
  ByteReader in(bytes.subspan(static_cast<size_t>(sizes.offset)));
  if (in.read<uint32_t>() != kLocalMark) return std::nullopt;
  in.take(22);
  const auto name = in.read<uint16_t>(), extra = in.read<uint16_t>();
  in.take(size_t{name} + extra);
  const std::byte* at = in.take(sizes.stored);
  if (at == nullptr) return std::nullopt;
  return std::span(at, static_cast<size_t>(sizes.stored));
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && mark_at(bytes, 0) == kLocalMark;
}

Result<std::vector<ZipEntry>> list_zip(std::span<const std::byte> bytes, const std::string& where) {
  const auto directory = read_end(bytes);
  if (!directory || directory->offset > bytes.size() ||
      directory->size > bytes.size() - directory->offset || directory->n_entries > kMostEntries) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: expected a zip archive with its directory at the end, got {} bytes without: "
                  "is it cut off?",
                  where, bytes.size());
  }
  ByteReader in(
      bytes.subspan(static_cast<size_t>(directory->offset), static_cast<size_t>(directory->size)));
  std::vector<ZipEntry> entries;
  for (uint64_t i = 0; i < directory->n_entries; ++i) {
    const auto mark = in.read<uint32_t>();
    in.take(4);  // versions
    const auto flags = in.read<uint16_t>(), method = in.read<uint16_t>();
    in.take(8);  // time, checksum
    Sizes sizes;
    sizes.stored = in.read<uint32_t>(), sizes.raw = in.read<uint32_t>();
    const auto name_size = in.read<uint16_t>(), extra_size = in.read<uint16_t>(),
               comment = in.read<uint16_t>();
    const auto disk = in.read<uint16_t>();
    in.take(6);  // attributes
    sizes.offset = in.read<uint32_t>();
    const auto* name = reinterpret_cast<const char*>(in.take(name_size));
    const std::byte* extra = in.take(extra_size);
    in.take(comment);
    if (!in.ok() || mark != kEntryMark || disk != 0 ||
        !read_extra(ByteReader({extra, extra_size}), sizes))
      return errorf(ErrorCode::kCorruptFile,
                    "{}: zip archive: entry {} of {} of its directory is damaged", where, i,
                    directory->n_entries);
    ZipEntry entry{
        {name, name_size}, {}, method != 0 || (flags & 1) != 0 || sizes.raw != sizes.stored};
    const auto found = stored_bytes(bytes, sizes);
    if (!found)
      return errorf(ErrorCode::kCorruptFile,
                    "{}: zip archive: {}: its {} bytes at {} do not fit into the file's {}", where,
                    quote_name(entry.name), sizes.stored, sizes.offset, bytes.size());
    if (!entry.compressed) entry.bytes = *found;
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace penstock
