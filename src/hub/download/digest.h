// The checksums that name content on a hub.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

struct Checksum {
  enum class Kind : uint8_t {
    kNone,
    kSha256,   // of the content: files in large-file storage
    kGitBlob,  // SHA-1 of "blob SIZE\0" and the content: git's own name of a file
  };
  Kind kind = Kind::kNone;
  std::string hex;  // lower case
};

// What an etag is by its length: 64 hexadecimal digits, 40, or nothing that can be checked.
Checksum checksum_of_etag(std::string_view etag);

class Digest {
 public:
  // `size` is that of the whole content.
  Digest(Checksum::Kind kind, int64_t size);
  void update(std::span<const std::byte> data);
  std::string hex();  // ends it

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace penstock
