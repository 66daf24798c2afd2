#include "ops/cpu/weight_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/arena.h"

namespace penstock {
namespace {

constexpr size_t kSmall = size_t{64} << 10;  // less is on the heap
// of addresses: pages that nobody touches are no memory
constexpr size_t kMapBytes = size_t{256} << 20;

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t whole_pages(size_t bytes) {
  static const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return round_up(bytes, kPage);
}

// `bytes`, a multiple of a page, whose start is a multiple of kHugePage, or null. The slack of
// alignment is given back at once.
std::shared_ptr<const void> map_huge(size_t bytes) {
  const size_t total = bytes + kHugePage;
  void* mapped = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = round_up(start, kHugePage), end = aligned + bytes;
  if (aligned > start) munmap(mapped, aligned - start);
  if (start + total > end) munmap(reinterpret_cast<void*>(end), start + total - end);
  auto* data = reinterpret_cast<void*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);
  return {data, [bytes](void* at) { munmap(at, bytes); }};
}

}  // namespace

WeightMemory::~WeightMemory() {
  if (data_ == nullptr) return;
  if (map_ == nullptr) {
    std::free(data_);
  } else {
    madvise(data_, whole_pages(size_), MADV_DONTNEED);
  }
}

WeightMemory WeightPages::allocate(size_t bytes) {
  WeightMemory memory;
  memory.size_ = bytes;
  if (bytes < kSmall) {
    memory.data_ = static_cast<uint8_t*>(std::aligned_alloc(64, round_up(bytes, 64)));
    if (memory.data_ != nullptr) std::fill_n(memory.data_, bytes, uint8_t{0});
    return memory;
  }
  const size_t whole = whole_pages(bytes);
  if (whole > left_) {
    left_ = std::max(kMapBytes, round_up(whole, kHugePage));
    map_ = map_huge(left_);
    if (map_ == nullptr) {  // where addresses are counted, perhaps what is needed
      left_ = round_up(whole, kHugePage);
      map_ = map_huge(left_);
    }
    next_ = static_cast<uint8_t*>(const_cast<void*>(map_.get()));
    if (map_ == nullptr) {
      left_ = 0;
      return memory;
    }
  }
  memory.map_ = map_;
  memory.data_ = std::exchange(next_, next_ + whole);
  left_ -= whole;
  return memory;
}

}  // namespace penstock
