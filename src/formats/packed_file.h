// A file of packed weights: named parts of any content, each 64-byte aligned, that are used in
// place in the memory map. Layout, little-endian: a head (magic, its checksum, sizes, what the
// parts were made from, the list of parts, a checksum for every kChunk bytes of the file, without
// the head), then the parts, from a multiple of kAlignment on. The file is written in whole chunks,
// so that file systems with huge pages use them. Files are not trusted: open() checks the head and
// all bounds, check_chunk() the rest. Immutable after open: any thread may read.
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/owned_bytes.h"
#include "base/result.h"
#include "base/text_hash.h"

namespace penstock {

struct PackedPart {
  std::string_view name, description;
  std::span<const std::byte> bytes;
};

// Description of what the parts were made from and of the form that they were packed into; files
// are reused only when both are equal.
struct PackedOrigin {
  // lines of text; the first is the path of the packed model
  std::string source;
  std::string form;
  bool operator==(const PackedOrigin&) const = default;
};

class PackedFile {
 public:
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kChunk = size_t{4} << 20;

  // Opens a file and checks its head. Errors: kNotFound, kIo; kCorruptFile for a head that is
  // damaged, cut off or of another version.
  static Result<PackedFile> open(const std::filesystem::path& path);
  // Reads only the head, to learn what a file is made from. Errors: as open().
  static Result<PackedOrigin> read_origin(const std::filesystem::path& path);
  // Parses a file's bytes as open() does; they must outlive the result. where: name of the file in
  // messages.
  static Result<PackedFile> parse(std::span<const std::byte> bytes, const std::string& where);

  const PackedOrigin& origin() const { return origin_; }
  std::span<const PackedPart> parts() const { return parts_; }
  const PackedPart* find(std::string_view name) const;  // nullptr: there is none
  size_t size() const { return bytes_.size(); }

  int n_chunks() const { return static_cast<int>(sums_.size()); }
  // compares chunk i with its checksum; false: damaged
  bool check_chunk(int i) const;

 private:
  MappedFile map_;
  std::span<const std::byte> bytes_;  // the whole file
  PackedOrigin origin_;
  std::vector<PackedPart> parts_;
  ViewMap<size_t> index_;
  std::vector<uint64_t> sums_;
  size_t data_begin_ = 0;
};

// A part whose content is produced only when it is written, so that not all parts are in memory at
// once.
struct PartToWrite {
  std::string_view name, description;
  size_t n_bytes = 0;
  std::function<OwnedBytes()> content;  // returns n_bytes
};

// Writes a temporary file beside `path` and renames it, so that readers see the whole file or the
// previous one. Concurrent writers do not disturb each other; the last one's file stays. Errors: as
// file_error(); the temporary file is then removed.
Status write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                         std::span<const PartToWrite> parts);
// Writes a file of parts that are in memory.
Status write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                         std::span<const PackedPart> parts);
// Writes to an open file, from its start. where: name of the file in messages.
Status write_packed_parts(int fd, const std::string& where, const PackedOrigin& origin,
                          std::span<const PartToWrite> parts);
std::vector<PartToWrite> parts_to_write(std::span<const PackedPart> parts);
// Suffix of packed files: NAME.packed. Temporary files are NAME.packed.XXXXXX.part.
inline constexpr const char* kPackedSuffix = ".packed";
// Removes temporary files that killed writers left in the folder.
void remove_abandoned_parts(const std::filesystem::path& folder);

}  // namespace penstock
