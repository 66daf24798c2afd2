// A file in memory, as decoders of files read it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

namespace penstock {

struct MemoryFile {
  std::span<const std::byte> bytes;
  int64_t at = 0;

  int64_t size() const { return static_cast<int64_t>(bytes.size()); }

  // Returns the number of bytes read, at most n; 0 at the end.
  int64_t read(void* to, int64_t n) {
    n = std::clamp<int64_t>(n, 0, size() - at);
    if (n > 0) std::memcpy(to, bytes.data() + at, static_cast<size_t>(n));
    at += n;
    return n;
  }

  // As fseek(); returns the new place, or -1 for one outside of the file.
  int64_t seek(int64_t offset, int whence) {
    const int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? at : size();
    if (offset < -from || offset > size() - from) return -1;
    return at = from + offset;
  }
};

}  // namespace penstock
