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
    kSha256,   // SHA-256 of the content: files in large-file storage (LFS)
    kGitBlob,  // SHA-1 of "blob SIZE\0" and the content: git's blob id
  };
  Kind kind = Kind::kNone;
  std::string hex;  // lower case
};

// Returns the checksum that an etag is, by its length: kSha256 (64 hexadecimal digits), kGitBlob
// (40), or kNone.
Checksum checksum_of_etag(std::string_view etag);

class Digest {
 public:
  // size: bytes of the whole content.
  Digest(Checksum::Kind kind, int64_t size);
  void update(std::span<const std::byte> data);
  // returns the digest; REQUIRES: nothing is called afterwards
  std::string hex();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace penstock
