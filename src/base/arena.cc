#include "base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace penstock {
namespace {
constexpr size_t kAlignment = 64;
constexpr size_t kMinChunk = size_t{1} << 20;

// Large chunks are backed by huge pages: strided accesses of matrix products exceed the TLB's reach
// with small pages.
std::byte* aligned_chunk(size_t size) {
  const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  if (size >= kHugePage) madvise(data, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}
}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) std::free(chunk.data);
}

void* Arena::allocate(size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (chunks_.empty() || used_ + bytes > chunks_.back().size) {
    const size_t size = std::max({bytes, kMinChunk, capacity()});
    chunks_.reserve(chunks_.size() + 1);
    chunks_.push_back({aligned_chunk(size), size});
    used_ = 0;
  }
  void* result = chunks_.back().data + used_;
  used_ += bytes;
  return result;
}

void Arena::reset() {
  used_ = 0;
  if (chunks_.size() > 1) {
    const size_t total = capacity();
    for (const Chunk& chunk : chunks_) std::free(chunk.data);
    chunks_.clear();
    // does not allocate: the vector's capacity remains
    chunks_.push_back({aligned_chunk(total), total});
  }
}

size_t Arena::capacity() const {
  size_t total = 0;
  for (const Chunk& chunk : chunks_) total += chunk.size;
  return total;
}

}  // namespace penstock
