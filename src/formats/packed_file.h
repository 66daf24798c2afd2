// A file of packed weights: named parts of any content, each 64-byte aligned, that are used where they lie in the map.
// Layout, little-endian: a head (magic, its checksum, sizes, what the parts were made from, the list of parts, a checksum
// for every kChunk bytes of the file, without the head), then from a multiple of kAlignment on the parts. Written in whole
// chunks, a file comes to lie in huge pages where the file system has such. Nothing in a file is believed: open() checks
// the head and every bound, check_chunk() the rest. Immutable after open: any thread may read.
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/owned_bytes.h"
#include "base/result.h"

namespace penstock {

struct PackedPart {
  std::string_view name, description;
  std::span<const std::byte> bytes;
};

// What the parts were made from, and into what. Both are compared as a whole.
struct PackedOrigin {
  std::string source;  // lines of text; the first is the path of what was packed
  std::string form;
  bool operator==(const PackedOrigin&) const = default;
};

class PackedFile {
 public:
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kChunk = size_t{4} << 20;

  // Errors: kNotFound, kIo; kCorruptFile for a head that is damaged, cut off or of another version.
  static Result<PackedFile> open(const std::filesystem::path& path);
  // The head alone, for who wants to know what a file is about. Errors: as open().
  static Result<PackedOrigin> read_origin(const std::filesystem::path& path);
  // What open() does with the file's content, of which it keeps views. `where` names it in messages.
  static Result<PackedFile> parse(std::span<const std::byte> bytes, const std::string& where);

  const PackedOrigin& origin() const { return origin_; }
  std::span<const PackedPart> parts() const { return parts_; }
  const PackedPart* find(std::string_view name) const;  // nullptr: there is none
  size_t size() const { return bytes_.size(); }

  int n_chunks() const { return static_cast<int>(sums_.size()); }
  bool check_chunk(int i) const;  // of the file's chunks; false: damaged

 private:
  MappedFile map_;
  std::span<const std::byte> bytes_;  // the whole file
  PackedOrigin origin_;
  std::vector<PackedPart> parts_;
  std::unordered_map<std::string_view, size_t> index_;
  std::vector<uint64_t> sums_;
  size_t data_begin_ = 0;
};

// A part that is asked for its content when its turn comes, so that not all need be there at once.
struct PartToWrite {
  std::string_view name, description;
  size_t n_bytes = 0;
  std::function<OwnedBytes()> content;  // of n_bytes
};

// Writes beside `path` and renames, so that readers see a whole file or the one before; writers at the same time do not
// disturb each other, the last one's file stays. Errors: as file_error() (nothing is left behind).
Status write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                         std::span<const PartToWrite> parts);
// Of content that is there.
Status write_packed_file(const std::filesystem::path& path, const PackedOrigin& origin,
                         std::span<const PackedPart> parts);
// Into an open file, from its start. `where` names it in messages.
Status write_packed_parts(int fd, const std::string& where, const PackedOrigin& origin,
                          std::span<const PartToWrite> parts);
std::vector<PartToWrite> parts_to_write(std::span<const PackedPart> parts);
// What such files are called: NAME.packed; while they are written, NAME.packed.XXXXXX.part.
inline constexpr const char* kPackedSuffix = ".packed";
// Removes what writers of such files left in the folder when they were killed.
void remove_abandoned_parts(const std::filesystem::path& folder);

}  // namespace penstock
